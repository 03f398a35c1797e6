"""Runs the official MCP conformance suite in both roles, and writes what came of it.

Each scenario runs by itself: the suite starts all clients at once otherwise, and a machine with
two cores makes them late. A check that fails is written down with why it does; one that fails
without a reason known here ends this with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import socket
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "mcp-conformance.md"
REVISIONS: Final = ("2025-11-25", "2026-07-28")
ROLES: Final = ("server", "client")
SDK: Final = {
    ("server", "2025-11-25"): (84, 0),
    ("server", "2026-07-28"): (169, 25),
    ("client", "2025-11-25"): (298, 9),
    ("client", "2026-07-28"): (412, 14),
}
"""Checks that the official Python SDK passes and fails by itself, with the same suite."""
QUICK: Final = {
    "server": ("tools-call-simple-text", "tools-call-elicitation", "resources-read-text"),
    "client": ("tools_call", "auth/metadata-default", "sep-2322-client-request-state"),
}
_SCENARIO_S: Final = 180
_COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")
_CHECK: Final = re.compile(r"\[([\w$./-]+)\s*\] (SUCCESS|FAILURE|WARNING|SKIPPED)\s(.*)")
WHY: Final = {
    "tasks-": "The extension Tasks is optional; a call that takes long is a run of ours, which "
    "goes on without its client and is read as a session.",
    "json-schema-2020-12-preservation": "A schema of a server is foreign: what our models are "
    "shown is cleaned (`clean_schema`), and keywords that models do not understand are left out.",
    "auth/dpop": "DPoP is an optional extension that the SDK has no client for.",
    "auth/wif": "Workload identity federation is an optional extension; it needs an identity of "
    "the machine, which we are not told.",
    "auth/enterprise": "Enterprise-managed authorization is an optional extension; it needs the "
    "identity provider of a company.",
}
"""Why scenarios fail, by how their names begin."""


class Scenario(NamedTuple):
    """What came of one scenario."""

    role: str
    revision: str
    name: str
    passed: int
    failed: tuple[str, ...]
    warned: tuple[str, ...]


def find_why(name: str) -> str:
    """Return why a scenario fails, if that is known."""
    return next((why for begin, why in WHY.items() if name.startswith(begin)), "")


async def run_suite(tools: Path, *words: str) -> str:
    """Run the suite with some arguments; returns what it prints."""
    program = tools / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    process = await asyncio.create_subprocess_exec(
        tools / "node_modules" / ".bin" / "node",
        program,
        *words,
        cwd=tools,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_SCENARIO_S + 30):
            told, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        told, _ = await process.communicate()
    return _COLORS.sub("", told.decode(errors="replace"))


async def list_scenarios(tools: Path, revision: str) -> dict[str, list[str]]:
    """Return the names of the scenarios of a revision, by role, scored or not."""
    text = await run_suite(tools, "list", "--requirements", revision)
    found: dict[str, list[str]] = {role: [] for role in ROLES}
    role = ""
    for line in text.splitlines():
        if line.startswith(("Server scenarios", "Client scenarios")):
            role = line.split()[0].lower()
        unscored = re.match(r"\s+- (\S+) \[(server|client)\]", line)
        scored = re.match(r"\s+- (\S+)$", line)
        if unscored is not None:
            found[unscored[2]].append(unscored[1])
        elif scored is not None and role:
            found[role].append(scored[1])
    return found


def read_result(role: str, revision: str, name: str, text: str) -> Scenario:
    """Read what the suite printed about a scenario."""
    checks = {"SUCCESS": [], "FAILURE": [], "WARNING": [], "SKIPPED": []}  # type: dict[str, list[str]]
    for id, status, _ in _CHECK.findall(text.partition("Test Results:")[0]):
        checks[status].append(id)
    counted = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", text)
    failed = checks["FAILURE"]
    if counted is None:
        failed = failed or ["did not run to its end"]
    passed = int(counted[1]) if counted is not None else len(checks["SUCCESS"])
    return Scenario(role, revision, name, passed, tuple(failed), tuple(checks["WARNING"]))


def find_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def start_server(port: int) -> asyncio.subprocess.Process:
    """Start the server under test; returns when it answers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        ROOT / "scripts" / "_conformance" / "server.py",
        str(port),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    def look() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return True
        except OSError:
            return False

    for _ in range(120):
        if await asyncio.to_thread(look):
            return process
        await asyncio.sleep(0.5)
    process.kill()
    raise SystemExit("The server under test does not answer.")


