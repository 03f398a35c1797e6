"""`holdfast approvals`: the inbox of everything that waits for a person."""

from __future__ import annotations

import contextlib
import getpass
import sys
from datetime import UTC, datetime
from typing import Literal

import click
import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.approve import describe_reason, parse_arguments, show_rules
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.loop import describe_going_on
from holdfast.cli.output import emit, make_printable, say
from holdfast.errors import NotFound, UsageError
from holdfast.policy import Approval
from holdfast.runs import read_lineage
from holdfast.runtime import ApprovalDetails, OpenQuestion
from holdfast.sync import Client

_SHORT = 60
_of_run = click.option(
    "--run", default="", metavar="ID", help="Of this run; for an id that several runs have."
)


@click.group("approvals", cls=Group)
def command() -> None:
    """Answer what waits for a person."""


@command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also what was answered, used or has expired.")
@click.option("--session", default="", metavar="ID", help="Only of this session.")
@pass_invocation
def list_(invocation: Invocation, is_all: bool, session: str) -> None:
    """List what waits for a person: consent, unknown outcomes, questions."""
    with Client(invocation.place, settings=invocation.settings) as client:
        if is_all:
            found = client.approvals.list(status=None, session_id=session, limit=1000)
            rows = [_make_approval_row(row) for row in found]
        else:
            waiting = client.approvals.questions()
            rows = [_make_row(item) for item in waiting if session in ("", item.session_id)]
    if rows or not invocation.is_text:
        emit(rows, columns=("id", "waits for", "agent", "tool", "what", "run"))
    else:
        say("Nothing waits for a person.")


@command.command("show")
@click.argument("item")
@_of_run
@pass_invocation
def show(invocation: Invocation, item: str, run: str) -> None:
    """Show exactly what is asked: arguments, reason, and what would change.

    ITEM is an id that `holdfast approvals list` shows.
    """
    with Client(invocation.place, settings=invocation.settings) as client:
        if not item.startswith("apr_"):
            emit(msgspec.to_builtins(_find(client, item, run)))
            return
        details = client.approvals.get(item)
    if not invocation.is_text:
        emit({**msgspec.to_builtins(details.approval), **msgspec.to_builtins(details)})
        return
    emit(_collect_facts(details))
    if details.asked.preview:
        click.echo(make_printable(details.asked.preview))


@command.command("approve")
@click.argument("approval")
@click.option("--always", is_flag=True, help="Also write the shown rule into the session.")
@click.option("--edit", default="", metavar="JSON", help="Run it with these arguments instead.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the answer.")
@click.option("--by", default="", metavar="NAME", help="Who answers; you, unless given.")
@pass_invocation
def approve(
    invocation: Invocation, approval: str, always: bool, edit: str, reason: str, by: str
) -> None:
    """Consent to a call; its run can go on.

    The consent holds for this call with exactly these arguments, once.
    """
    arguments = _format_arguments(edit) if edit else None
    with Client(invocation.place, settings=invocation.settings) as client:
        if always:
            rules = client.approvals.get(approval).asked.rules
            show_rules(rules)
            if rules and sys.stdin.isatty() and invocation.is_text:
                click.confirm("Write it?", abort=True, err=True)
        row = client.approvals.approve(
            approval, by=by or getpass.getuser(), always=always, arguments=arguments, reason=reason
        )
        _say_what_next(client, row)


@command.command("deny")
@click.argument("approval")
@click.option("--reason", default="", metavar="TEXT", help="Why; the model is told.")
@click.option("--by", default="", metavar="NAME", help="Who answers; you, unless given.")
@pass_invocation
def deny(invocation: Invocation, approval: str, reason: str, by: str) -> None:
    """Refuse a call; the model is told why, and its run can go on."""
    with Client(invocation.place, settings=invocation.settings) as client:
        row = client.approvals.deny(approval, by=by or getpass.getuser(), reason=reason)
        _say_what_next(client, row)


