"""A session keeps what was worked out from it, and stays the session that it is."""

from __future__ import annotations

import msgspec

from holdfast.sessions import Session


def test_what_follows_from_a_session_is_worked_out_once_for_each_object(session: Session) -> None:
    asked: list[str] = []

    def shout(given: Session) -> str:
        asked.append(given.title)
        return given.title.upper()

    encoded = msgspec.json.encode(session)
    assert [session.derived("shout", shout) for _ in range(2)] == ["MATH HELP"] * 2
    assert asked == ["Math Help"]
    assert msgspec.json.encode(session) == encoded
    renamed = msgspec.structs.replace(session, title="Other")
    assert renamed.derived("shout", shout) == "OTHER"
    assert msgspec.structs.replace(renamed, title="Math Help") == session
