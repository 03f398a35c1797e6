"""`holdfast doctor`: check what works on this machine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Final

import click

from holdfast.cli import doctor_kernel, doctor_machine, doctor_models, doctor_sandbox
from holdfast.cli.doctor_check import DoctorCheck, Patient
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.errors import ConfigError, UsageError
from holdfast.settings import LoadedSettings

CHECKS: Final[tuple[Callable[[Patient], DoctorCheck], ...]] = (
    doctor_machine.check_sqlite,
    doctor_machine.check_state_dir,
    doctor_machine.check_space,
    doctor_machine.check_workspace,
    doctor_machine.check_git,
    doctor_machine.check_ripgrep,
    doctor_kernel.check_bubblewrap,
    doctor_kernel.check_landlock,
    doctor_kernel.check_seccomp,
    doctor_kernel.check_openat2,
    doctor_sandbox.check_sandbox,
    doctor_machine.check_extras,
    doctor_machine.check_memory_search,
    doctor_machine.check_uvloop,
    doctor_models.check_provider,
    doctor_models.check_local_servers,
    doctor_machine.check_locale,
    doctor_machine.check_clock,
)
_COLORS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor", cls=CliCommand)
@click.option("--only", "wanted", multiple=True, metavar="NAME", help="This check only; repeat.")
@pass_invocation
@click.pass_context
def command(ctx: click.Context, invocation: Invocation, wanted: tuple[str, ...]) -> None:
    """Check what works on this machine, or with `--server URL` on that server.

    Names what is there, what is missing, what that means and how to get it. Ends with 1
    only if something that Holdfast needs is missing.
    """
    checks = examine(invocation, wanted)
    is_well = all(check.status != "fail" for check in checks)
    if invocation.is_text:
        emit(
            [asdict(check) for check in checks],
            columns=("name", "status", "found"),
            style=lambda column, cell: _COLORS.get(cell) if column == "status" else None,
        )
        _say_advice(checks, is_well=is_well)
    elif invocation.output == "stream-json":
        emit([asdict(check) for check in checks])
    else:
        emit({"ok": is_well, "checks": [asdict(check) for check in checks]})
    ctx.exit(ExitCode.DONE if is_well else ExitCode.FAILED)


def examine(invocation: Invocation, wanted: tuple[str, ...] = ()) -> list[DoctorCheck]:
    """Run all checks at once, and return them, or those that are wanted by name.

    Wrong settings are a finding, and end the examination.

    Raises:
        UsageError: there is no check of a name.
    """
    checks = _examine_all(invocation)
    if not wanted:
        return checks
    unknown = set(wanted) - {check.name for check in checks}
    if unknown and checks[-1].name != "settings":
        raise UsageError(
            detail=f"There is no check {min(unknown)!r}; there are "
            f"{', '.join(check.name for check in checks)}."
        )
    return [check for check in checks if check.name in wanted or check.status == "fail"]


def _examine_all(invocation: Invocation) -> list[DoctorCheck]:
    try:
        loaded = invocation.loaded
    except ConfigError as error:
        return [
            doctor_machine.check_python(),
            DoctorCheck(
                name="settings",
                status="fail",
                found=str(error),
                means="Nothing else can be checked before they are right.",
                fix=error.hint,
            ),
        ]
    patient = Patient(loaded=loaded)
    if loaded.settings.remote.url:
        from holdfast.cli.doctor_server import examine_server  # noqa: PLC0415 - rarely asked

        return [
            doctor_machine.check_python(),
            DoctorCheck(name="settings", status="ok", found=_name_files(loaded)),
            *examine_server(patient, loaded.settings.remote.url),
        ]
    pool = ThreadPoolExecutor(max_workers=len(CHECKS))
    try:
        results = list(pool.map(lambda check: check(patient), CHECKS))
    finally:
        # After Ctrl-C a person does not want to wait for the slowest check.
        pool.shutdown(wait=False, cancel_futures=True)
    return [
        doctor_machine.check_python(),
        DoctorCheck(name="settings", status="ok", found=_name_files(loaded)),
        *results,
        _check_network(patient),
    ]


def _name_files(loaded: LoadedSettings) -> str:
    return ", ".join(str(path) for path in loaded.files) or "defaults and variables only"


def _check_network(patient: Patient) -> DoctorCheck:
    source = patient.loaded.find_source("network.allow_net")
    if not patient.loaded.settings.network.allow_net:
        return DoctorCheck(
            name="network",
            status="ok",
            found=f"tools may not reach the network ({source})",
            fix="Set ALLOW_NET=true to permit it, within the policies.",
        )
    return DoctorCheck(
        name="network",
        status="ok",
        found=f"tools may reach the network, within policies ({source})",
    )


def _say_advice(checks: list[DoctorCheck], *, is_well: bool) -> None:
    for check in checks:
        if check.status != "ok":
            say(f"\n{check.name}: {check.found}")
            if check.means:
                say(f"  means: {check.means}")
            if check.fix:
                say(f"  get it: {check.fix}")
    say("\nAll that Holdfast needs is here." if is_well else "\nSomething needed is missing.")
