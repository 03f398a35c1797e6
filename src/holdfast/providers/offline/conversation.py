"""The conversation as the offline model sees it: the goal, and what tools have answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.canonical import JsonObject
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.model import ModelRequest

_UNSAFE = compile_on_use(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


_REST = "\n---\n"


class OfflineStep(NamedTuple):
    """One tool call since the goal, with its answer as far as there is one."""

    tool: str
    input: JsonObject
    output: str
    error: str
    is_answered: bool

    @property
    def failure(self) -> str:
        """Why the call gave nothing; empty when it gave something."""
        if not self.is_answered:
            return "no answer came back"
        return self.error


class OfflineConversation(NamedTuple):
    """What a request holds, read once."""

    goal: str
    """What a person wrote last."""
    goal_id: str
    session_id: str
    steps: tuple[OfflineStep, ...]
    rounds: int
    """How often the model has called tools since the goal."""
    calls_before: int
    """Tool calls in the whole conversation, for ids that never meet."""

    @property
    def asked(self) -> str:
        """What is wanted: the goal up to a line `---`, behind which stands what goes with it."""
        return self.goal.partition(_REST)[0].strip()

    @property
    def context(self) -> str:
        """What goes with the goal, behind a line `---`."""
        return self.goal.partition(_REST)[2]


def read_conversation(request: ModelRequest) -> OfflineConversation:
    """Find the goal and the steps since.

    Only what a person wrote counts as a goal: nothing inside a tool's answer, a system
    text or a synthetic part can become one, whatever it says.
    """
    at, goal = _find_goal(request.messages)
    after = request.messages[at + 1 :]
    calls = [
        part for message in after if message.role == "assistant" for part in message.tool_calls
    ]
    answers = {
        part.call_id: part
        for message in after
        if message.role == "tool"
        for part in message.tool_calls
        if part.state in {"completed", "error"}
    }
    rounds = sum(message.role == "assistant" and bool(message.tool_calls) for message in after)
    return OfflineConversation(
        goal=goal,
        goal_id=request.messages[at].id if at >= 0 else "",
        session_id=request.messages[-1].session_id if request.messages else "",
        steps=tuple(_make_step(call, answers.get(call.call_id)) for call in calls),
        rounds=rounds,
        calls_before=sum(
            len(message.tool_calls) for message in request.messages if message.role == "assistant"
        ),
    )


def make_harmless(text: str) -> str:
    """Return foreign text without control characters and marks that reorder it."""
    return _UNSAFE.sub("", text)


def _find_goal(messages: Sequence[Message]) -> tuple[int, str]:
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role != "user":
            continue
        texts = [
            part.text
            for part in message.parts
            if isinstance(part, TextPart) and not part.is_synthetic
        ]
        if any(text.strip() for text in texts):
            return at, make_harmless("\n".join(texts)).strip()
    return -1, ""


def _make_step(call: ToolPart, answer: ToolPart | None) -> OfflineStep:
    if answer is None:
        return OfflineStep(call.tool, call.input, "", "", False)
    error = answer.error or ("the tool failed" if answer.state == "error" else "")
    return OfflineStep(call.tool, call.input, answer.output, error, True)
