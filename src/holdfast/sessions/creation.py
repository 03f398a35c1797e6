"""A session that does not exist yet: checked, complete, and stored with its first facts."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Sequence

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject, sha256_hex
from holdfast.errors import UsageError
from holdfast.ids import check_id, new_id
from holdfast.journal.envelope import SYSTEM_SESSION
from holdfast.sessions import events as facts
from holdfast.sessions.model import PermissionRule, Session
from holdfast.sessions.projections import session_of

LONGEST_TITLE = 500
_LARGEST_METADATA = 64 * 1024


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that somebody is about to begin, alone or together with its first run."""

    id: str
    created: facts.SessionCreated

    def named(self, title: str, session_id: str) -> NewSession:
        """Return a session that begins like this one, with a title and an id of its own.

        Raises:
            UsageError: title or id would not do.
        """
        name = checked_name(session_id)
        slug = slug_of(checked_title(title), name)
        return NewSession(
            id=name, created=msgspec.structs.replace(self.created, title=title, slug=slug)
        )

    def as_of(self, time: float) -> Session:
        """Return the session as it is if it begins at this time."""
        return session_of(self.id, self.created, time)


def new_session(
    title: str,
    *,
    project_id: str = "",
    directory: str | os.PathLike[str] = ".",
    parent_id: str = "",
    permission: Sequence[PermissionRule] = (),
    metadata: JsonObject | None = None,
    expires_at: float = 0.0,
    session_id: str = "",
) -> NewSession:
    """Return a session that can be begun; nothing is stored.

    `parent_id` is taken as it is: whoever gives it knows that session.

    Raises:
        UsageError: title, metadata or id would not do.
    """
    name = checked_name(session_id) if session_id else new_id("ses")
    place = os.path.abspath(directory)
    created = facts.SessionCreated(
        slug=slug_of(checked_title(title), name),
        project_id=project_id or f"prj_{sha256_hex(os.fsencode(place))[:16]}",
        directory=place,
        title=title,
        version=__version__,
        parent_id=parent_id,
        permission=tuple(permission),
        expires_at=expires_at,
        metadata=checked_metadata(metadata or {}),
    )
    return NewSession(id=name, created=created)


def checked_name(session_id: str) -> str:
    """Return an id that a session of somebody's own may have."""
    if check_id(session_id, "session") == SYSTEM_SESSION:
        raise UsageError(detail=f"The id {SYSTEM_SESSION!r} belongs to Holdfast itself.")
    return session_id


def slug_of(title: str, session_id: str) -> str:
    """Make a short readable name that is unique by the end of the session's id."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-")
    return f"{words or 'session'}-{session_id[-6:]}".replace("_", "-")


def checked_title(title: str) -> str:
    """Return a title that a session may have."""
    if not title.strip() or len(title) > LONGEST_TITLE:
        raise UsageError(detail=f"A session needs a title of 1 to {LONGEST_TITLE} characters.")
    return title


def checked_metadata(metadata: JsonObject) -> JsonObject:
    """Return a copy of metadata that can be kept with a session."""
    if not metadata:
        return {}
    try:
        written = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(detail=f"Metadata must be JSON: {error}") from error
    size = len(written.encode())
    if size > _LARGEST_METADATA:
        raise UsageError(
            detail=f"Metadata takes {size} bytes; at most {_LARGEST_METADATA} are kept with a "
            "session. Keep large content in a message or a file."
        )
    copy: JsonObject = json.loads(written)
    return copy
