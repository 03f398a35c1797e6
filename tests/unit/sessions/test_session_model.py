"""A session keeps what was worked out from it, and stays the session that it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.sessions import Session, find_project_id, make_new_session


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


def test_a_session_begins_like_another_under_a_name_of_its_own() -> None:
    pattern = make_new_session(title="first", metadata={"kind": "child"}, owner="ann")
    named = pattern.named("Second one", "ses_of_its_own")
    assert (named.id, named.created.title) == ("ses_of_its_own", "Second one")
    assert named.created.slug.startswith("second-one-")
    assert (named.created.owner, named.created.metadata) == ("ann", {"kind": "child"})
    for title, session_id in (("x", "system"), ("x" * 100_000, "ses_other")):
        with pytest.raises(UsageError):
            pattern.named(title, session_id)


def test_the_project_of_a_folder_does_not_depend_on_how_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    project = find_project_id(".")
    assert project == find_project_id(tmp_path) == find_project_id(tmp_path / "src" / "..")
    assert project != find_project_id(tmp_path / "src")
