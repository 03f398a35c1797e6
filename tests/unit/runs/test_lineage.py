"""Who started a session is read once from each object, and never from another one."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.runs.lineage import LINEAGE_KEY, Lineage, read_lineage
from holdfast.sessions import Session


def session(**metadata: object) -> Session:
    return Session(
        id="ses_1",
        slug="s",
        project_id="p",
        directory="/",
        title="t",
        version="1",
        time_created=0.0,
        time_updated=0.0,
        metadata=metadata,
    )


def below(starter: str) -> Session:
    return session(**Lineage(session_id=starter, path=("boss",)).to_metadata())


def test_a_session_keeps_what_was_read_from_it_and_is_the_same_session() -> None:
    one = below("ses_above")
    lineage = read_lineage(one)
    assert lineage is not None and lineage.session_id == "ses_above"
    assert read_lineage(one) is lineage
    assert one == below("ses_above")
    assert msgspec.json.encode(one) == msgspec.json.encode(below("ses_above"))


def test_a_session_that_was_changed_is_read_anew() -> None:
    one = below("ses_above")
    assert read_lineage(one) is not None
    moved = msgspec.structs.replace(one, metadata=below("ses_other").metadata)
    found = read_lineage(moved)
    assert found is not None and found.session_id == "ses_other"


def test_whoever_was_started_by_a_person_has_none() -> None:
    assert read_lineage(session()) is None
    assert read_lineage(session(**{LINEAGE_KEY: None})) is None


def test_what_cannot_be_read_is_refused_each_time() -> None:
    broken = session(**{LINEAGE_KEY: {"path": "boss"}})
    for _ in range(2):
        with pytest.raises(UsageError):
            read_lineage(broken)
