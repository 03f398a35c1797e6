from __future__ import annotations

import pytest

from holdfast.cli.frame import Invocation
from holdfast.cli.screen import Screen
from holdfast.messages import Message, TextPart
from holdfast.providers.model import Delta, Finished, Restarted, TextDelta

WHOLE = Finished(Message(id="m", session_id="s", role="assistant", parts=(TextPart(text="whole"),)))
BROKEN: list[Delta] = [TextDelta("ha"), TextDelta("lf"), Restarted("llm.connection")]
ANEW: list[Delta] = [TextDelta("who"), TextDelta("le"), WHOLE]


def hear(deltas: list[Delta]) -> None:
    screen = Screen(Invocation())
    for delta in deltas:
        screen.hear(delta)


def test_a_file_gets_no_half_of_an_answer_that_began_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hear([*BROKEN, *ANEW, *ANEW])
    printed = capsys.readouterr()
    assert printed.out == "whole\nwhole\n"
    assert "llm.connection" in printed.err


def test_a_terminal_shows_each_piece_as_it_arrives(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    hear([TextDelta("ha"), TextDelta("lf")])
    assert capsys.readouterr().out == "half"
    hear([*BROKEN, *ANEW])
    assert capsys.readouterr().out == "half\nwhole\n"
