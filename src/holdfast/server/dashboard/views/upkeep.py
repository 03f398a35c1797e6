"""Workers, audit, settings and keys: for who keeps the server running."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.dispatch import DeadLetter
from holdfast.errors import NotFound
from holdfast.identity import ROLES
from holdfast.operations import audit, keys, workers
from holdfast.server.dashboard.asks import Ask, GoTo, Shown, Streamed
from holdfast.server.dashboard.listing import (
    FormAction,
    FormField,
    ListRow,
    PageListing,
    make_badge,
    make_code,
    make_lines,
    make_link,
    make_pre,
    show_listing,
)
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import Markup, format_ago, shorten_id
from holdfast.server.http import ServerResponse
from holdfast.server.streams import send_download
from holdfast.settings import list_rows

_MOST_LINES: Final = 100
_MOST_EXPORTED: Final = 1_000
"""Lines of the audit trail that are read at once."""
_MOST_LETTERS: Final = 50


async def _show_workers(ask: Ask) -> Shown:
    rows = [
        ListRow(
            cells=(
                make_lines(one.name, f"{one.host}, process {one.process}"),
                f"{len(one.sessions)} of {one.concurrency}",
                _link_sessions(ask, one.sessions),
                format_ago(one.time_started),
                format_ago(one.time_seen),
            )
        )
        for one in await ask.perform(workers.list_)
    ]
    dead = await ask.perform(workers.list_dead)
    return show_listing(
        ask,
        PageListing(
            title="Workers",
            about="Processes that take up what waits in sessions; each holds those it works on.",
            columns=("Worker", "Busy", "Holds", "Since", "Seen"),
            rows=rows,
            empty="No worker of its own: the server executes runs itself",
            next_step="Start as many as you want, here or on other machines that share the store: "
            "`holdfast worker`.",
            blocks=[("Given up", _show_dead(ask, dead))] if dead else [],
            forms=[
                (
                    f"Try {one.session_id} again",
                    FormAction(
                        label="Try again",
                        address=ask.link("workers", str(one.id), "retry"),
                        scope="storage:admin",
                    ),
                )
                for one in dead[:_MOST_LETTERS]
            ],
        ),
    )


def _link_sessions(ask: Ask, names: Sequence[str]) -> Markup:
    links = [make_link(ask.link("sessions", one), shorten_id(one)) for one in names[:10]]
    more = [Markup("… {} more").format(len(names) - 10)] if len(names) > 10 else []
    return Markup(" ").join([*links, *more])


def _show_dead(ask: Ask, dead: Sequence[DeadLetter]) -> Markup:
    """Return the wake-ups that no worker takes any more: they wait for a person."""
    lines = [
        Markup("<li>{}: failed {} times, {} {}</li>").format(
            make_link(ask.link("sessions", one.session_id), shorten_id(one.session_id)),
            one.failures,
            make_code(one.error) if one.error else "workers died of it",
            format_ago(one.time),
        )
        for one in dead[:_MOST_LETTERS]
    ]
    return Markup("<ul>{}</ul>").format(Markup("").join(lines))


async def _retry_letter(ask: Ask) -> Shown:
    number = ask.words["letter_id"]
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise NotFound(kind="dead letter", value=number[:40])
    await ask.perform(workers.retry, int(number))
    return GoTo(ask.link("workers"), "retried")


async def _show_audit(ask: Ask) -> Shown:
    action, actor = ask.query.get("action", ""), ask.query.get("actor", "")
    after = ask.query.get("after", "0")
    found = await ask.perform(
        audit.list_,
        after=int(after) if after.isdigit() and len(after) < 16 else 0,
        limit=_MOST_LINES,
        action=action,
        actor=actor,
    )
    blocks: list[tuple[str, Any]] = []
    if "verify" in ask.query:
        wrong = await ask.perform(audit.verify)
        trail = await ask.perform(audit.verify_trail)
        lines = [f"{one.session_id} {one.session_seq}: {one.problem}" for one in wrong]
        lines += [f"{one.place} {one.seq}: {one.problem}" for one in trail]
        word = make_badge("failed" if lines else "ok")
        told = "\n".join(lines) or "Every chain is whole, and the trail says what the journal says."
        blocks.append(("Verification", word + make_pre(told)))
    rows = [
        ListRow(
            cells=(
                make_lines(one.action, one.kind),
                one.actor,
                one.tool,
                make_badge(one.outcome) if one.outcome else "",
                _show_time(one.time) + make_lines("", f"event {one.seq}"),
            )
        )
        for one in found
    ]
    forms = [
        (
            "Verify all chains",
            FormAction(
                label="Verify",
                address=ask.link("audit"),
                scope="audit:read",
                method="get",
                hidden={"verify": "1"},
            ),
        ),
        (
            "All lines that fit, as JSON",
            FormAction(
                label="Export",
                address=ask.link("audit", "export"),
                scope="audit:read",
                method="get",
                hidden={"action": action, "actor": actor},
            ),
        ),
        (
            "Heads of all chains, to be kept elsewhere",
            FormAction(
                label="Download heads",
                address=ask.link("audit", "heads"),
                scope="audit:read",
                method="get",
            ),
        ),
    ]
    more = ask.link("audit", action=action, actor=actor, after=str(found[-1].seq)) if found else ""
    return show_listing(
        ask,
        PageListing(
            title="Audit",
            about="Who did what, in order; each line is chained to the one before it.",
            filters=[
                FormField(name="action", label="Action", value=action),
                FormField(name="actor", label="Actor", value=actor),
            ],
            blocks=blocks,
            columns=("Action", "Actor", "Tool", "Outcome", "When"),
            rows=rows,
            empty="Nothing fits",
            older=more if len(found) == _MOST_LINES else "",
            forms=forms,
        ),
    )


def _show_time(text: str) -> Markup:
    """Return a time of the trail as an age; one that is none is shown as it is."""
    try:
        return format_ago(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return Markup("{}").format(text)


async def _export_audit(ask: Ask) -> Shown:
    """Send all lines that fit the filter as JSON, one each, in bounded memory."""
    assert ask.send is not None
    ask.caller.check("audit:read")
    headers = [(b"content-disposition", b'attachment; filename="audit.jsonl"')]
    await send_download(
        _iterate_audit(ask),
        ask.request,
        ask.send,
        headers=headers,
        media_type="application/x-ndjson",
    )
    return Streamed()


async def _iterate_audit(ask: Ask) -> AsyncGenerator[bytes, None]:
    after = 0
    match = {"action": ask.query.get("action", ""), "actor": ask.query.get("actor", "")}
    while found := await ask.perform(audit.list_, after=after, limit=_MOST_EXPORTED, **match):
        yield b"".join([msgspec.json.encode(one) + b"\n" for one in found])
        after = found[-1].seq


async def _load_heads(ask: Ask) -> Shown:
    data = await ask.perform(audit.heads)
    headers = (("content-disposition", 'attachment; filename="heads.json"'),)
    return ServerResponse(200, data, "application/json", headers)


async def _show_settings(ask: Ask) -> Shown:
    assert ask.app is not None
    # They are those of the process, so they concern its operator and no other tenant.
    ask.app.check_operator(ask.caller, "storage:read")
    settings = ask.app.settings
    rows: list[ListRow] = []
    words, is_own = ask.query.get("q", "").strip(), ask.query.get("set") == "set"
    for one in list_rows(settings, ask.app.setting_sources):
        is_default = one["source"] == "default"
        origin: object = "not known"
        if words.casefold() not in str(one["key"]).casefold() or (is_own and is_default):
            continue
        if one["source"]:
            origin = "default" if is_default else make_code(one["source"])
        rows.append(ListRow(cells=(make_code(one["key"]), make_code(one["value"]), origin)))
    return show_listing(
        ask,
        PageListing(
            title="Settings",
            about="As this process uses them, and where each value was found; secrets are hidden.",
            filters=[
                FormField(name="q", label="Name", value=words),
                FormField(
                    name="set", label="Which", options=("", "set"), value="set" if is_own else ""
                ),
            ],
            columns=("Setting", "Value", "Origin"),
            rows=rows,
            empty="No setting fits",
        ),
    )


async def _list_keys(ask: Ask, secret: str = "") -> Shown:
    rows = []
    for one in await ask.perform(keys.list_):
        state = "revoked" if one.revoked_at else "active"
        actions = (
            FormAction(
                label="Rotate",
                address=ask.link("keys", one.id, "rotate"),
                scope="keys:admin",
                confirm="Make a new key in its place? The old one ends at once.",
            ),
            FormAction(
                label="Revoke",
                address=ask.link("keys", one.id, "revoke"),
                scope="keys:admin",
                confirm="End this key at once and for good?",
                is_danger=True,
            ),
        )
        rows.append(
            ListRow(
                cells=(
                    make_lines(one.name, f"{one.prefix}… · {one.subject}"),
                    make_badge(state),
                    ", ".join((*one.roles, *one.scopes)),
                    format_ago(one.created_at),
                    format_ago(one.last_used_at),
                ),
                actions=() if one.revoked_at else actions,
            )
        )
    blocks: list[tuple[str, Any]] = []
    if secret:
        told = Markup("<p>Shown this once, and kept nowhere:</p>")
        blocks.append(("The new key", told + make_pre(secret)))
    create = FormAction(
        label="Create",
        address=ask.link("keys", "create"),
        scope="keys:admin",
        fields=[
            FormField(name="name", label="Name", is_required=True),
            FormField(name="role", label="Role", options=tuple(ROLES)),
            FormField(name="subject", label="In whose name (empty: the key's own)"),
            FormField(name="days", label="Days until it expires (empty: never)", kind="number"),
        ],
    )
    return show_listing(
        ask,
        PageListing(
            title="Keys",
            blocks=blocks,
            columns=("Key", "State", "Rights", "Made", "Used"),
            rows=rows,
            empty="No key yet",
            next_step="Give each person and program one of their own.",
            forms=[("Make a key", create)],
            place="keys",
        ),
    )


async def _create_key(ask: Ask) -> Shown:
    days = ask.form.get("days", "").strip()
    made = await ask.perform(
        keys.create,
        ask.form.get("name", ""),
        roles=[ask.form.get("role", "")],
        subject=ask.form.get("subject", "").strip(),
        ttl_s=float(days) * 86_400 if days.isdigit() else None,
    )
    return await _list_keys(ask, made.secret)


async def _rotate_key(ask: Ask) -> Shown:
    made = await ask.perform(keys.rotate, ask.words["key_id"])
    return await _list_keys(ask, made.secret)


async def _revoke_key(ask: Ask) -> Shown:
    await ask.perform(keys.revoke, ask.words["key_id"])
    return GoTo(ask.link("keys"), "revoked")


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "workers", _show_workers)
    routes.add("POST", "workers/{letter_id}/retry", _retry_letter)
    routes.add("GET", "audit", _show_audit)
    routes.add("GET", "audit/heads", _load_heads)
    routes.add("GET", "audit/export", _export_audit)
    routes.add("GET", "settings", _show_settings)
    routes.add("GET", "keys", _list_keys)
    routes.add("POST", "keys/create", _create_key)
    routes.add("POST", "keys/{key_id}/rotate", _rotate_key)
    routes.add("POST", "keys/{key_id}/revoke", _revoke_key)


__all__ = ["add_to"]
