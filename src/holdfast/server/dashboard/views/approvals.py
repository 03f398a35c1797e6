"""The inbox: what waits for a person, with everything that they need to answer it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, UsageError
from holdfast.operations import approvals, runs
from holdfast.runtime import ApprovalDetails, OpenQuestion
from holdfast.server.dashboard.asks import Ask, GoTo, Shown, ShownPage
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.rows import find_title

_MOST: Final = 50
_VERDICTS: Final = ("happened", "not_happened", "abort")


class Waiting(msgspec.Struct, frozen=True):
    """One thing that waits, with the request of the person who began its run."""

    question: OpenQuestion
    details: ApprovalDetails | None
    title: str


async def read_waiting(ask: Ask, session_id: str = "") -> list[Waiting]:
    """Return what waits for a person, consent first; of one session if it is named."""
    found = []
    for question in await ask.perform(approvals.questions):
        if session_id and question.session_id != session_id:
            continue
        details, title = None, ""
        try:
            if question.reason == "approval":
                details = await ask.perform(approvals.get, question.id)
            if ask.may("runs:read"):
                title = await find_title(ask, await ask.perform(runs.get, question.run_id))
        except HoldfastError:
            pass  # it was answered a moment ago, or is not for this caller
        found.append(Waiting(question, details, title))
        if len(found) >= _MOST:
            break
    return found


async def _show(ask: Ask) -> Shown:
    waits = await read_waiting(ask)
    past = await ask.perform(approvals.list_, status=None, limit=1000)
    ended = [one for one in past if one.status != "open"]
    values = {"waits": waits, "past": list(reversed(ended))[:20], "live": "topic=approvals"}
    return ShownPage("approvals.html", values)


async def _approve(ask: Ask) -> Shown:
    """Consent: as it was asked, with other arguments, or for always."""
    given: dict[str, Any] = {"by": ask.by, "reason": ask.form.get("reason", "")}
    if ask.form.get("always"):
        given["always"] = True
    changed = ask.form.get("arguments", "").strip()
    if changed:
        given["arguments"] = _read_arguments(changed)
    await ask.perform(approvals.approve, ask.words["approval_id"], **given)
    return _go_back(ask, "approved-always" if ask.form.get("always") else "approved")


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(detail=f"The arguments are no JSON object: {error}") from error


async def _deny(ask: Ask) -> Shown:
    reason = ask.form.get("reason", "")
    await ask.perform(approvals.deny, ask.words["approval_id"], by=ask.by, reason=reason)
    return _go_back(ask, "denied")


async def _answer(ask: Ask) -> Shown:
    """Answer a question: its chosen options, or own words."""
    session_id, call_id = ask.words["session_id"], ask.words["call_id"]
    own = ask.form.get("own", "").strip()
    chosen = [value for name, value in ask.fields if name.startswith("answer") and value]
    words = own or "\n".join(chosen)
    if not words:
        raise UsageError(detail="Choose an option, or write an answer.")
    await ask.perform(approvals.answer, session_id, call_id, words, by=ask.by)
    return _go_back(ask, "answered")


async def _decide(ask: Ask) -> Shown:
    """Say what became of a call whose outcome a crash left unknown."""
    verdict = ask.form.get("verdict", "")
    if verdict not in _VERDICTS:
        raise UsageError(detail=f"A verdict is one of {', '.join(_VERDICTS)}.")
    await ask.perform(
        approvals.decide_outcome,
        ask.words["session_id"],
        ask.words["call_id"],
        verdict,  # type: ignore[arg-type] # checked above
        by=ask.by,
        result=ask.form.get("result", ""),
    )
    return _go_back(ask, "answered")


def _go_back(ask: Ask, note: str) -> GoTo:
    """Return to the conversation that it was answered in, or to the inbox."""
    session_id = ask.form.get("chat", "")
    return GoTo(ask.link("chat", session_id) if session_id else ask.link("approvals"), note)


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "approvals", _show)
    routes.add("POST", "approvals/{approval_id}/approve", _approve)
    routes.add("POST", "approvals/{approval_id}/deny", _deny)
    routes.add("POST", "questions/{session_id}/{call_id}/answer", _answer)
    routes.add("POST", "questions/{session_id}/{call_id}/decide", _decide)


__all__ = ["Waiting", "add_to", "read_waiting"]
