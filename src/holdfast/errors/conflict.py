"""Another process moved first."""

from __future__ import annotations

from holdfast.errors.error import HoldfastError


class Conflict(HoldfastError):
    """Another process moved first."""

    code = "conflict"


class RequestUnderWay(Conflict):
    """The first request with this Idempotency-Key is being answered."""

    code = "request.under_way"
    is_retryable = True
    message = "The first request with this Idempotency-Key is being answered."
    next_step = "Send it again in a moment."


class RequestInDoubt(Conflict):
    """A crash came between a request and its answer, and it must not be done twice."""

    code = "request.in_doubt"
    message = "A crash came between the first request with this Idempotency-Key and its answer."
    next_step = "Look at what is there; if it was not done, send it with a new key."


class StaleWriter(Conflict):
    """The session grew since the caller looked; nothing was stored."""

    code = "journal.stale_writer"
    is_retryable = True
    message = "Session {session_id} is at {current}, not at {expected}."
    next_step = "Read what is new, then decide again."


class LeaseLost(Conflict):
    """Another process owns the session now; nothing was stored."""

    code = "journal.lease_lost"
    message = "Session {session_id} is at epoch {current}; this writer holds epoch {held}."
    next_step = "Stop writing; the run goes on where the newer lease is."


class ApprovalConflict(Conflict):
    """Another answer settled the approval first; this one changed nothing."""

    code = "approval.conflict"
    message = "{approval_id} was settled by another answer first: {by} said {verdict}."
    next_step = "Look at it with `holdfast approvals show`; what was decided holds."


class StateConflict(Conflict):
    """Somebody else changed the value since the caller read it; nothing was stored."""

    code = "state.conflict"
    is_retryable = True
    message = "{address} is at version {found}, not at {expected}."
    next_step = (
        "Read it again and decide again, call `update` with a function, or name a strategy: "
        "on_conflict='last-writer' or 'merge'."
    )


class FileChanged(Conflict):
    """A caller changed the file while it was being edited; it was left as they wrote it."""

    code = "file.changed"
    is_retryable = True
    message = "{path!r} was changed by another process in the meantime; nothing was written."
    next_step = "Read it again, then decide again."
