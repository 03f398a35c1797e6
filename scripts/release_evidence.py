"""Run what a release must prove, keep what was seen, and write the reports from it."""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from holdfast import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
REPORTS: Final = ROOT / "docs" / "reports"
EVIDENCE: Final = REPORTS / "evidence"
_GAPS: Final = ROOT / "scripts" / "known_gaps.toml"
_NOTE: Final = "<!-- Written by scripts/release-evidence; run it instead of changing this. -->\n"
_TAIL_LINES: Final = 12
_PLACES: Final = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)+([\w.@+-]+)")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Something to run, and what it proves where it ends with 0."""

    command: str
    proves: str
    is_blocking: bool = True
    """Whether a release waits for it."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen when a step ran."""

    name: str
    command: str
    exit_code: int
    seconds: float
    commit: str
    time: str
    python: str
    system: str
    tail: tuple[str, ...]

    @property
    def is_passed(self) -> bool:
        """Whether it proved what it was to prove."""
        return self.exit_code == 0


STEPS: Final[dict[str, Step]] = {
    "check": Step(command="./scripts/check", proves="types, style, rooms, public names"),
    "test": Step(command="./scripts/test", proves="the whole suite, none skipped"),
    "upgrade": Step(
        command="./scripts/test tests/upgrade -q",
        proves="records and whole state directories of every release before open and go on",
    ),
    "smoke-responses": Step(
        command=".venv/bin/python scripts/smoke_test.py", proves="the Responses API works"
    ),
    "smoke-chat": Step(
        command="AGENT_FORCE_CHAT_COMPLETIONS=true .venv/bin/python scripts/smoke_test.py",
        proves="the Chat Completions API works",
    ),
    "registry": Step(
        command=".venv/bin/holdfast --json tools list | tee docs/reports/evidence/tools.json",
        proves="snapshot of the registry of tools",
    ),
    "mcp": Step(
        command=".venv/bin/holdfast --json mcp health | tee docs/reports/evidence/servers.json",
        proves="state of the MCP servers",
    ),
    "policies": Step(
        command=".venv/bin/holdfast policies validate", proves="the policies can be read"
    ),
    "chaos": Step(
        command="./scripts/chaos --to docs/reports/evidence/chaos-scenarios.json",
        proves="what must hold does when models, disks, clocks, processes, databases fail",
    ),
    "load": Step(
        command="./scripts/load --to docs/reports/evidence/load-levels.json",
        proves="no run fails under load; where the knee is",
    ),
    "release": Step(
        command="./scripts/release",
        proves="wheel in a fresh environment; bill of materials; licences",
    ),
    "deploy": Step(
        command="./scripts/test-deploy", proves="compose, Kubernetes and units fit their schemas"
    ),
    "image": Step(command="./scripts/image-test", proves="the image builds, and works as uid 1000"),
    "monitoring": Step(
        command="./scripts/test-monitoring", proves="a real Prometheus reads metrics and alerts"
    ),
    "phoenix": Step(command="./scripts/test-phoenix", proves="a real Phoenix reads the traces"),
    "postgres": Step(command="./scripts/test-postgres", proves="the same suite on Postgres"),
    "pythons": Step(command="./scripts/test-pythons", proves="every Python that is promised"),
    "soak": Step(
        command="./scripts/soak", proves="every crash at every boundary", is_blocking=False
    ),
}


