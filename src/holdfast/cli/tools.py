"""`holdfast tools`: what agents can use."""

from __future__ import annotations

import json

import click

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit
from holdfast.tools import ToolRegistry
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.export import describe


@click.group("tools", cls=Group)
def command() -> None:
    """List the tools, show one, or export their schemas."""


@command.command("list")
@click.option("--tag", default="", help="Only tools with this tag.")
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
def list_tools(tag: str, plugins: bool) -> None:
    """List all tools with their effects."""
    registry = _registry(plugins)
    emit(
        [
            {
                "name": tool.name,
                "version": tool.version,
                "effect": tool.effect,
                "scope": registry.scope_of(tool.name),
                "tags": list(tool.tags),
                "purpose": tool.description.partition("\n")[0],
            }
            for tool in registry
            if not tag or tag in tool.tags
        ],
        columns=["name", "version", "effect", "scope", "purpose"],
    )


@command.command("show")
@click.argument("name")
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
@pass_invocation
def show(invocation: Invocation, name: str, plugins: bool) -> None:
    """Show everything about the tool NAME, or NAME@VERSION."""
    described = describe(_registry(plugins).get(name))
    if invocation.is_text:
        for key in ("parameters", "output"):
            described[key] = json.dumps(described[key], indent=2, ensure_ascii=False)
    emit(described)


@command.command("schema")
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json-schema", "openapi"]),
    default="json-schema",
    show_default=True,
    help="Form of the document.",
)
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
def schema(name: str | None, form: str, plugins: bool) -> None:
    """Print the schemas of all tools, or of the tool NAME, as JSON."""
    registry = _registry(plugins)
    if name:
        registry = ToolRegistry([registry.get(name)])
    document = registry.openapi() if form == "openapi" else registry.json_schema()
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _registry(plugins: bool) -> ToolRegistry:
    registry = builtin_tools().child(scope="plugin")
    if plugins:
        registry.load_entry_points()
    return registry
