from __future__ import annotations

from pathlib import Path

from holdfast.cli.chat_input import ChatHistory, read_message


def test_what_no_locale_can_read_neither_breaks_the_message_nor_the_history(tmp_path: Path) -> None:
    class Typed:
        def read(self, prompt: str) -> str:
            return "gr\udcc3\udcbc\udcc3\udc9fe caf\udce9"

    assert read_message(Typed(), "> ") == "grüße caf\ufffd"
    history = ChatHistory(tmp_path / "history", str)
    history.add("caf\udce9")
    assert history.load() == ["caf\ufffd"]
