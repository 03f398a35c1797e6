"""What a request of either API asks of a run, and where a run rests that needs its client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.agents import NO_CLIENT, AgentResult, ClientOptions
from holdfast.errors import NotFound
from holdfast.messages import FilePart, Message, TextPart
from holdfast.operations import Caller, runs
from holdfast.runtime import ClientResult, OpenQuestion, Runtime
from holdfast.server.openai.content import find_open_call, split_call_id
from holdfast.server.openai.failures import BadRequest
from holdfast.tools import ToolParked


class AskedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to begin, or to go on: the arguments of `runs.start`."""

    agent: str
    message: str | tuple[TextPart | FilePart, ...] = ""
    history: tuple[Message, ...] = ()
    session_id: str = ""
    run_id: str = ""
    client: ClientOptions = NO_CLIENT
    after: int = 0
    """The number of the last event before it, where it goes on with a run."""

    def to_arguments(self) -> dict[str, Any]:
        """Return it as arguments of the operation."""
        return {
            "agent_name": self.agent,
            "session_id": self.session_id,
            "user_message": self.message,
            "run_id": self.run_id,
            "history": self.history,
            "client": self.client,
        }


def end_with_message(
    messages: Sequence[Message], where: str
) -> tuple[tuple[Message, ...], str | tuple[TextPart | FilePart, ...]]:
    """Return a conversation as the history, and the message that is to be answered.

    Raises:
        BadRequest: nothing is to be answered, or a call has no result.
    """
    if not messages:
        raise BadRequest("there is no message to answer", where)
    if open_call := find_open_call(messages):
        raise BadRequest(f"the call {open_call!r:.80} has no result", where)
    *before, last = messages
    if last.role == "assistant":
        raise BadRequest("the last message is that of a user or of a tool", where)
    parts = tuple(part for part in last.parts if isinstance(part, TextPart | FilePart))
    if not parts:
        raise BadRequest("the last message is empty", where)
    if all(isinstance(part, TextPart) for part in parts):
        return tuple(before), "\n".join(p.text for p in parts if isinstance(p, TextPart))
    return tuple(before), parts


async def answer_calls(
    runtime: Runtime, caller: Caller, outputs: dict[str, str], where: str
) -> tuple[str, int]:
    """Send the results of a client's calls to the run that waits for them.

    Returns the run, and the number of its last event before. Results that came before change
    nothing, so a request may be sent again.

    Raises:
        BadRequest: they are of no run, of several, or not all that it waits for.
    """
    found = {split_call_id(given): given for given in outputs}
    named = {run_id for run_id, _ in found}
    if len(named) != 1 or "" in named:
        raise BadRequest("the results belong to no answer of ours", where)
    [run_id] = named
    results = {call: ClientResult(output=outputs[given]) for (_, call), given in found.items()}
    try:
        waiting = await list_client_calls(runtime, caller, run_id)
        missing = [one.call_id for one in waiting if one.call_id not in results]
        if missing and len(missing) < len(waiting):
            raise BadRequest(f"the call {run_id}.{missing[0]} has no result", where)
        after = await find_rest(runtime, caller, run_id, set(results))
        await runs.answer_calls.perform(runtime, caller, run_id, results)
    except NotFound as error:
        raise BadRequest(f"no answer of ours waits for these results: {error}", where) from error
    return run_id, after


async def list_client_calls(runtime: Runtime, caller: Caller, run_id: str) -> list[OpenQuestion]:
    """Return the calls of a run that its client is to execute."""
    found = await runs.waiting.perform(runtime, caller, run_id)
    return [one for one in found if one.reason == "client_call" and one.run_id == run_id]


async def find_rest(runtime: Runtime, caller: Caller, run_id: str, calls: set[str]) -> int:
    """Return the number of the event with which a run rested to wait for these calls."""
    last, asked = 0, False
    async for event in runs.events.perform(runtime, caller, run_id):
        if isinstance(fact := event.decode(), ToolParked):
            asked = asked or fact.call_id in calls
        if event.kind == "run.parked" and asked:
            return event.session_seq
        last = event.session_seq
    return last


def describe_question(question: OpenQuestion) -> str:
    """Return a question of an agent as text, for clients that know no questions."""
    asked = question.request.get("questions")
    lines: list[str] = []
    for one in asked if isinstance(asked, list) else ():
        lines.append(str(one.get("question", "")))
        lines += [f"- {option.get('label', '')}" for option in one.get("options") or ()]
    return "\n".join(lines)


def raise_unless_answered(result: AgentResult) -> None:
    """Return if a run has completed or waits.

    Raises:
        RunFailed: it failed.
        BadRequest: it was cancelled.
    """
    result.raise_if_failed()
    if result.status == "cancelled":
        raise BadRequest(
            f"the run was cancelled: {result.metadata.get('reason', '')}", "", "cancelled", 409
        )


__all__ = [
    "AskedRun",
    "answer_calls",
    "describe_question",
    "end_with_message",
    "find_rest",
    "list_client_calls",
    "raise_unless_answered",
]