@command.command("decide")
@click.argument("call")
@click.argument("verdict", type=click.Choice(["happened", "not-happened", "abort"]))
@click.option("--result", default="", metavar="TEXT", help="What to tell the model.")
@click.option("--by", default="", metavar="NAME", help="Who answers; you, unless given.")
@_of_run
@pass_invocation
def decide(invocation: Invocation, call: str, verdict: str, result: str, by: str, run: str) -> None:
    """Say what became of a call that a crash interrupted."""
    said: Literal["happened", "not_happened", "abort"]
    said = "not_happened" if verdict == "not-happened" else verdict  # type: ignore[assignment]
    with Client(invocation.place, settings=invocation.settings) as client:
        found = _find(client, call, run)
        client.approvals.decide_outcome(
            found.session_id, call, said, by=by or getpass.getuser(), result=result
        )
        _say_resume(client, found.run_id)


@command.command("answer")
@click.argument("call")
@click.argument("text", nargs=-1, required=True)
@click.option("--by", default="", metavar="NAME", help="Who answers; you, unless given.")
@_of_run
@pass_invocation
def answer(invocation: Invocation, call: str, text: tuple[str, ...], by: str, run: str) -> None:
    """Answer an agent's question."""
    with Client(invocation.place, settings=invocation.settings) as client:
        found = _find(client, call, run)
        client.approvals.answer(found.session_id, call, " ".join(text), by=by or getpass.getuser())
        _say_resume(client, found.run_id)


def _find(client: Client, call: str, run: str) -> OpenQuestion:
    """Return what waits under an id; models choose the ids of calls, and some choose them twice."""
    found = [
        item
        for item in client.approvals.questions()
        if call in (item.id, item.call_id) and run in ("", item.run_id)
    ]
    if not found:
        raise NotFound(kind="open question", value=call)
    if len(found) > 1:
        runs = ", ".join(item.run_id for item in found)
        raise UsageError(detail=f"Several runs wait for {call}; name one with --run: {runs}.")
    return found[0]


def _format_arguments(text: str) -> JsonObject:
    try:
        return parse_arguments(text)
    except ValueError as error:
        raise UsageError(detail=f"--edit takes a JSON object: {error}") from error


def _say_what_next(client: Client, row: Approval) -> None:
    missing = row.required - len(row.votes)
    if row.status == "open":
        say(f"Kept. {missing} more people have to consent to {row.id}.")
    else:
        say(f"{row.tool}: {row.status}.")
        _say_resume(client, row.run_id)


def _say_resume(client: Client, run_id: str) -> None:
    """Name the call that goes on with a run, or with the one that waits above all others."""
    run = client.runs.get(run_id)
    above = read_lineage(client.get_session(run.session_id))
    if above is not None and above.root:
        with contextlib.suppress(NotFound):  # an orchestrator of the application is no run
            run = client.runs.get(above.root)
    say(f"Go on with: {describe_going_on(run)}")


def _make_row(item: OpenQuestion) -> dict[str, object]:
    shown = item.request.get("targets") or item.request.get("question") or item.request
    what = ", ".join(shown) if isinstance(shown, list) else str(shown)
    return {
        "id": item.id,
        "waits for": item.reason,
        "agent": item.agent_path,
        "tool": item.tool,
        "what": what[:_SHORT],
        "run": item.run_id,
        "session": item.session_id,
        "request": item.request,
    }


def _make_approval_row(row: Approval) -> dict[str, object]:
    return {
        "id": row.id,
        "waits for": row.status,
        "agent": row.agent_path,
        "tool": row.tool,
        "what": ", ".join(f"{vote.by}: {vote.verdict}" for vote in row.votes),
        "run": row.run_id,
        "session": row.session_id,
    }


def _collect_facts(details: ApprovalDetails) -> dict[str, object]:
    row, asked = details.approval, details.asked
    facts: dict[str, object] = {
        "id": row.id,
        "status": details.status,
        "tool": row.tool,
        "agent": row.agent_path,
        "touches": asked.targets,
        "because": describe_reason(row.permission, asked.decision),
        "arguments": asked.arguments,
        "expires": datetime.fromtimestamp(row.expires_at, UTC).isoformat(timespec="seconds"),
        "session": row.session_id,
        "run": row.run_id,
        "seal": row.seal,
    }
    if row.required > 1:
        facts["people needed"] = row.required
    if asked.rules:
        rules = [f"{rule.permission} {rule.pattern} {rule.action}" for rule in asked.rules]
        facts["--always writes"] = rules
    for said in details.answers:
        facts[f"answer of {said.by}"] = f"{said.verdict} {said.reason}".strip()
    return facts
