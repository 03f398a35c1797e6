from __future__ import annotations

import struct
import sys
from pathlib import Path

import msgspec
import pytest
from tiny_gguf import write_tiny_gguf

from holdfast.errors import LLMError, MissingExtra, UsageError
from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.gguf import GgufModel, check_gguf
from holdfast.providers.gguf_header import read_trained_window
from holdfast.providers.json_schema import fits
from holdfast.providers.model import Finished, ModelRequest
from holdfast.providers.tool_modes import ToolModeModel
from holdfast.providers.wire import HttpTransport

GOAL = Message(id="m", session_id="s", role="user", parts=(TextPart(text="Hi"),))


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    return path


def test_a_missing_extra_is_named(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra) as raised:
        GgufModel(broken, HttpTransport())
    assert "holdfast[local]" in raised.value.hint


def test_a_file_that_is_no_model_is_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        check_gguf(tmp_path / "none.gguf")
    with pytest.raises(UsageError):
        check_gguf(tmp_path)
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(UsageError):
        GgufModel(tmp_path / "text.gguf", HttpTransport())


async def test_a_damaged_file_is_an_error_of_the_model(broken: Path) -> None:
    model = GgufModel(broken, HttpTransport())
    with pytest.raises(LLMError) as raised:
        async for _ in model.stream(ModelRequest(messages=(GOAL,))):
            pass
    assert "broken.gguf" in str(raised.value)
    assert model.count_tokens(ModelRequest(messages=(GOAL,))) > 0
    await model.close()


async def test_a_closed_model_refuses_to_be_asked(broken: Path) -> None:
    model = GgufModel(broken, HttpTransport())
    await model.close()
    with pytest.raises(UsageError):
        async for _ in model.stream(ModelRequest(messages=(GOAL,))):
            pass


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(*values: bytes, count: int | None = None) -> bytes:
    number = len(values) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", 3, 7, number) + b"".join(values)


NAME = text("general.architecture") + struct.pack("<I", 8) + text("llama")
TAGS = text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + text("one") + text("two")
SCORES = text("x.scores") + struct.pack("<IIQ", 9, 6, 3) + bytes(12)
FLAG = text("x.flag") + struct.pack("<IB", 7, 1)
WINDOW = text("llama.context_length") + struct.pack("<II", 4, 32_768)


def test_the_window_is_found_among_other_values(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(NAME, TAGS, SCORES, FLAG, WINDOW))
    assert read_trained_window(path) == 32_768


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"GGUF" + bytes(100),
        header(NAME, TAGS),
        header(NAME, WINDOW)[:-2],
        header(WINDOW[:-4] + bytes(4)),
        header(text("a") + struct.pack("<I", 99), WINDOW),
        header(text("a") + struct.pack("<IIQ", 9, 9, 1), WINDOW),
        header(text("a") + struct.pack("<IIQ", 9, 8, 2**63), WINDOW),
        header(text("a") + struct.pack("<IQ", 8, 2**64 - 1), WINDOW),
        header(struct.pack("<Q", 2**62), WINDOW),
        header(NAME, count=2**63),
    ],
)
def test_a_strange_header_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert read_trained_window(path) is None


def test_a_model_gets_its_own_window_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(NAME, WINDOW))
    assert GgufModel(path, HttpTransport()).info.context_window == 16_384
    assert GgufModel(path, HttpTransport(), context_window=32_000).info.context_window == 32_000
    path.write_bytes(header(NAME, WINDOW[:-4] + struct.pack("<I", 2_048)))
    assert GgufModel(path, HttpTransport()).info.context_window == 2_048


async def test_even_random_numbers_call_a_tool_because_the_schema_lets_nothing_else_through(
    tmp_path: Path,
) -> None:
    tool = ToolSpec(
        name="add",
        description="Add two numbers.",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    )
    other = msgspec.structs.replace(tool, name="subtract")
    transport = HttpTransport()
    model = GgufModel(write_tiny_gguf(tmp_path / "tiny.gguf"), transport, context_window=2048)
    request = ModelRequest(
        messages=(GOAL,),
        tools=(tool, other),
        tool_choice="required",
        max_output_tokens=400,
        temperature=0,
    )
    deltas = [delta async for delta in ToolModeModel(model, "json_schema").stream(request)]
    assert isinstance(deltas[-1], Finished)
    [call] = deltas[-1].message.tool_calls
    assert call.tool in ("add", "subtract")
    assert fits(call.input, tool.parameters)
    url = f"{model._server.listening_address}/v1/chat/completions"
    async with transport.session().post(url, json={"messages": []}) as without_key:
        assert without_key.status == 401
    await model.close()
    await transport.close()
