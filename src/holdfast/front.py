"""The first hour: an Agent that runs itself.

The same engine as everything else: each method opens a client, or takes yours, and calls
`execute_agent`. The client and all that is behind it are loaded with the first run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from holdfast.agents import Agent, AgentResult, OutputT
from holdfast.errors import UsageError
from holdfast.messages import FilePart, TextPart, UserContent, make_user_content
from holdfast.tools import DepsT

if TYPE_CHECKING:
    from holdfast.client import AsyncClient
    from holdfast.messages import Message
    from holdfast.runs import StreamItem
    from holdfast.sync import Client

Item = TypeVar("Item", covariant=True)


class RunnableAgent(Agent[OutputT, DepsT]):
    """An agent with `run`, `run_sync` and `stream`; `from holdfast import Agent` gives it::

        agent = Agent("helper", model="openai:gpt-5.2", tools=[my_tool])
        print(agent.run_sync("Do it", run_id="job-1").response)

    A message is a text, or a list of texts, `Image`, `Audio` and `File`. Without a `session` each
    run begins one, with `history` in it if given; with a `run_id` the same call again returns the
    finished result, or goes on where a crash left it. `deps` is what tools and instructions ask
    for by type; it is not kept, so it is handed over again where a run goes on.
    """

    async def run(
        self,
        message: UserContent,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        raise_on_failure: bool = True,
        deps: DepsT = None,  # type: ignore[assignment]
        history: Sequence[Message] = (),
    ) -> AgentResult[OutputT]:
        """Run on a message and return the result; parked and cancelled are results too.

        Raises:
            RunFailed: the run failed, now or before under the same `run_id`; it has the partial
                result. With `raise_on_failure=False` the result says so instead.
            RunInterrupted: the machine failed; the same `run_id` goes on with the run.
            RunIdReused: the run of this id began with another message.
            DependencyMissing: a tool or the prompt asks for something that `deps` has not.
        """
        from holdfast.client import AsyncClient  # noqa: PLC0415 - loads the whole engine

        content = message if isinstance(message, str) else await _read_content(message)

        if client is None:
            async with AsyncClient() as opened:
                result = await opened.execute_agent(
                    self, session, content, run_id=run_id, deps=deps, history=history
                )
        elif isinstance(client, AsyncClient):
            result = await client.execute_agent(
                self, session, content, run_id=run_id, deps=deps, history=history
            )
        else:
            raise _make_wrong_client_error(client, "AsyncClient", "run")
        if raise_on_failure and result.status == "failed":
            result.raise_if_failed()
        return result

    def run_sync(
        self,
        message: UserContent,
        *,
        session: str = "",
        run_id: str = "",
        client: Client | None = None,
        raise_on_failure: bool = True,
        deps: DepsT = None,  # type: ignore[assignment]
        history: Sequence[Message] = (),
    ) -> AgentResult[OutputT]:
        """Do the same as `run`, blocking; works inside a running event loop too."""
        from holdfast.sync import Client  # noqa: PLC0415 - loads the whole engine

        content = make_user_content(message)

        if client is None:
            with Client() as opened:
                result = opened.execute_agent(
                    self, session, content, run_id=run_id, deps=deps, history=history
                )
        elif isinstance(client, Client):
            result = client.execute_agent(
                self, session, content, run_id=run_id, deps=deps, history=history
            )
        else:
            raise _make_wrong_client_error(client, "Client", "run_sync")
        return result.raise_if_failed() if raise_on_failure else result

    def stream(
        self,
        message: UserContent,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        with_children: bool = False,
        raise_on_failure: bool = True,
        deps: DepsT = None,  # type: ignore[assignment]
        history: Sequence[Message] = (),
    ) -> AgentStream[StreamItem[OutputT], OutputT]:
        """Run on a message and yield what happens; the last item is the result.

        `with_children` also yields what agents do that this one sends, under their path.

        Raises:
            RunFailed: at the end, in place of a failed result, unless `raise_on_failure` is off.
        """
        from holdfast.client import AsyncClient  # noqa: PLC0415 - loads the whole engine

        async def items(opened: AsyncClient) -> AsyncGenerator[StreamItem[OutputT], None]:
            content = message if isinstance(message, str) else await _read_content(message)
            stream = opened.runs.stream(
                self,
                session,
                content,
                run_id=run_id,
                with_children=with_children,
                deps=deps,
                history=history,
            )
            # Leaving early must cancel the run now, not when the garbage is collected.
            async with contextlib.aclosing(stream):
                async for item in stream:
                    if raise_on_failure and isinstance(item, AgentResult):
                        item.raise_if_failed()
                    yield item

        if client is None:
            return AgentStream(_with_a_client(items))
        if not isinstance(client, AsyncClient):
            raise _make_wrong_client_error(client, "AsyncClient", "stream")
        return AgentStream(items(client))

    def stream_text(
        self,
        message: UserContent,
        *,
        session: str = "",
        run_id: str = "",
        client: AsyncClient | None = None,
        raise_on_failure: bool = True,
        deps: DepsT = None,  # type: ignore[assignment]
        history: Sequence[Message] = (),
    ) -> AgentStream[str, OutputT]:
        """Run on a message and yield the text of the answers as it arrives::

            run = agent.stream_text("Tell me a story")
            async for text in run:
                print(text, end="")
            result = await run.result()

        Where an answer begins anew, because its connection broke, its text does so too.

        Raises:
            RunFailed: at the end, unless `raise_on_failure` is off.
        """
        run = self.stream(
            message,
            session=session,
            run_id=run_id,
            client=client,
            raise_on_failure=raise_on_failure,
            deps=deps,
            history=history,
        )
        return AgentStream(_select_text(run), source=run)


class AgentStream(Generic[Item, OutputT]):
    """A run as it happens: iterate over it, and ask for its `result` at the end.

    Leaving it early (`aclose`, or the end of `async with`) cancels the run.
    """

    def __init__(
        self,
        items: AsyncGenerator[Item, None],
        *,
        source: AgentStream[StreamItem[OutputT], OutputT] | None = None,
    ) -> None:
        """Made by `Agent.stream` and `Agent.stream_text`."""
        self._items = items
        self._source = source
        self._result: AgentResult[OutputT] | None = None

    def __aiter__(self) -> AsyncIterator[Item]:
        """Return itself: a run happens once."""
        return self

    async def __anext__(self) -> Item:
        """Return what comes next."""
        item = await anext(self._items)
        if isinstance(item, AgentResult):
            self._result = item
        return item

    async def result(self) -> AgentResult[OutputT]:
        """Wait for the end and return the result; what was not read until then is skipped.

        Raises:
            RunFailed: the run failed, unless `raise_on_failure` was off.
            UsageError: the stream was closed before its end.
        """
        async for _ in self:
            pass
        found = self._source._result if self._source is not None else self._result
        if found is None:
            raise UsageError(detail="The stream was left before its end, so it has no result.")
        return found

    async def aclose(self) -> None:
        """Leave the stream; a run that has not ended is cancelled."""
        await self._items.aclose()
        if self._source is not None:
            await self._source.aclose()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the stream."""
        await self.aclose()


async def _select_text(
    run: AgentStream[StreamItem[OutputT], OutputT],
) -> AsyncGenerator[str, None]:
    from holdfast.providers import TextDelta  # noqa: PLC0415 - loaded by now

    async with run:
        async for item in run:
            if isinstance(item, TextDelta):
                yield item.text


async def _read_content(message: UserContent) -> str | tuple[TextPart | FilePart, ...]:
    """Return a message as its parts; files are read off the event loop."""
    return await asyncio.to_thread(make_user_content, message)


def _make_wrong_client_error(client: object, wanted: str, method: str) -> UsageError:
    """Refuse a client of the other kind before anything happens; its calls mean something else."""
    return UsageError(detail=f"Agent.{method} takes a client of {wanted}, not {client!r:.80}.")


async def _with_a_client(
    start: Callable[[AsyncClient], AsyncGenerator[Item, None]],
) -> AsyncGenerator[Item, None]:
    """Open a client for one stream."""
    from holdfast.client import AsyncClient  # noqa: PLC0415 - loaded by now

    # Leaving early must cancel the run now, not when the garbage is collected.
    async with AsyncClient() as opened, contextlib.aclosing(start(opened)) as items:
        async for item in items:
            yield item
