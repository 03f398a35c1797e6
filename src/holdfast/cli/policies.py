"""`holdfast policies`: check, test, explain and replay what the operator allows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.client import AsyncClient
from holdfast.errors import PolicyInvalid
from holdfast.journal import SYSTEM_SESSION, Payload
from holdfast.policy import (
    Action,
    CallRequest,
    Change,
    PolicyBundle,
    PolicyDiffered,
    PolicyRejected,
    PolicyReloadRequested,
    RecordedCall,
    compare,
    explain,
    load_policies,
    make_request,
    replay,
    request_of,
)
from holdfast.runtime import read_recorded_calls

C = TypeVar("C", bound=Callable[..., object])


@click.group("policies", cls=Group)
def command() -> None:
    """Check, test, explain and replay what the operator allows."""


def _add_directory_option(function: C) -> C:
    option = click.option(
        "--dir", "directory", metavar="DIR", help="Directory of the policy files (policies.dir)."
    )
    return option(function)


def _load(invocation: Invocation, directory: str | None) -> PolicyBundle:
    place = Path(directory) if directory else invocation.settings.policies.dir
    return load_policies(place, is_net_allowed=invocation.settings.network.allow_net)


@command.command("validate")
@_add_directory_option
@pass_invocation
def validate(invocation: Invocation, directory: str | None) -> None:
    """Check the policy files; name every mistake with its line.

    Ends with 3 if anything is wrong.
    """
    bundle = _load(invocation, directory)
    if not invocation.is_text:
        emit({"valid": True, "version": bundle.version, "files": list(bundle.files)})
        return
    for file in bundle.files:
        say(f"read: {file}")
    if not bundle.files:
        say("There are no policy files: no limits on tools and paths, and no network.")
    say(f"The policies are valid. Version {bundle.version[:12]}.")


@command.command("reload")
@pass_invocation
def reload(invocation: Invocation) -> None:
    """Ask every process on this state directory to read its policies again.

    Clients, servers and workers follow within a second. The files are checked first: wrong ones
    change nothing, which is recorded too (`holdfast policies status`). Calls that are running
    keep the policies that they began with; budgets keep what was spent.
    """
    directory = str(invocation.settings.policies.dir)
    asker = "holdfast policies reload"
    try:
        bundle = _load(invocation, None)
    except PolicyInvalid as error:
        lines = error.context.get("mistakes")
        mistakes = tuple(map(str, lines)) if isinstance(lines, list) else (str(error),)
        refused = PolicyRejected(directory=directory, mistakes=mistakes, asked_by=asker)
        run_async(_tell_all(invocation, refused))
        raise
    run_async(_tell_all(invocation, PolicyReloadRequested(directory=directory, asked_by=asker)))
    if invocation.is_text:
        say(f"Asked for version {bundle.version[:12]} of {directory}.")
    else:
        emit({"requested": True, "version": bundle.version, "directory": directory})


async def _tell_all(invocation: Invocation, fact: Payload) -> None:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        await (await client.storage.journal()).append(SYSTEM_SESSION, [fact])


@command.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the version in force, and why newer files were refused, if they were.

    With --server, of that server; otherwise, of the files as a new process would read them.
    """
    with open_client(invocation) as client:
        found = client.policies.status()
    if not invocation.is_text:
        emit(msgspec.to_builtins(found))
        return
    say(f"Version {found.version[:12]} of {found.directory} is in force.")
    for file in found.files:
        say(f"read: {file}")
    for mistake in found.refused:
        say(f"refused: {mistake}", err=True, color="red")


@command.command("test")
@_add_directory_option
@pass_invocation
def test(invocation: Invocation, directory: str | None) -> None:
    """Judge the requests under `tests:` and compare with what they expect.

    Ends with 1 if any decision is not the expected one.
    """
    results = _load(invocation, directory).run_tests()
    rows = [
        {
            "place": f"{one.file}:{one.line}",
            "agent": one.agent,
            "tool": one.tool,
            "target": one.target,
            "expected": one.expected,
            "found": one.found,
            "because": one.because,
            "ok": one.is_met,
        }
        for one in results
    ]
    failed = [row for row in rows if not row["ok"]]
    if not invocation.is_text:
        emit({"ok": not failed, "tests": len(rows), "failed": len(failed), "results": rows})
    elif failed:
        emit(failed, columns=("place", "agent", "tool", "target", "expected", "found", "because"))
    if failed:
        say(f"{len(failed)} of {len(rows)} tests failed.", err=True)
        sys.exit(1)
    say(f"All {len(rows)} tests passed." if rows else "The policy files hold no tests.")


