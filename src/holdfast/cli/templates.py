"""`holdfast templates`: agents for common jobs."""

from __future__ import annotations

import json

import click
import msgspec

from holdfast.agents import AgentResult, Template, find_template, list_builtin_templates
from holdfast.canonical import JsonObject
from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.pairs import read_pairs
from holdfast.cli.run import end_with
from holdfast.client import AsyncClient
from holdfast.tools import AutoConfirm

_SHOWN_MODEL = "openai:gpt-4o-mini"


@click.group("templates", cls=Group)
def command() -> None:
    """List, show or run agents for common jobs."""


@command.command("list")
def list_templates() -> None:
    """List the templates."""
    emit(
        [_make_row(template) for template in list_builtin_templates().values()],
        columns=["name", "category", "description"],
    )


@command.command("show")
@click.argument("name")
@click.option("--model", default=_SHOWN_MODEL, show_default=True, help="Model for the estimate.")
@pass_invocation
def show(invocation: Invocation, name: str, model: str) -> None:
    """Show the template NAME: its parameters, tools, and what a run would roughly cost."""
    template = find_template(name)
    estimate = template.estimate(model)
    calls, tokens, cost = estimate.calls, estimate.usage.total, estimate.cost_usd
    about = {
        **_make_row(template),
        "version": template.version,
        "tools": list(template.tools),
        "steps": template.steps,
        "prompt": template.prompt,
    }
    if not invocation.is_text:
        costs = {"model": estimate.model, "calls": calls, "tokens": tokens, "cost_usd": cost}
        emit({**about, "parameters": template.schema, "estimate": costs})
        return
    price = "unknown cost" if cost is None else f"${cost:.4f}"
    emit(
        {
            **about,
            "tools": ", ".join(template.tools) or "none",
            "estimate": f"{calls} calls, {tokens:,} tokens, {price} with {estimate.model}",
        }
    )
    say("\nParameters, each as -p NAME=VALUE; repeat it for the items of an array:\n")
    emit(_describe_parameters(template.schema), columns=["name", "type", "default", "meaning"])


def _describe_parameters(schema: JsonObject) -> list[dict[str, object]]:
    """Return a row per parameter, for people; `required` stands where there is no default."""
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "type": "|".join(field.get("enum", ())) or field.get("type", "any"),
            "default": "required" if name in required else json.dumps(field.get("default")),
            "meaning": field.get("description", ""),
        }
        for name, field in schema.get("properties", {}).items()
    ]


@command.command("run")
@click.argument("name")
@click.option(
    "-p", "--param", "params", multiple=True, metavar="KEY=VALUE", help="A parameter; repeat."
)
@click.option("--model", default="", metavar="NAME", help="Model, as in openai:gpt-5.2.")
@click.option("--session", default="", metavar="ID", help="Go on in this session.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@pass_invocation
def run(
    invocation: Invocation,
    name: str,
    params: tuple[str, ...],
    model: str,
    session: str,
    auto_confirm: bool,
) -> None:
    """Run the template NAME with parameters.

    A list is JSON or its items one by one, as in -p files=a.csv -p files=b.csv.
    """
    template = find_template(name)
    message = template.message(read_pairs(params, template.schema))

    async def work() -> AgentResult:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            client.approver = AutoConfirm() if auto_confirm else None
            return await client.execute_agent(template.agent(model=model), session, message)

    result = run_async(work())
    if invocation.is_text:
        say(make_printable(result.response))
    else:
        emit(msgspec.to_builtins(result))
    end_with(result)


def _make_row(template: Template) -> dict[str, object]:
    return {
        "name": template.name,
        "title": template.title,
        "category": template.category,
        "description": template.description,
    }
