"""The first hour: an Agent that runs itself.

The same engine as everything else: each method opens a client, or takes yours, and calls
`execute_agent`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from holdfast import agents
from holdfast.agents import AgentResult
from holdfast.client import AsyncClient
from holdfast.errors import UsageError
from holdfast.runs.streaming import StreamItem
from holdfast.sync import Client


class RunnableAgent(agents.Agent):
    """An agent with `run`, `run_sync` and `stream`::

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
    ) -> AgentResult:
        """Run on a message and return the result."""
        if client is not None:
            _check_kind(client, AsyncClient, "run")
            return await client.execute_agent(self, session, message, run_id=run_id)
        async with AsyncClient() as opened:
            return await opened.execute_agent(self, session, message, run_id=run_id)

    def run_sync(
        self, message: str, *, session: str = "", run_id: str = "", client: Client | None = None
    ) -> AgentResult:
        """Do the same as `run`, blocking; works inside a running event loop too."""
        if client is not None:
            _check_kind(client, Client, "run_sync")
            return client.execute_agent(self, session, message, run_id=run_id)
        with Client() as opened:
            return opened.execute_agent(self, session, message, run_id=run_id)

    def stream(
        self,
        message: str,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        with_children: bool = False,
    ) -> AsyncGenerator[StreamItem, None]:
        """Run on a message and yield what happens; the last item is the result.

        `with_children` also yields what agents do that this one sends, under their path.
        """

        def items(opened: AsyncClient) -> AsyncGenerator[StreamItem, None]:
            return opened.stream_agent(
                self, session, message, run_id=run_id, with_children=with_children
            )

        if client is None:
            return _with_a_client(items)
        _check_kind(client, AsyncClient, "stream")
        return items(client)


def _check_kind(client: object, wanted: type, method: str) -> None:
    """Refuse a client of the other kind before anything happens; its calls mean something else."""
    if not isinstance(client, wanted):
        raise UsageError(
            detail=f"Agent.{method} takes a client of {wanted.__name__}, not {client!r:.80}."
        )


async def _with_a_client(
    start: Callable[[AsyncClient], AsyncGenerator[StreamItem, None]],
) -> AsyncGenerator[StreamItem, None]:
    """Open a client for one stream."""
    # Leaving early must cancel the run now, not when the garbage is collected.
    async with AsyncClient() as opened, contextlib.aclosing(start(opened)) as items:
        async for item in items:
            yield item


@contextlib.asynccontextmanager
async def _borrowed(client: AsyncClient | None) -> AsyncIterator[AsyncClient]:
    """Use the caller's client and leave it open, or open one for this call."""
    if client is not None:
        yield client
        return
    async with AsyncClient() as opened:
        yield opened
