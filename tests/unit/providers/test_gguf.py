from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import LLMError, MissingExtra, UsageError
from holdfast.messages import Message, TextPart
from holdfast.providers.gguf import GgufModel, check_gguf
from holdfast.providers.model import ModelRequest
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