async def run_all(
    tools: Path, roles: Sequence[str], revisions: Sequence[str], *, is_quick: bool
) -> list[Scenario]:
    """Run all scenarios, two clients at a time."""
    found: list[Scenario] = []
    client = f"{sys.executable} {ROOT / 'scripts' / '_conformance' / 'client.py'}"
    turn = asyncio.Semaphore(2)

    async def run(role: str, revision: str, name: str, where: Sequence[str]) -> None:
        async with turn:
            words = (role, *where, "--scenario", name, "--spec-version", revision, "--force")
            text = await run_suite(tools, *words)
        one = read_result(role, revision, name, text)
        found.append(one)
        mark = "ok  " if not one.failed else "FAIL"
        print(f"{mark} {role} {revision} {name}: {one.passed} passed, {len(one.failed)} failed")

    for revision in revisions:
        names = await list_scenarios(tools, revision)
        for role in roles:
            wanted = [n for n in names[role] if not is_quick or n in QUICK[role]]
            if role == "client":
                where = ("--command", client, "--timeout", str(_SCENARIO_S * 1000))
                await asyncio.gather(*(run(role, revision, name, where) for name in wanted))
                continue
            port = find_port()
            server = await start_server(port)
            try:
                for name in wanted:
                    await run(role, revision, name, ("--url", f"http://127.0.0.1:{port}/mcp"))
            finally:
                server.terminate()
                await server.wait()
    return found


def write_page(found: Sequence[Scenario]) -> str:
    """Return the page."""
    lines = [
        "# MCP conformance",
        "",
        "What the official suite, `@modelcontextprotocol/conformance`, finds when it drives "
        "Holdfast: as a server below `/mcp`, and as a client through `AsyncClient`. Written by "
        "`./scripts/conformance`, which names the version of the suite. The last column is what "
        "the official Python SDK passes and fails by itself.",
        "",
        "| role | revision | passed | failed | the SDK |",
        "|---|---|---|---|---|",
    ]
    for role in ROLES:
        for revision in REVISIONS:
            of = [one for one in found if (one.role, one.revision) == (role, revision)]
            passed, failed = sum(one.passed for one in of), sum(len(one.failed) for one in of)
            sdk = SDK[role, revision]
            lines.append(f"| {role} | {revision} | {passed} | {failed} | {sdk[0]} / {sdk[1]} |")
    lines += ["", "## What fails, and why", ""]
    failing = [one for one in found if one.failed]
    for one in sorted(failing):
        why = find_why(one.name) or "Not explained yet."
        checks = ", ".join(f"`{id}`" for id in one.failed)
        lines += [f"- **{one.name}** ({one.role}, {one.revision}): {checks}. {why}"]
    if not failing:
        lines.append("Nothing.")
    lines += ["", "## Scenarios", "", "| role | revision | scenario | passed | failed |"]
    lines.append("|---|---|---|---|---|")
    for one in sorted(found):
        cells = (one.role, one.revision, one.name, str(one.passed), str(len(one.failed)))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="where the suite is installed")
    parser.add_argument("--quick", action="store_true", help="a few scenarios; writes nothing")
    parser.add_argument("--role", choices=ROLES, action="append")
    parser.add_argument("--revision", choices=REVISIONS, action="append")
    options = parser.parse_args()
    roles, revisions = options.role or ROLES, options.revision or REVISIONS
    found = asyncio.run(run_all(options.tools, roles, revisions, is_quick=options.quick))
    if not options.quick and set(roles) == set(ROLES) and set(revisions) == set(REVISIONS):
        PAGE.write_text(write_page(found), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")
    wrong = [one for one in found if one.failed and not find_why(one.name)]
    print(f"{sum(one.passed for one in found)} passed, {sum(len(o.failed) for o in found)} failed")
    for one in wrong:
        print(f"not explained: {one.role} {one.revision} {one.name}: {', '.join(one.failed)}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
