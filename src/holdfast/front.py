"""The first hour: an Agent that runs itself.

The same engine as everything else: each method opens a client, or takes yours, and calls
`execute_agent`. The client and all that is behind it are loaded with the first run.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from holdfast.agents import Agent, AgentResult
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.client import AsyncClient
    from holdfast.runs import StreamItem
    from holdfast.sync import Client


class RunnableAgent(Agent):
    """An agent with `run`, `run_sync` and `stream`; `from holdfast import Agent` gives it::

        agent = Agent("helper", model="openai:gpt-5.2", tools=[my_tool])
        print(agent.run_sync("Do it", run_id="job-1").response)

    Without a `session` each run begins one; with a `run_id` the same call again returns the
    finished result, or goes on where a crash left it.
    """

    async def run(
        self,
        message: str,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        raise_on_failure: bool = True,
    ) -> AgentResult:
        """Run on a message and return the result; parked and cancelled are results too.

        Raises:
            RunFailed: the run failed, now or before under the same `run_id`; it has the partial
                result. With `raise_on_failure=False` the result says so instead.
            RunInterrupted: the machine failed; the same `run_id` goes on with the run.
            RunIdReused: the run of this id began with another message.
        """
        from holdfast.client import AsyncClient  # noqa: PLC0415 - loads the whole engine

        if client is None:
            async with AsyncClient() as opened:
                result = await opened.execute_agent(self, session, message, run_id=run_id)
        elif isinstance(client, AsyncClient):
            result = await client.execute_agent(self, session, message, run_id=run_id)
        else:
            raise _make_wrong_client_error(client, "AsyncClient", "run")
        if raise_on_failure and result.status == "failed":
            result.raise_if_failed()
        return result

    def run_sync(
        self,
        message: str,
        *,
        session: str = "",
        run_id: str = "",
        client: Client | None = None,
        raise_on_failure: bool = True,
    ) -> AgentResult:
        """Do the same as `run`, blocking; works inside a running event loop too."""
        from holdfast.sync import Client  # noqa: PLC0415 - loads the whole engine

        if client is None:
            with Client() as opened:
                result = opened.execute_agent(self, session, message, run_id=run_id)
        elif isinstance(client, Client):
            result = client.execute_agent(self, session, message, run_id=run_id)
        else:
            raise _make_wrong_client_error(client, "Client", "run_sync")
        return result.raise_if_failed() if raise_on_failure else result

    def stream(
        self,
        message: str,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        with_children: bool = False,
        raise_on_failure: bool = True,
    ) -> AsyncGenerator[StreamItem, None]:
        """Run on a message and yield what happens; the last item is the result.

        `with_children` also yields what agents do that this one sends, under their path.

        Raises:
            RunFailed: at the end, in place of a failed result, unless `raise_on_failure` is off.
        """
        from holdfast.client import AsyncClient  # noqa: PLC0415 - loads the whole engine

        async def items(opened: AsyncClient) -> AsyncGenerator[StreamItem, None]:
            stream = opened.runs.stream(
                self, session, message, run_id=run_id, with_children=with_children
            )
            # Leaving early must cancel the run now, not when the garbage is collected.
            async with contextlib.aclosing(stream):
                async for item in stream:
                    if raise_on_failure and isinstance(item, AgentResult):
                        item.raise_if_failed()
                    yield item

        if client is None:
            return _with_a_client(items)
        if not isinstance(client, AsyncClient):
            raise _make_wrong_client_error(client, "AsyncClient", "stream")
        return items(client)


def _make_wrong_client_error(client: object, wanted: str, method: str) -> UsageError:
    """Refuse a client of the other kind before anything happens; its calls mean something else."""
    return UsageError(detail=f"Agent.{method} takes a client of {wanted}, not {client!r:.80}.")


async def _with_a_client(
    start: Callable[[AsyncClient], AsyncGenerator[StreamItem, None]],
) -> AsyncGenerator[StreamItem, None]:
    """Open a client for one stream."""
    from holdfast.client import AsyncClient  # noqa: PLC0415 - loaded by now

    # Leaving early must cancel the run now, not when the garbage is collected.
    async with AsyncClient() as opened, contextlib.aclosing(start(opened)) as items:
        async for item in items:
            yield item
