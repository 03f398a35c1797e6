"""Failures that an operator meets: log, metrics and commands alone name the cause of each."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient, tool
from holdfast.cli.app import root
from holdfast.observability import configure_logs
from holdfast.policy import Budget
from holdfast.settings import load_settings
from holdfast.testing import FakeServer, FunctionModel, ScriptedModel, tool_call


@tool(effect="unsafe")
def deploy(place: str) -> str:
    """Deploy to a place."""
    return f"deployed to {place}"


DIES = """
import asyncio, os, signal, sys
from holdfast import Agent, AsyncClient, tool
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

@tool(effect="unsafe")
def deploy(place: str) -> str:
    "Deploy to a place."
    os.kill(os.getpid(), signal.SIGKILL)
    return ""

async def main():
    settings = load_settings(overrides={"sessions.lease_ttl_s": 1.0}).settings
    async with AsyncClient(sys.argv[1], settings=settings) as client:
        agent = Agent("deployer", model=ScriptedModel(tool_call("deploy", place="production")),
                      tools=[deploy])
        await client.runs.execute(agent, "", "go", run_id="job", on_ask="park")

asyncio.run(main())
"""


class Site:
    """One machine: its state directory, its workspace, and what an operator asks there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.log = io.StringIO()
        (place / "work").mkdir()
        (place / "policies").mkdir()

    @contextlib.asynccontextmanager
    async def open(self, **more: object) -> AsyncIterator[AsyncClient]:
        """Open a client whose log is kept, as a server's would be."""
        chosen: dict[str, object] = {
            "workspace": str(self.place / "work"),
            "policies.dir": str(self.place / "policies"),
            "storage.state_dir": str(self.place / "state"),
            "log.level": "info",
            "log.format": "json",
            **more,
        }
        settings = load_settings(overrides=chosen).settings
        restore = configure_logs(settings, stream=self.log)
        try:
            async with AsyncClient(settings=settings) as client:
                yield client
        finally:
            restore()

    def run(self, agent: Agent, chosen: dict[str, object] | None = None, **more: Any) -> Any:
        async def once() -> Any:
            async with self.open(**(chosen or {})) as client:
                return await client.runs.execute(agent, "", "go", run_id="job", **more)

        return asyncio.run(once())

    def ask(self, *words: str, config: Path | None = None) -> str:
        """Call a command, as an operator does."""
        where = ("--state-dir", str(self.place / "state"), "--workspace", str(self.place / "work"))
        environment = {"HOLDFAST_POLICIES__DIR": str(self.place / "policies"), "COLUMNS": "300"}
        if config is not None:
            environment["HOLDFAST_CONFIG"] = str(config)
        return CliRunner().invoke(root, [*where, *words], env=environment).output

    def metric(self, name: str) -> float:
        """Read one sample, named with its labels as it is shown."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("metrics"), re.MULTILINE)
        assert found, f"there is no metric {name}"
        return float(found[1])

    def lines(self, action: str) -> str:
        """Return the lines of the log of one action."""
        written = self.log.getvalue().splitlines()
        return "\n".join(one for one in written if json.loads(one).get("event.action") == action)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def _ask_server(site: Site, key: str) -> None:
    async with (
        FakeServer(key=key) as server,
        site.open(**{"model.openai_base_url": server.base_url}) as client,
    ):
        agent = Agent("talker", model="openai:fake-model")
        await client.runs.execute(agent, "", "go", run_id="job")


def test_the_key_of_the_provider_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else-0000000000")
    asyncio.run(_ask_server(site, key="sk-right"))
    assert "llm.auth" in site.lines("run.failed")
    shown = site.ask("runs", "show", "job")
    assert "llm.auth" in shown and "key" in shown.lower(), shown
    assert site.metric('holdfast_errors_total{code="llm.auth"}') == 1
    assert "key" in site.ask("docs", "llm.auth").lower()


def test_the_provider_does_not_answer(site: Site) -> None:
    agent = Agent("talker", model="openai:fake-model")
    site.run(agent, {"model.openai_base_url": "http://127.0.0.1:9/v1"})
    assert "127.0.0.1:9" in site.lines("run.failed")
    shown = site.ask("runs", "show", "job")
    assert "127.0.0.1:9" in shown and "llm.connection" in shown, shown
    assert site.metric('holdfast_errors_total{code="llm.connection"}') == 1
    told = CliRunner().invoke(
        root, ["providers", "test", "openai"], env={"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    )
    assert "127.0.0.1:9" in told.output and told.exit_code


def test_a_rule_refuses_the_call(site: Site) -> None:
    rules = [{"permission": "deploy", "action": "deny"}]
    model = ScriptedModel(tool_call("deploy", place="production"), "I may not.")
    site.run(Agent("deployer", model=model, tools=[deploy], permission=rules))
    assert "deploy" in site.lines("permission.denied")
    shown = site.ask("runs", "show", "job")
    assert "deploy" in shown and "the agent rule `deploy * deny` holds" in shown, shown
    assert site.metric("holdfast_permission_denials_total") == 1
    assert "deploy" in site.ask("audit", "list")


def test_the_new_policies_are_wrong(site: Site) -> None:
    file = site.place / "policies" / "tools.yaml"

    async def reload() -> str:
        async with site.open() as client:
            await client.policies.status()
            await asyncio.to_thread(
                file.write_text, "rules:\n  - {permission: bash, action: sometimes}\n"
            )
            assert not (await client.policies.reload()).is_accepted
            return await client.usage.metrics()

    assert '\nholdfast_policy_refused{tenant="default"} 1.0' in asyncio.run(reload())
    assert "tools.yaml" in site.lines("policy.rejected")
    told = site.ask("policies", "validate")
    assert "tools.yaml:2: rules.0.action" in told, told


def test_the_mcp_server_dies_at_its_start(site: Site) -> None:
    program = site.place / "server.py"
    program.write_text("import sys\nsys.exit('no licence file')\n")
    config = site.place / "config.toml"
    config.write_text(
        f'[mcp_endpoints.box]\ntransport = "stdio"\ncommand = "{sys.executable}"\n'
        f'args = ["{program}"]\nreadable = ["{site.place}", "{sys.prefix}", "{sys.base_prefix}"]\n'
    )
    endpoint = tomllib.loads(config.read_text())["mcp_endpoints"]
    agent = Agent("caller", model=ScriptedModel("hello"), allowed_tools=["mcp__box__*"])
    site.run(agent, {"mcp_endpoints": endpoint})
    assert "no licence file" in site.lines("mcp.lost")
    # What a file of the machine names is used once a person has trusted it.
    site.ask("mcp", "trust", "box", config=config)
    told = site.ask("mcp", "health", config=config)
    assert "box" in told and "no licence file" in told, told


def test_a_person_is_waited_for(site: Site) -> None:
    rules = [{"permission": "deploy", "action": "ask"}]
    model = ScriptedModel(tool_call("deploy", place="production"), "Done.")
    site.run(Agent("deployer", model=model, tools=[deploy], permission=rules), on_ask="park")
    assert "deploy" in site.lines("approval.requested")
    assert "parked" in site.ask("runs", "list")
    listed = site.ask("approvals", "list")
    assert "deploy" in listed and "job" in listed, listed
    [waiting] = re.findall(r"^apr_\w+", listed, re.MULTILINE)
    assert "production" in site.ask("approvals", "show", waiting)
    assert site.metric("holdfast_approvals_waiting") == 1
    assert site.metric('holdfast_runs_waiting{status="parked"}') == 1


def test_the_budget_is_spent(site: Site) -> None:
    def again(_: object) -> Any:
        return tool_call("deploy", place="here")

    agent = Agent("spender", model=FunctionModel(again), tools=[deploy])
    site.run(agent, budget=Budget(max_calls=3))
    assert "budget.exceeded" in site.lines("run.failed")
    shown = site.ask("runs", "show", "job")
    assert "budget" in shown and "3" in shown, shown
    assert site.metric('holdfast_errors_total{code="budget.exceeded"}') == 1


def test_the_records_are_damaged(site: Site) -> None:
    site.run(Agent("talker", model=ScriptedModel("hello")))
    database = site.place / "state" / "journal.db"
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    damaged = bytearray(database.read_bytes())
    damaged[:100] = bytes(100)
    database.write_bytes(damaged)
    told = site.ask("runs", "list")
    assert "storage.damaged" in told and "journal.db" in told, told
    assert "storage rebuild" in told + site.ask("docs", "storage.damaged")


def test_a_process_died_between_an_effect_and_its_record(site: Site) -> None:
    program = site.place / "program.py"
    program.write_text(DIES)
    ended = subprocess.run(
        [sys.executable, str(program), str(site.place / "state")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=site.place / "work",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert "running" in site.ask("runs", "list")
    model = ScriptedModel(tool_call("deploy", place="production"), "Done.")
    chosen = {"sessions.lease_ttl_s": 1.0}
    site.run(Agent("deployer", model=model, tools=[deploy]), chosen, on_ask="park")
    assert "deploy" in site.lines("tool.unknown_outcome")
    listed = site.ask("approvals", "list")
    assert "deploy" in listed and "unknown" in listed, listed
    assert "approvals decide" in site.ask("approvals", "decide", "--help")