@command.command("explain")
@click.argument("tool")
@click.option("--path", metavar="PATH", help="The file or directory that the call touches.")
@click.option("--command", "command_line", metavar="TEXT", help="The command that it runs.")
@click.option("--host", metavar="HOST", help="The host that it reaches.")
@click.option("--target", metavar="TEXT", help="What else it touches.")
@click.option("--agent", default="build", show_default=True, help="Who calls.")
@_add_directory_option
@pass_invocation
def explain_(
    invocation: Invocation,
    tool: str,
    path: str | None,
    command_line: str | None,
    host: str | None,
    target: str | None,
    agent: str,
    directory: str | None,
) -> None:
    """Say what the policies make of a call of TOOL, and by which rules.

    `=>` marks the rules that decided. Rules of agents and sessions may be stricter still.
    """
    given = {"path": path, "command": command_line, "host": host, "text": target}
    chosen = [(kind, value) for kind, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise click.UsageError("Give one of --path, --command, --host and --target.")
    kind, value = chosen[0] if chosen else ("none", "*")
    bundle = _load(invocation, directory)
    request = make_request(tool, kind, value)
    told = explain(request, bundle.find_ceiling(agent), policy_version=bundle.version)
    if invocation.is_text:
        say(told.text())
        return
    emit(
        {
            "action": told.decision.action,
            "because": told.decision.explain(),
            "policy_version": bundle.version,
            "rules": [
                {
                    "source": line.source,
                    "permission": line.rule.permission if line.rule else None,
                    "pattern": line.rule.pattern if line.rule else None,
                    "action": line.action,
                    "matches": line.is_match,
                    "decisive": line.is_decisive,
                }
                for line in told.lines
            ],
        }
    )


@command.command("replay")
@click.option("--session", metavar="ID", help="Only calls of this session.")
@click.option(
    "--limit", type=click.IntRange(1), default=100_000, help="Read so many calls at most."
)
@_add_directory_option
@pass_invocation
def replay_(invocation: Invocation, session: str | None, limit: int, directory: str | None) -> None:
    """Judge recorded calls again: which decisions would change?

    With --dir under a candidate, else under the policies as they are now.
    """
    bundle = _load(invocation, directory)
    calls = run_async(_record(invocation, session, limit))
    _show_changes(invocation, calls, list(replay(calls, bundle.find_ceiling)))


@command.command("diff")
@click.argument("candidate", metavar="DIR")
@click.option("--from", "directory", metavar="DIR", help="Compare with these, not policies.dir.")
@click.option("--listed", is_flag=True, help="Only requests under `tests:`, no recorded calls.")
@pass_invocation
def diff(invocation: Invocation, candidate: str, directory: str | None, listed: bool) -> None:
    """Say on which calls the policies in DIR would decide differently.

    Looks at the requests under `tests:` of both, and at every recorded call.
    """
    old, new = _load(invocation, directory), _load(invocation, candidate)
    calls = _list(old) + _list(new)
    if not listed:
        calls += run_async(_record(invocation, None, 100_000))
    changes = list(compare(dict.fromkeys(calls), old.find_ceiling, new.find_ceiling))
    _show_changes(invocation, calls, changes, versions=(old.version, new.version))


@command.command("shadow")
@click.option(
    "--limit", type=click.IntRange(1), default=1_000, help="Show so many differences at most."
)
@pass_invocation
def shadow(invocation: Invocation, limit: int) -> None:
    """List where the candidate in `policies.shadow_dir` would have decided differently.

    Set `policies.shadow_dir` to let a candidate judge every call of every run beside the
    policies in force; each difference is kept once per process.
    """
    rows = run_async(_list_differences(invocation, limit))
    watched = invocation.settings.policies.shadow_dir
    if not invocation.is_text:
        emit({"shadow_dir": str(watched) if watched else None, "differences": rows})
        return
    if rows:
        emit(rows, columns=("agent", "tool", "targets", "decided", "candidate", "because"))
    say(f"{len(rows)} differences are kept." + ("" if watched else " No candidate is watched."))


async def _list_differences(invocation: Invocation, limit: int) -> list[dict[str, object]]:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        journal = await client.storage.journal()
        kinds = frozenset({PolicyDiffered.kind})
        events = await journal.read(SYSTEM_SESSION, limit=limit, kinds=kinds)
    facts = [event.expect(PolicyDiffered) for event in events]
    return [
        {
            "agent": fact.agent,
            "tool": fact.permission,
            "targets": list(fact.targets),
            "decided": fact.decided,
            "candidate": fact.candidate,
            "because": fact.because,
            "policy_version": fact.policy_version,
            "candidate_version": fact.candidate_version,
        }
        for fact in facts
    ]


def _list(bundle: PolicyBundle) -> list[RecordedCall]:
    expected: list[tuple[str, CallRequest, Action]] = [
        (one.agent, request_of(one), one.expect) for _, _, one in bundle.list_expectations()
    ]
    return [
        RecordedCall(request=request, action=action, agent=agent)
        for agent, request, action in expected
    ]


async def _record(invocation: Invocation, session: str | None, limit: int) -> list[RecordedCall]:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        wanted = (await client.get_session(session)).id if session else ""
        return await read_recorded_calls(
            await client.storage.journal(), session_id=wanted, limit=limit
        )


def _show_changes(
    invocation: Invocation,
    calls: Sequence[RecordedCall],
    changes: list[Change],
    *,
    versions: tuple[str, str] | None = None,
) -> None:
    rows = [
        {
            "session": change.call.session_id or None,
            "call": change.call.call_id or None,
            "agent": change.call.agent,
            "tool": change.call.request.permission,
            "targets": list(change.call.request.targets),
            "before": change.before,
            "after": change.after,
            "rule": f"{change.rule.permission} {change.rule.pattern} {change.rule.action}"
            if change.rule
            else None,
        }
        for change in changes
    ]
    if not invocation.is_text:
        about = dict(zip(("from", "to"), versions, strict=True)) if versions else {}
        emit({**about, "calls": len(calls), "changed": len(rows), "changes": rows})
        return
    if rows:
        emit(rows, columns=("session", "agent", "tool", "targets", "before", "after", "rule"))
    looser = sum(change.is_looser for change in changes)
    say(f"{len(rows)} of {len(calls)} calls would be decided differently, {looser} less strictly.")
