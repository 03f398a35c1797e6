"""`holdfast plugins`: what installed packages add, and what it may do."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.runtime import Plugin, inspect_plugin, list_plugins


@click.group("plugins", cls=Group)
def command() -> None:
    """List or show what installed packages add, and what it may do."""


@command.command("list")
@pass_invocation
def list_all(invocation: Invocation) -> None:
    """List what installed packages offer; nothing of them is imported.

    What is not enabled takes no part: `plugins.enabled` in your own config.toml, or
    HOLDFAST_PLUGINS__ENABLED, names the packages that do.
    """
    found = list_plugins(invocation.settings.plugins.enabled)
    rows = [msgspec.to_builtins(one) for one in found]
    if invocation.is_text and not rows:
        say("No installed package offers anything. `holdfast init --plugin NAME` begins one.")
        return
    emit(rows, columns=["package", "version", "kind", "name", "is_enabled", "may"])


@command.command("show")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show what the package or plugin NAME adds: tools with their effects, agents, models.

    This imports it, so its code runs.
    """
    found = inspect_plugin(name, invocation.settings.plugins.enabled)
    if not invocation.is_text:
        emit([msgspec.to_builtins(one) for one in found])
        return
    for one in found:
        _say_one(one)


def _say_one(one: Plugin) -> None:
    state = "enabled" if one.is_enabled else "not enabled"
    say(f"{one.package} {one.version}: {one.kind} {one.name} ({state})")
    say(f"  {one.may}")
    for row in one.adds:
        say("  - " + ", ".join(f"{key}: {value}" for key, value in row.items() if value))
