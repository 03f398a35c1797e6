"""What a view remembers does not grow with the conversations that it has shown."""

from __future__ import annotations

import gc
import tracemalloc

from holdfast.context.history import HistoryView, prepare_for_model
from holdfast.messages import Message, TextPart, ToolPart


def call_in(session_id: str, number: int) -> Message:
    part = ToolPart(
        id=f"prt_{session_id}_{number}",
        call_id=f"call_{session_id}_{number}",
        tool="read",
        state="completed",
        output="x" * 100,
    )
    return Message(
        id=f"msg_{session_id}_{number}", session_id=session_id, role="assistant", parts=(part,)
    )


def test_a_view_of_many_conversations_forgets_those_it_showed_first() -> None:
    view = HistoryView()
    for number in range(600):
        view.show([call_in(f"ses_{number}", 0)])
    tracemalloc.start()
    try:
        for number in range(600, 3_000):
            view.show([call_in(f"ses_{number}", 0)])
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The 256 newest took the places of others that were counted before: about 2 KB each.
    assert grown < 256 * 4_000


def test_many_long_conversations_are_not_all_remembered() -> None:
    view = HistoryView()
    tracemalloc.start()
    try:
        for number in range(40):
            view.show([call_in(f"ses_{number}", at) for at in range(500)])
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Some 4,096 messages and what is shown of them, not 20,000.
    assert grown < 6_000 * 2_000


def test_a_conversation_that_was_forgotten_is_shown_as_before() -> None:
    view = HistoryView()
    asked = Message(id="msg_q", session_id="ses_0", role="user", parts=(TextPart(text="Read."),))
    talk = [asked, call_in("ses_0", 1)]
    first = view.show(talk)
    for number in range(1, 600):
        view.show([call_in(f"ses_{number}", 0)])
    assert tuple(view.show(talk)) == tuple(first) == prepare_for_model(talk)