def find_commit() -> str:
    """Return the commit that is checked out, marked where files differ from it."""
    asked = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def clean(line: str) -> str:
    """Return a line without directories of this machine and without colours."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line.replace(str(ROOT), "."))
    return _PLACES.sub(r"\1", line)[:300]


def run_step(name: str) -> Evidence:
    """Run a step, and keep what was seen."""
    step, commit, began = STEPS[name], find_commit(), time.monotonic()
    sys.stdout.write(f"{name}: {step.command}\n")
    sys.stdout.flush()
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", step.command],
        cwd=ROOT, capture_output=True, text=True, check=False, errors="replace",
    )  # fmt: skip
    lines = done.stdout + done.stderr if done.returncode else done.stdout or done.stderr
    told = [clean(line) for line in lines.splitlines() if line.strip()]
    found = Evidence(
        name=name,
        command=step.command,
        exit_code=done.returncode,
        seconds=round(time.monotonic() - began, 1),
        commit=commit,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        tail=tuple(told[-_TAIL_LINES:]),
    )
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode()
    (EVIDENCE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(f"  {'passed' if found.is_passed else 'FAILED'}, {found.seconds} s\n")
    return found


def read_evidence() -> dict[str, Evidence]:
    """Return what was seen, by step."""
    return {
        name: msgspec.json.decode((EVIDENCE / f"{name}.json").read_bytes(), type=Evidence)
        for name in STEPS
        if (EVIDENCE / f"{name}.json").is_file()
    }


def describe(found: Evidence | None) -> str:
    """Return how a step went, in a word or two."""
    if found is None:
        return "**not run**"
    return "passed" if found.is_passed else f"**failed** ({found.exit_code})"


def write_checklist(seen: dict[str, Evidence]) -> str:
    """The page of what a release waits for."""
    lines = [_NOTE, "# Release checklist", "", f"Version {__version__}.", ""]
    lines += ["| step | command | state | commit | when | seconds |", "|---|---|---|---|---|---|"]
    for name, step in STEPS.items():
        found = seen.get(name)
        about = f"{found.commit} | {found.time} | {found.seconds}" if found else " |  | "
        command = step.command.replace("|", "\\|")
        lines.append(f"| {name}: {step.proves} | `{command}` | {describe(found)} | {about} |")
    lines += ["", "Then, by a person:", ""]
    lines += [
        "1. Every blocking step has passed on the commit that is to be tagged.",
        "2. `./scripts/changelog VERSION DATE`; the version in `src/holdfast/_version.py`.",
        "3. `git tag -s vVERSION`: `.github/workflows/deploy.yml` builds, attests, and waits for "
        "the approval of its environment before it publishes.",
        "4. The migration and upgrade pages say what changes for users.",
    ]
    return "\n".join(lines) + "\n"


def write_matrix(seen: dict[str, Evidence]) -> str:
    """The page of what works with what."""
    lines = [_NOTE, "# Compatibility matrix", ""]
    lines += ["| with | how it is proven | state |", "|---|---|---|"]
    rows = [
        ("OpenAI Responses API", "smoke-responses"),
        ("OpenAI Chat Completions API (`AGENT_FORCE_CHAT_COMPLETIONS=true`)", "smoke-chat"),
        ("SQLite, the default store", "test"),
        ("Postgres", "postgres"),
        ("Python 3.11, 3.12, 3.13", "pythons"),
        ("Docker, as uid 1000, read-only root", "image"),
        ("Compose, Kubernetes, systemd", "deploy"),
        ("Prometheus", "monitoring"),
        ("Arize Phoenix over OTLP", "phoenix"),
        ("state directories of earlier releases", "upgrade"),
        ("a fresh environment, from the wheel", "release"),
    ]
    for what, name in rows:
        found = seen.get(name)
        where = f" on {found.system}, Python {found.python}" if found else ""
        lines.append(f"| {what} | `{STEPS[name].command}` | {describe(found)}{where} |")
    return "\n".join(lines) + "\n"


def write_readiness(seen: dict[str, Evidence]) -> str:
    """The page that says whether it can be released, and why not."""
    blocking = {name for name, step in STEPS.items() if step.is_blocking}
    passed = {name for name, found in seen.items() if found.is_passed}
    commits = {found.commit for found in seen.values()}
    missing = [name for name in STEPS if name in blocking - passed]
    is_one = len(commits) == 1 and "dirty" not in "".join(commits)
    lines = [_NOTE, "# Readiness", ""]
    verdict = "ready" if not missing and is_one else "not ready"
    lines += [f"Version {__version__} is **{verdict}** for a release.", ""]
    if missing:
        lines.append(f"- Not passed: {', '.join(missing)}.")
    if not is_one:
        lines.append(f"- The evidence is of {len(commits)} states: {', '.join(sorted(commits))}.")
    for name in ("chaos", "load", "release", "image", "smoke-responses", "smoke-chat"):
        found = seen.get(name)
        lines += ["", f"## {name}", "", f"`{STEPS[name].command}`: {describe(found)}"]
        if found is not None and found.tail:
            lines += ["", "```text", *found.tail, "```"]
    return "\n".join(lines) + "\n"


def write_gaps(seen: dict[str, Evidence]) -> str:
    """The page of what is not there, and of what was not proven."""
    known = tomllib.loads(_GAPS.read_text(encoding="utf-8"))["gap"]
    lines = [_NOTE, "# Gaps", "", "## Not proven by the last runs", ""]
    open_steps = [name for name in STEPS if name not in seen or not seen[name].is_passed]
    lines += [f"- {name} ({describe(seen.get(name))}): {STEPS[name].proves}" for name in open_steps]
    lines += ["" if open_steps else "Nothing.", "## Known", ""]
    lines += ["| what | for whom it matters | what to do meanwhile |", "|---|---|---|"]
    lines += [f"| {one['what']} | {one['matters']} | {one['meanwhile']} |" for one in known]
    return "\n".join(lines) + "\n"


def write_reports() -> None:
    """Write every page."""
    seen = read_evidence()
    REPORTS.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("release-checklist", write_checklist(seen)),
        ("compatibility-matrix", write_matrix(seen)),
        ("ga-readiness", write_readiness(seen)),
        ("gap-analysis", write_gaps(seen)),
    ):
        (REPORTS / f"{name}.md").write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote docs/reports/{name}.md\n")


def main() -> int:
    """Do what was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("run", "report", "list"))
    parser.add_argument("step", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    if unknown := set(arguments.step) - set(STEPS):
        parser.error(f"there is no step {', '.join(sorted(unknown))}: see list")
    if arguments.action == "list":
        for name, step in STEPS.items():
            sys.stdout.write(f"{name:<16} {step.proves}\n")
        return 0
    failed = 0
    if arguments.action == "run":
        failed = sum(not run_step(name).is_passed for name in arguments.step or STEPS)
    write_reports()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
