"""`holdfast tenants`: who shares a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.identity import Tenant
from holdfast.private_files import open_whole_file

_T = TypeVar("_T")


@click.group("tenants", cls=Group)
def command() -> None:
    """Make, suspend, export or delete tenants; erase a user."""


@command.command("create")
@click.argument("name")
@click.option("--note", default="", help="For your own eyes.")
@pass_invocation
def create(invocation: Invocation, name: str, note: str) -> None:
    """Add the tenant NAME; give it a key next.

    \b
    holdfast tenants create acme
    holdfast keys create admin --role admin --tenant acme
    """
    _tell(invocation, _run(invocation, lambda client: client.tenants.create(name, note=note)))


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the tenants; the server's own is not among them."""
    found = _run(invocation, lambda client: client.tenants.list())
    emit([msgspec.to_builtins(one) for one in found], columns=["name", "state", "note"])


@command.command("usage")
@pass_invocation
def usage(invocation: Invocation) -> None:
    """Say what each tenant used in all, the most costly first; the server's own is among them."""
    found = _run(invocation, lambda client: client.tenants.usage())
    rows = [
        {
            "tenant": name,
            "cost_usd": one.known_cost_usd,
            "tokens": one.usage.total,
            "calls": one.calls,
            "unpriced_calls": one.unpriced_calls,
        }
        for name, one in sorted(found.items(), key=lambda each: -each[1].known_cost_usd)
    ]
    emit(rows, columns=["tenant", "cost_usd", "tokens", "calls", "unpriced_calls"])


@command.command("suspend")
@click.argument("name")
@click.option("--resume", is_flag=True, help="Let it in again.")
@pass_invocation
def suspend(invocation: Invocation, name: str, resume: bool) -> None:
    """Let nobody of the tenant NAME in any more, or with --resume again."""

    def work(client: AsyncClient) -> Awaitable[Tenant]:
        return client.tenants.resume(name) if resume else client.tenants.suspend(name)

    _tell(invocation, _run(invocation, work))


@command.command("export")
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def export(invocation: Invocation, name: str, target: Path) -> None:
    """Write all records of the tenant NAME to the file TARGET, as JSON lines."""

    async def work(client: AsyncClient) -> int:
        count = 0
        with open_whole_file(target) as file:
            async for line in client.tenants.export(name):
                file.write(line)
                count += 1
        return count

    count = _run(invocation, work)
    if invocation.is_text:
        say(f"Wrote {count} lines to {target}.")
    else:
        emit({"lines": count, "file": str(target)})


@command.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, yes: bool) -> None:
    """Remove the tenant NAME for good: keys, records, workspace."""
    if not yes:
        click.confirm(f"Remove all records of {name} for good?", abort=True)
    _tell(invocation, _run(invocation, lambda client: client.tenants.delete(name, confirm=name)))


@command.command("erase-user")
@click.argument("subject")
@click.option("--tenant", default="", metavar="NAME", help="In this tenant only; else in all.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def erase_user(invocation: Invocation, subject: str, tenant: str, yes: bool) -> None:
    """Remove everything that belongs to the user SUBJECT: sessions, memories, keys."""
    if not yes:
        click.confirm(f"Remove everything that belongs to {subject} for good?", abort=True)
    found = _run(invocation, lambda client: client.tenants.erase_user(subject, tenant=tenant))
    emit(
        [msgspec.to_builtins(one) for one in found],
        columns=["tenant", "sessions", "memories", "artifacts", "keys"],
    )


def _tell(invocation: Invocation, tenant: Tenant) -> None:
    if invocation.is_text:
        say(f"The tenant {tenant.name} is {tenant.state}.")
    else:
        emit(msgspec.to_builtins(tenant))


def _run(invocation: Invocation, work: Callable[[AsyncClient], Awaitable[_T]]) -> _T:
    async def whole() -> _T:
        async with AsyncClient(settings=invocation.settings) as client:
            return await work(client)

    return run_async(whole())
