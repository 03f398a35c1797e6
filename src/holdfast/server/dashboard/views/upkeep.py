"""Workers, audit, settings and keys: for who keeps the server running."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.identity import ROLES
from holdfast.operations import audit, keys
from holdfast.server.dashboard.asks import Ask, GoTo, Shown
from holdfast.server.dashboard.listing import (
    FormAction,
    FormField,
    ListRow,
    PageListing,
    make_badge,
    make_code,
    make_lines,
    make_pre,
    show_listing,
)
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import Markup, format_ago
from holdfast.server.http import ServerResponse

_MOST_LINES: Final = 100


async def _show_workers(ask: Ask) -> Shown:
    ask.caller.check("storage:read")
    return show_listing(
        ask,
        PageListing(
            title="Workers",
            columns=("Worker", "State"),
            rows=[],
            empty="No fleet: this process does the work",
            next_step="Runs are executed by the server itself.",
        ),
    )


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
    for name, value in settings.model_dump(mode="json").items():
        if name == "secrets":
            continue
        standard = type(settings).model_fields[name].get_default(call_default_factory=True)
        before = standard.model_dump(mode="json") if hasattr(standard, "model_dump") else standard
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for part, one in parts:
            known = before.get(part) if isinstance(before, dict) else before
            origin = "default" if one == known else "set"
            key = f"{name}.{part}" if part else name
            rows.append(ListRow(cells=(make_code(key), make_code(one), origin)))
    return show_listing(
        ask,
        PageListing(
            title="Settings",
            about="As this process uses them; secrets are not shown. "
            "`holdfast config show` names the file and line of each.",
            columns=("Setting", "Value", "Origin"),
            rows=rows,
            empty="",
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
    routes.add("GET", "audit", _show_audit)
    routes.add("GET", "audit/heads", _load_heads)
    routes.add("GET", "settings", _show_settings)
    routes.add("GET", "keys", _list_keys)
    routes.add("POST", "keys/create", _create_key)
    routes.add("POST", "keys/{key_id}/rotate", _rotate_key)
    routes.add("POST", "keys/{key_id}/revoke", _revoke_key)


__all__ = ["add_to"]
