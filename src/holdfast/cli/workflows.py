"""`holdfast workflows`: check, run, draw and look at workflows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.loop import say_how_to_answer
from holdfast.cli.output import emit, make_printable, paint, say
from holdfast.cli.steps import StepLines
from holdfast.client import AsyncClient
from holdfast.errors import FileError, NotFound, UsageError, make_error_from_dict
from holdfast.orchestration.workflows import Definition, WorkflowResult, to_json, to_mermaid, to_svg
from holdfast.tools import Approver, AutoConfirm, NoApprover

_FORMATS: dict[str, Callable[[Definition], str]] = {
    "mermaid": to_mermaid,
    "svg": to_svg,
    "json": lambda definition: json.dumps(to_json(definition), indent=2) + "\n",
}


@click.group("workflows", cls=Group)
def command() -> None:
    """Check, run, draw or list workflows."""


@command.command("validate")
@click.argument("workflow")
@pass_invocation
def validate(invocation: Invocation, workflow: str) -> None:
    """Check WORKFLOW, a name or a YAML file; name every mistake with its line.

    Workflows that it starts are checked too. Ends with 3 if anything is wrong. Tools and agents
    that are not known here are named, but may be known where it runs.
    """
    definition, unknown = run_async(_check(invocation, workflow))
    steps = sum(1 for _ in definition.iterate_steps())
    if invocation.is_text:
        say(f"The workflow {definition.name} is valid: {steps} steps.")
        for one in unknown:
            say(f"{one} is known here.", err=True, color="yellow")
    else:
        emit(
            {
                "valid": True,
                "name": definition.name,
                "steps": steps,
                "unknown": unknown,
                "inputs": definition.inputs,
                "digest": definition.digest,
            }
        )


@command.command("run")
@click.argument("workflow", required=False)
@click.option("--input", "-i", "inputs", multiple=True, metavar="NAME=VALUE", help="An input.")
@click.option("--inputs-json", default="", metavar="JSON", help="All inputs as a JSON object.")
@click.option("--run-id", default="", metavar="ID", help="Name the run; the same name resumes it.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option("--park", is_flag=True, help="Let it wait where a call asks; else it is refused.")
@click.option(
    "--stay", is_flag=True, help="--park: go on here as soon as an approver has answered."
)
@pass_invocation
def run(
    invocation: Invocation,
    /,
    workflow: str | None,
    run_id: str,
    **chosen: Any,  # noqa: ANN401 - the options above
) -> None:
    """Run WORKFLOW, a name or a YAML file, and show its steps.

    Kill it at any moment: the same --run-id goes on at the unfinished step. A workflow that
    waits for a person ends with exit code 5 and says how to answer; afterwards --run-id alone
    goes on with it. With --stay it waits here for the answer instead, and goes on by itself.
    """
    if workflow is None and not run_id:
        raise click.UsageError("Give the WORKFLOW, or the --run-id of one that was begun.")
    job = _Run(invocation=invocation, workflow=workflow, run_id=run_id, **chosen)
    result = run_async(job.run())
    if not invocation.is_text:
        emit(msgspec.to_builtins(result))
    elif result.output is not None and result.status == "completed":
        text = result.output if isinstance(result.output, str) else _format_pretty(result.output)
        click.echo(make_printable(text))
    _end_with(result)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One call of `holdfast workflows run`."""

    invocation: Invocation
    workflow: str | None
    run_id: str
    inputs: tuple[str, ...]
    inputs_json: str
    auto_confirm: bool
    park: bool
    stay: bool

    async def run(self) -> WorkflowResult:
        """Run or resume the workflow."""
        async with AsyncClient(self.invocation.place, settings=self.invocation.settings) as client:
            with StepLines(self.invocation) as lines:
                client.approver = self._make_approver(lines)

                async def say_that_it_waits(result: WorkflowResult) -> None:
                    with lines.move_out_of_the_way():
                        await self._say_how_to_answer(client, result)

                stay = say_that_it_waits if self.stay else False
                if self.workflow is None:
                    result = await client.workflows.resume(
                        self.run_id, listener=lines.hear, stay=stay
                    )
                else:
                    definition = (await client.workflows.validate(self.workflow)).definition
                    result = await client.workflows.run(
                        self.workflow,
                        _read_inputs(definition, self.inputs, self.inputs_json),
                        run_id=self.run_id,
                        on_ask="park" if self.park else "deny",
                        listener=lines.hear,
                        stay=stay,
                    )
            self._say_how_it_went(result)
            if result.status == "parked":
                await self._say_how_to_answer(client, result)
            return result

    def _make_approver(self, lines: StepLines) -> Approver:
        if self.auto_confirm:
            return AutoConfirm()
        if sys.stdin.isatty() and self.invocation.is_text and not self.park:
            return lines
        return NoApprover()

    def _say_how_it_went(self, result: WorkflowResult) -> None:
        done = sum(state.status == "completed" for state in result.steps)
        line = (
            f"{result.status} in {result.duration:.1f} s, {done} of {len(result.steps)} steps. "
            f"Run {result.run_id}."
        )
        if self.invocation.is_text:
            painted = paint(line, "bright_black", self.invocation, stream=sys.stderr)
            click.echo(painted, err=True)

    async def _say_how_to_answer(self, client: AsyncClient, result: WorkflowResult) -> None:
        mine = {result.run_id, *(state.child_run for state in result.steps)}
        await say_how_to_answer(client, mine)
        if self.stay:
            say("It goes on as soon as an approver has answered.", err=True)
            return
        say(f"Then go on: holdfast workflows run --run-id {result.run_id}", err=True)


