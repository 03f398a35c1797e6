"""What a run does, as the events of a task's stream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.operations import Caller, runs
from holdfast.providers import Finished, Restarted, TextDelta
from holdfast.runs import StreamItem
from holdfast.runtime import Runtime
from holdfast.server.a2a.tasks import STATES, WORKING, make_artifact, make_status, make_task
from holdfast.sessions import Run


class TaskEvents:
    """Makes the updates of one task; the text of a further message takes the place of the last."""

    def __init__(self, run: Run) -> None:
        """Make those of this run."""
        self._ids: JsonObject = {"taskId": run.id, "contextId": run.session_id}
        self._said = ""
        self._is_new = True

    def hear(self, item: object) -> Iterator[JsonObject]:
        """Yield the updates of a piece of the run."""
        if isinstance(item, TextDelta) and item.text:
            yield self._add(item.text)
        elif isinstance(item, Restarted):
            self._is_new = True
        elif isinstance(item, Finished):
            if item.message.text and self._is_new:
                yield self._add(item.message.text)  # it was not streamed
            self._is_new = True

    def complete(self, response: str) -> Iterator[JsonObject]:
        """Yield what makes of what was told the answer as it stands in the end."""
        if response and response != self._said:
            yield self._tell(response, append=False, last_chunk=True)

    def tell_status(self, status: JsonObject) -> JsonObject:
        """Return a state of the task as an update."""
        return {"statusUpdate": {**self._ids, "status": status}}

    def _add(self, text: str) -> JsonObject:
        append, self._is_new = not self._is_new, False
        self._said = self._said + text if append else text
        return self._tell(text, append=append, last_chunk=False)

    def _tell(self, text: str, *, append: bool, last_chunk: bool) -> JsonObject:
        told = {**self._ids, "artifact": make_artifact(text)}
        return {"artifactUpdate": told | {"append": append, "lastChunk": last_chunk}}


async def stream_task(
    runtime: Runtime,
    caller: Caller,
    run: Run,
    items: AsyncGenerator[StreamItem, None],
    *,
    history: int | None = None,
) -> AsyncGenerator[JsonObject, None]:
    """Yield the task, then what its run does, until it ends or waits for a person.

    A client that leaves early leaves the run alone: a task is no part of the stream that began it.
    """
    events = TaskEvents(run)
    async with contextlib.aclosing(items):
        yield {"task": await make_task(runtime, caller, run, history=history)}
        is_told = run.status == "running"
        async for item in items:
            if isinstance(item, AgentResult):
                break
            for event in events.hear(item):
                if not is_told:
                    is_told = True
                    now = await make_status(runtime, caller, run)
                    yield events.tell_status(now | {"state": WORKING})
                yield event
        ended = await runs.get.perform(runtime, caller, run.id)
        result = await runs.result.perform(runtime, caller, run.id, raise_on_failure=False)
        if STATES[ended.status] == "TASK_STATE_COMPLETED":
            for event in events.complete(result.response):
                yield event
        yield events.tell_status(await make_status(runtime, caller, ended, result))


__all__ = ["TaskEvents", "stream_task"]
