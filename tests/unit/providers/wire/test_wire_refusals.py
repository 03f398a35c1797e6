"""Refusals are told apart from answers, and citations stay with their text, on every wire."""

from __future__ import annotations

import msgspec
import pytest
from wire_kit import answer, ask, collect, user

from holdfast.messages import Citation, Message, ModelRefusal, TextPart
from holdfast.providers.model import TextDelta
from holdfast.providers.wire import WireModel
from holdfast.testing.fake_server import FakeServer, RawAnswer, Reply

HEARD = pytest.mark.parametrize("deltas", [True, False], ids=["heard", "quiet"])
LINKS = (
    Citation(
        kind="url_citation",
        title="Tides of Gdańsk",
        url="https://example.com/tides",
        start=3,
        end=9,
    ),
    Citation(kind="char_location", quote="High at noon.", details={"document_index": 0}),
)


@HEARD
async def test_a_refusal_is_one_and_not_an_empty_answer(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    why = "I cannot help with that, sorry. 🦀"
    server.answers.append(Reply(refusal=why))
    found = await collect(model, ask(), deltas=deltas)
    message = found[-1].message  # type: ignore[union-attr]
    assert message.refusal == ModelRefusal(text=why) and message.stop_reason == "filtered"
    # Models of OpenAI say it themselves; Anthropic says it about its model.
    assert message.text == ("" if wire == "anthropic" else why)
    if deltas:
        assert "".join(d.text for d in found if isinstance(d, TextDelta)) == message.text
    server.answers.append(Reply(text="Yes."))
    assert (await answer(model, deltas=deltas)).refusal is None


@HEARD
async def test_a_refusal_without_a_reason_is_one(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    server.answers.append(Reply(text="I was ab", refusal_category="cyber", refusal=""))
    message = await answer(model, deltas=deltas)
    expected = ModelRefusal(category="cyber") if wire == "anthropic" else None
    assert message.refusal == expected


@HEARD
async def test_citations_stay_with_their_text(
    model: WireModel, server: FakeServer, deltas: bool, wire: str
) -> None:
    server.answers.append(Reply(text="It is high at noon.", citations=LINKS))
    message = await answer(model, deltas=deltas)
    assert message.parts == (TextPart(text="It is high at noon.", citations=LINKS),)
    kept = msgspec.json.decode(msgspec.json.encode(message), type=Message)
    assert kept == message
    server.answers.append(Reply(text="ok"))
    await answer(model, ask(user(), message, user("And at dusk?")), deltas=deltas)
    assert b"example.com" not in server.requests[-1].body


async def test_what_is_no_citation_is_left_out(model: WireModel, server: FakeServer) -> None:
    odd: list[object] = [
        None,
        7,
        {},
        {"type": 3},
        {"type": "x", "start_index": 9, "end_index": 2, "title": 5, "url": None},
    ]
    bodies = {
        "chat": {"choices": [{"message": {"content": "Hi.", "annotations": odd}}]},
        "responses": {
            "status": "completed",
            "output": [
                {
                    "type": "message",
                    "content": [{"type": "output_text", "text": "Hi.", "annotations": odd}],
                }
            ],
        },
        "anthropic": {
            "content": [{"type": "text", "text": "Hi.", "citations": odd}],
            "stop_reason": "end_turn",
        },
    }
    body = msgspec.json.encode(bodies[model.endpoint.api])
    server.answers.append(RawAnswer(chunks=(body,), content_type="application/json"))
    [part] = (await answer(model, deltas=False)).parts
    assert isinstance(part, TextPart)
    assert part.citations == (Citation(kind="x", details={"title": 5}),)


@pytest.mark.parametrize("wire", ["responses"], indirect=True)
async def test_places_are_those_in_the_whole_text(model: WireModel, server: FakeServer) -> None:
    """A message of Responses may have several texts, each with places of its own."""
    note = {"type": "url_citation", "url": "https://example.com", "start_index": 0, "end_index": 2}
    texts = [
        {"type": "output_text", "text": text, "annotations": [note]} for text in ("One", "Two")
    ]
    output = [{"type": "message", "content": texts}]
    body = msgspec.json.encode({"status": "completed", "output": output})
    server.answers.append(RawAnswer(chunks=(body,), content_type="application/json"))
    [part] = (await answer(model, deltas=False)).parts
    assert isinstance(part, TextPart) and part.text == "OneTwo"
    assert [(one.start, one.end) for one in part.citations] == [(0, 2), (3, 5)]
