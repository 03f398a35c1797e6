"""The check of the sandbox itself: which one is active, tried for real."""

from __future__ import annotations

from holdfast.cli.doctor_check import DoctorCheck, Patient
from holdfast.cli.event_loop import run_async
from holdfast.tools import describe_sandbox

_LIMITS = "limits of memory per process, of processes in all (rlimits)"


def check_sandbox(_patient: Patient) -> DoctorCheck:
    """Start every sandbox that this machine might have, and name the one that is used."""
    report = run_async(describe_sandbox())
    if report.active:
        return DoctorCheck(name="sandbox", status="ok", found=f"{report.active}; {_LIMITS}")
    return DoctorCheck(
        name="sandbox",
        status="warn",
        found=f"none; bubblewrap {report.bubblewrap}; Landlock {report.landlock}",
        means="Shell commands of agents are refused; everything else works.",
        fix="apt install bubblewrap, or a kernel with Landlock (5.13 or newer)",
    )
