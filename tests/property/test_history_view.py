"""Whatever a conversation looks like, its view is well-formed, and remembering changes nothing."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.context import HistoryView
from holdfast.messages import CompactionPart, GrowingMessages, Message, TextPart, ToolPart

STATES = st.sampled_from(["pending", "running", "completed", "error"])


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Message], str]:
    size = draw(st.integers(1, 90))
    kinds = draw(st.lists(st.sampled_from("uuaattttsc"), min_size=size, max_size=size))
    messages: list[Message] = []
    for number, kind in enumerate(kinds):
        role = "user" if kind in "uc" else "assistant"
        parts: tuple[object, ...] = (TextPart(text=f"text {number}"),)
        if kind == "c":
            place = draw(st.integers(0, number))
            parts = (CompactionPart(summary="sum", up_to_message_id=f"m{place}"),)
        elif kind in "ts":
            parts = tuple(
                ToolPart(
                    call_id=f"c{number}-{n}",
                    tool="skill" if kind == "s" else "dump",
                    state=draw(STATES),  # type: ignore[arg-type]
                    output="x" * draw(st.sampled_from([3, 900])),
                    metadata={"skill": "s", "digest": "d"} if kind == "s" else {},
                )
                for n in range(draw(st.integers(1, 3)))
            )
        messages.append(Message(id=f"m{number}", session_id="ses", role=role, parts=parts))  # type: ignore[arg-type]
    pruned_to = draw(st.sampled_from(["", "gone", *[m.id for m in messages]]))
    return messages, pruned_to


@given(conversations())
def test_every_call_is_followed_by_its_result(case: tuple[list[Message], str]) -> None:
    messages, pruned_to = case
    shown = HistoryView().show(messages, pruned_to=pruned_to)
    waiting: list[str] = []
    for message in shown:
        calls = [part.call_id for part in message.tool_calls]
        if message.role == "tool":
            assert calls == waiting
            assert all(part.state in ("completed", "error") for part in message.tool_calls)
            waiting = []
        else:
            assert not waiting
            waiting = calls
            assert all(part.state == "pending" for part in message.tool_calls)
    assert not waiting
    assert sum(isinstance(m.parts[0], CompactionPart) for m in shown) <= 1


@given(conversations(), st.integers(1, 8))
def test_view_that_grows_equals_a_view_made_at_once(
    case: tuple[list[Message], str], step: int
) -> None:
    messages, pruned_to = case
    view = HistoryView()
    for end in range(1, len(messages), step):
        view.show(messages[:end], pruned_to=pruned_to)
        changed = msgspec.structs.replace(messages[end - 1], parts=(TextPart(text="other"),))
        view.show([*messages[: end - 1], changed], pruned_to=pruned_to)
    assert view.show(messages, pruned_to=pruned_to) == HistoryView().show(
        messages, pruned_to=pruned_to
    )


@given(conversations(), st.integers(0, 90), st.integers(1, 8))
def test_view_of_a_shared_past_equals_a_view_of_the_whole(
    case: tuple[list[Message], str], count: int, step: int
) -> None:
    messages, pruned_to = case
    view, base = HistoryView(), tuple(messages[:count])
    for end in range(len(base), len(messages) + 1, step):
        growing = GrowingMessages(base, messages[count:end])
        whole = HistoryView().show(messages[:end], pruned_to=pruned_to)
        assert view.show(growing, pruned_to=pruned_to) == whole
        growing.append(msgspec.structs.replace(messages[0], parts=(TextPart(text="other"),)))
        whole = HistoryView().show(list(growing), pruned_to=pruned_to)
        assert view.show(growing, pruned_to=pruned_to) == whole