@command.command("graph")
@click.argument("workflow")
@click.option(
    "--format", "form", type=click.Choice(sorted(_FORMATS)), default="mermaid", show_default=True
)
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file.")
@pass_invocation
def graph(invocation: Invocation, workflow: str, form: str, out: Path | None) -> None:
    """Draw WORKFLOW, a name or a YAML file, as Mermaid or as an SVG picture."""
    definition = run_async(_read_definition(invocation, workflow))
    if not invocation.is_text and out is None:
        emit({**to_json(definition), "mermaid": to_mermaid(definition)})
        return
    text = _FORMATS[form](definition)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(path=str(out), detail=error.strerror or "unwritable") from error
    if invocation.is_text:
        say(f"Wrote {out}.")
    else:
        emit({"written": str(out), "format": form})


@command.command("list")
@click.option("--runs", is_flag=True, help="List runs of workflows, newest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="So many runs at most.")
@pass_invocation
def list_(invocation: Invocation, runs: bool, limit: int) -> None:
    """List the workflows that are known by name, or with --runs their runs."""

    async def work() -> list[dict[str, object]]:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            if runs:
                return [
                    {
                        "run": run.id,
                        "workflow": run.agent.partition(":")[2],
                        "status": run.status,
                        "reason": run.reason or None,
                        "session": run.session_id,
                    }
                    for run in await client.workflows.runs(limit=limit)
                ]
            return [
                {
                    "name": one.name,
                    "steps": None
                    if one.problem
                    else sum(1 for _ in one.definition.iterate_steps()),
                    "description": one.problem or one.definition.description,
                    "valid": not one.problem,
                    "file": one.path,
                }
                for one in await client.workflows.list()
            ]

    columns = ["run", "workflow", "status", "reason"]
    emit(
        run_async(work()),
        columns=columns if runs else ["name", "valid", "steps", "description"],
    )


@command.command("show")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show a run of a workflow step by step, or the workflow NAME itself."""

    async def work() -> WorkflowResult | Definition:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            try:
                return await client.workflows.get(name)
            except NotFound:
                return (await client.workflows.validate(name)).definition

    found = run_async(work())
    if isinstance(found, Definition):
        rows: list[dict[str, object]] = [
            {"step": step.id, "does": step.does, "when": step.when, "on_error": step.on_error}
            for step in found.iterate_steps()
        ]
        emit(rows if invocation.is_text else found.to_json())
        return
    show_result(invocation, found)


def show_result(invocation: Invocation, found: WorkflowResult) -> None:
    """Print a run of a workflow step by step."""
    if not invocation.is_text:
        emit(msgspec.to_builtins(found))
        return
    say(f"{found.workflow}: {found.status} {found.reason}".rstrip())
    emit(
        [
            {
                "step": state.path,
                "status": state.status,
                "attempts": state.attempts or None,
                "seconds": round(state.time_ended - state.time_started, 2)
                if state.time_ended
                else None,
                "says": state.error.get("message") or _brief(state.output),
            }
            for state in found.steps
        ],
        columns=["step", "status", "attempts", "seconds", "says"],
    )


async def _read_definition(invocation: Invocation, workflow: str) -> Definition:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        return (await client.workflows.validate(workflow)).definition


async def _check(invocation: Invocation, workflow: str) -> tuple[Definition, list[str]]:
    """Return a workflow, and which of its tools and agents nobody knows here."""
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        definition = (await client.workflows.validate(workflow)).definition
        tools = await client.tools.registry()
        unknown = []
        for step in definition.iterate_steps():
            if step.tool and step.tool not in tools:
                unknown.append(f"step {step.id!r}: no tool {step.tool!r}")
            if step.agent and await client.get_agent(step.agent) is None:
                unknown.append(f"step {step.id!r}: no agent {step.agent!r}")
        return definition, unknown


def _read_inputs(definition: Definition, given: tuple[str, ...], as_json: str) -> JsonObject:
    """Return the inputs with their types; texts stay texts where a text is wanted."""
    inputs: JsonObject = {}
    if as_json:
        read = _parse_json(as_json, "--inputs-json")
        if not isinstance(read, dict):
            raise UsageError(detail="--inputs-json takes a JSON object.")
        inputs |= read
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise UsageError(detail=f"--input takes NAME=VALUE, not {one!r}.")
        wanted = definition.inputs.get(name, {}).get("type", "string")
        inputs[name] = value if wanted == "string" else _parse_json(value, f"the input {name}")
    return inputs


def _parse_json(text: str, what: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise UsageError(detail=f"{what} is no JSON: {error}") from error
    return value


def _format_pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else f"{flat[:79]}…"


def _end_with(result: WorkflowResult) -> None:
    if result.status == "failed":
        raise make_error_from_dict(result.error)
    if result.status == "parked":
        sys.exit(ExitCode.WAITING)
    if result.status == "cancelled":
        sys.exit(ExitCode.FAILED)
