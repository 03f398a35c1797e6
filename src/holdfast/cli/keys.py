"""`holdfast keys`: who may ask a server, and for what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.clock import SYSTEM
from holdfast.errors import UsageError
from holdfast.identity import ROLES, ApiKey, CreatedKey

_T = TypeVar("_T")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_tenant = click.option("--tenant", default="", metavar="NAME", help="Keys of this tenant.")


@click.group("keys", cls=Group)
def command() -> None:
    """Make, list, rotate or revoke API keys of a server, and log browsers out."""


@command.command("create")
@click.argument("name")
@click.option(
    "--role", "roles", multiple=True, type=click.Choice(sorted(ROLES)), help="A role; repeat."
)
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="As runs:write:helper.")
@click.option("--subject", default="", metavar="WHO", help="In whose name; else the key's own.")
@click.option("--expires", default="", metavar="TIME", help="Valid for so long, as 90d or 12h.")
@_tenant
@pass_invocation
def create(invocation: Invocation, /, name: str, expires: str, **options: Any) -> None:  # noqa: ANN401 - click's
    """Make a key and print it; it is shown this once and kept nowhere.

    \b
    holdfast keys create ci --role developer --expires 90d
    holdfast keys create support --scope runs:write:helper --scope runs:read --subject ada
    """
    ttl_s = _parse_seconds(expires) if expires else None
    made = _run(invocation, lambda client: client.keys.create(name, ttl_s=ttl_s, **options))
    _show_secret(invocation, made)


@command.command("list")
@_tenant
@pass_invocation
def list_(invocation: Invocation, tenant: str) -> None:
    """List keys: whose they are, what they give, when they were used last."""
    found = _run(invocation, lambda client: client.keys.list(tenant=tenant))
    emit(
        [_make_row(one) for one in found],
        columns=["id", "name", "subject", "gives", "used", "state"],
    )


@command.command("rotate")
@click.argument("key_id")
@click.option("--grace", default="0s", show_default=True, help="How long the old one goes on.")
@_tenant
@pass_invocation
def rotate(invocation: Invocation, key_id: str, grace: str, tenant: str) -> None:
    """Make a key in the place of KEY_ID, with the same rights, and print it."""
    grace_s = _parse_seconds(grace)
    made = _run(
        invocation, lambda client: client.keys.rotate(key_id, grace_s=grace_s, tenant=tenant)
    )
    _show_secret(invocation, made)


@command.command("revoke")
@click.argument("key_id")
@_tenant
@pass_invocation
def revoke(invocation: Invocation, key_id: str, tenant: str) -> None:
    """End the key KEY_ID at once and for good."""
    ended = _run(invocation, lambda client: client.keys.revoke(key_id, tenant=tenant))
    if invocation.is_text:
        say(f"Revoked the key {ended.id} ({ended.name}).")
    else:
        emit(_make_row(ended))


@command.command("logins")
@_tenant
@pass_invocation
def logins(invocation: Invocation, tenant: str) -> None:
    """List the browsers that are logged in."""
    found = _run(invocation, lambda client: client.keys.list_logins(tenant=tenant))
    rows = [
        {
            **msgspec.to_builtins(one),
            "since": _format_date(one.created_at),
            "until": _format_date(one.expires_at),
        }
        for one in found
    ]
    emit(rows, columns=["id", "subject", "since", "until"])


@command.command("log-out")
@click.argument("login_id")
@_tenant
@pass_invocation
def log_out(invocation: Invocation, login_id: str, tenant: str) -> None:
    """Log the browser LOGIN_ID out."""
    ended = _run(invocation, lambda client: client.keys.end_login(login_id, tenant=tenant))
    if invocation.is_text:
        say(f"Logged {ended.subject} out of {ended.id}.")
    else:
        emit(msgspec.to_builtins(ended))


def _show_secret(invocation: Invocation, made: CreatedKey) -> None:
    if not invocation.is_text:
        emit({**_make_row(made.key), "secret": made.secret})
        return
    say(f"The key {made.key.id} of {made.key.subject}. Keep it; it is not shown again:",
        err=True)  # fmt: skip
    say(made.secret)


def _make_row(key: ApiKey) -> dict[str, Any]:
    state = "valid" if key.is_valid(SYSTEM.now()) else ("revoked" if key.revoked_at else "expired")
    gives = " ".join((*key.roles, *key.scopes))
    used = _format_date(key.last_used_at) if key.last_used_at else "never"
    return {**msgspec.to_builtins(key), "gives": gives, "used": used, "state": state}


def _format_date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")


def _parse_seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _UNITS or not number.isdigit():
        raise UsageError(detail=f"{text!r} is no time; write it as 90d, 12h, 30m or 45s.")
    return float(int(number) * _UNITS[unit])


def _run(invocation: Invocation, work: Callable[[AsyncClient], Awaitable[_T]]) -> _T:
    async def whole() -> _T:
        async with AsyncClient(settings=invocation.settings) as client:
            return await work(client)

    return run_async(whole())
