"""Images, files and audio in messages, and histories from elsewhere."""

from __future__ import annotations

import json
import wave
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LLMInputUnsupported, UsageError
from holdfast.messages import (
    Audio,
    File,
    FilePart,
    Image,
    Message,
    TextPart,
    ToolPart,
    attach_file,
    check_history,
    dump_messages,
    find_input_kind,
    from_openai,
    keep_last_turns,
    load_messages,
    make_assistant_message,
    make_user_content,
    make_user_message,
    to_openai,
)
from holdfast.messages.media import LARGEST_MEDIA, recognise_media_type
from holdfast.providers import ModelInfo

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16


def sound() -> bytes:
    """A very short WAV file."""
    data = BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(b"\x80" * 8)
    return data.getvalue()


def test_an_image_comes_by_path_bytes_or_address(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    by_path = Image(tmp_path / "cat.png").to_part()
    assert (by_path.media_type, by_path.name, by_path.data) == ("image/png", "cat.png", PNG)
    assert Image(str(tmp_path / "cat.png")).to_part() == by_path
    assert Image(PNG).to_part() == FilePart(media_type="image/png", data=PNG)
    by_address = Image("https://example.org/cat.jpeg?size=2").to_part()
    assert (by_address.media_type, by_address.data) == ("image/jpeg", None)
    assert Image("data:image/webp;base64,AAAA").to_part().media_type == "image/webp"
    assert File("artifact:art_1").to_part().url == "artifact:art_1"


@pytest.mark.parametrize(
    ("data", "name", "kind"),
    [
        (PNG, "", "image/png"),
        (PNG, "wrong.pdf", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image/jpeg"),
        (b"RIFF0000WEBP", "", "image/webp"),
        (sound(), "", "audio/wav"),
        (b"%PDF-1.7", "", "application/pdf"),
        (b"a,b\n", "table.csv", "text/csv"),
        (b"hello", "", "text/plain"),
        ("grüße".encode() * 800, "", "text/plain"),
        (b"\xc3\x28" * 50, "", "application/octet-stream"),
        (b"a\x00b", "", "application/octet-stream"),
    ],
)
def test_the_type_follows_from_the_content_before_the_name(data, name, kind) -> None:
    assert recognise_media_type(data, name) == kind


@given(st.binary(max_size=64), st.text(max_size=8))
def test_any_content_has_a_type(data: bytes, name: str) -> None:
    assert "/" in recognise_media_type(data, name)


def test_what_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"hello")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(LARGEST_MEDIA + 1)
    for wrong in (
        lambda: Image(tmp_path / "none.png").to_part(),
        lambda: Image(tmp_path).to_part(),
        lambda: Image(tmp_path / "empty").to_part(),
        lambda: File(tmp_path / "huge").to_part(),
        lambda: Image(tmp_path / "notes.txt").to_part(),
        lambda: Audio(PNG).to_part(),
        lambda: Audio("https://example.org/cat.png").to_part(),
        lambda: Image(5),  # type: ignore[arg-type]
        lambda: Image(b""),
        lambda: make_user_content([]),
        lambda: make_user_content([5]),  # type: ignore[list-item]
        lambda: make_user_content(5),  # type: ignore[arg-type]
        lambda: make_user_content(b"bytes"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError):
            wrong()


def test_content_keeps_its_order(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"hello")
    part = attach_file(tmp_path / "notes.txt")
    assert (part.media_type, part.name, find_input_kind(part)) == (
        "text/plain",
        "notes.txt",
        "text",
    )
    parts = make_user_content(["Compare", Image(PNG), part, TextPart(text="now")])
    assert [type(one).__name__ for one in parts] == ["TextPart", "FilePart", "FilePart", "TextPart"]
    assert make_user_content("plain") == "plain"
    assert make_user_content(Image(PNG)) == (Image(PNG).to_part(),)  # type: ignore[arg-type]
    assert repr(Image(PNG)) == "Image('24 bytes')"


def test_a_model_that_takes_text_only_refuses_the_rest_and_says_so() -> None:
    info = ModelInfo(provider="house", model="words", inputs=("text",))
    info.check_inputs([TextPart(text="a"), FilePart(media_type="text/plain", data=b"a")])
    for part in (Image(PNG), Audio(sound()), File(b"%PDF-1.7")):
        with pytest.raises(LLMInputUnsupported) as caught:
            info.check_inputs([part.to_part()])
        assert "words takes no" in str(caught.value)
        assert "model" in caught.value.hint


# --- histories ------------------------------------------------------------------------


def called(state: str = "completed") -> Message:
    call = ToolPart(call_id="c1", tool="add", input={"a": 1}, output="2", state=state)
    return Message(id="m", session_id="s", role="assistant", parts=(call,))


def test_messages_go_to_json_and_back() -> None:
    history = (make_user_message(["Look", Image(PNG)]), make_assistant_message("A cat."), called())
    assert load_messages(dump_messages(history)) == history
    for wrong in (b"{}", b"\xff", b'[{"role": "king"}]'):
        with pytest.raises(UsageError):
            load_messages(wrong)


def test_the_last_turns_are_kept_whole() -> None:
    first = [make_user_message("one"), called(), make_assistant_message("two")]
    second = [make_user_message("three"), make_assistant_message("four")]
    assert list(keep_last_turns([*first, *second], 1)) == second
    assert list(keep_last_turns([*first, *second], 9)) == [*first, *second]
    with pytest.raises(UsageError):
        keep_last_turns(first, 0)


def test_a_history_of_the_chat_api_comes_and_goes() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    given = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1+1?"}]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "Two."},
    ]
    messages = from_openai(given)
    assert [message.role for message in messages] == ["system", "user", "assistant", "assistant"]
    assert messages[2].tool_calls[0].output == "2"
    again = to_openai(messages)
    assert [one["role"] for one in again] == [one["role"] for one in given]
    assert json.loads(again[2]["tool_calls"][0]["function"]["arguments"]) == {"a": 1}
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    [seen] = from_openai([{"role": "user", "content": [picture]}])
    assert isinstance(seen.parts[0], FilePart)
    assert from_openai([{"role": "assistant", "content": None}]) == ()


@pytest.mark.parametrize(
    "given",
    [
        [{"role": "king", "content": "x"}],
        [{"role": "tool", "tool_call_id": "c9", "content": "x"}],
        [{"role": "user", "content": [{"type": "video"}]}],
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "a"}}]}],
        [
            {
                "role": "assistant",
                "tool_calls": [{"id": "c", "function": {"name": "a", "arguments": "["}}],
            }
        ],
    ],
)
def test_a_history_of_another_form_is_refused(given) -> None:
    with pytest.raises(UsageError):
        from_openai(given)


def test_calls_without_results_cannot_begin_a_session() -> None:
    check_history([called()])
    for wrong in ([called("pending")], ["text"]):
        with pytest.raises(UsageError):
            check_history(wrong)
