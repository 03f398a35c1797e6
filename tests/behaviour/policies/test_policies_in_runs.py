"""What the operator's policies do to runs: reload, budgets, shadow mode, violations, tenants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import Agent, AsyncClient, tool, toolset
from holdfast.cli.app import root
from holdfast.errors import PolicyInvalid, UsageError
from holdfast.hooks import BusEvent
from holdfast.hooks.points import SystemSecurityViolation
from holdfast.journal import SYSTEM_SESSION
from holdfast.messages import TokenUsage, ToolPart
from holdfast.policy.budgets import Budget, choose_stricter
from holdfast.policy.file_events import PolicyDiffered, PolicyRejected
from holdfast.settings import load_settings
from holdfast.testing import ModelReply, ScriptedModel, tool_call
from holdfast.testing.fake_server import FakeServer
from holdfast.tools import Tool

EVERYTHING = [{"permission": "*", "pattern": "*", "action": "allow"}]


class Place:
    """A workspace with policies, and clients on it."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.policies = folder / "policies"
        self.candidate = folder / "candidate"
        self.state = folder / "state"
        for one in (self.work, self.policies, self.candidate):
            one.mkdir()
        (self.work / "a.txt").write_text("hello\n")

    def rule(self, text: str) -> None:
        (self.policies / "tools.yaml").write_text(text)

    def client(self, *, has_shadow: bool = False, tenant: str = "", **more: object) -> AsyncClient:
        overrides: dict[str, object] = {
            "workspace": str(self.work),
            "storage.state_dir": str(self.state),
            "policies.dir": str(self.policies),
            **more,
        }
        if has_shadow:
            overrides["policies.shadow_dir"] = str(self.candidate)
        settings = load_settings(overrides=overrides).settings
        return AsyncClient(settings=settings, tenant=tenant)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
async def client(place: Place) -> AsyncIterator[AsyncClient]:
    async with place.client() as opened:
        yield opened


async def run(client: AsyncClient, *calls: object, name: str = "worker", **more: Any) -> Any:
    model = ScriptedModel(*calls, "done")  # type: ignore[arg-type]
    agent = Agent(name, permission=EVERYTHING, model=model, **more)
    return await agent.run("go", client=client, raise_on_failure=False)


def acting(name: str, act: Callable[[], Any]) -> Tool:
    @tool(name=name, effect="read")
    async def made(n: int = 0) -> str:
        """Do it."""
        await act()
        return "done"

    return made


def part_of(result: Any, at: int) -> ToolPart:
    found: ToolPart = result.tools_used[at]
    return found


# --- reload ---------------------------------------------------------------------------


async def test_reload_holds_from_the_next_call_of_a_run_on(place: Place) -> None:
    async with place.client() as client:

        async def forbid() -> None:
            place.rule("rules: [{permission: read, action: deny}]\n")
            assert (await client.policies.reload()).is_accepted

        model = ScriptedModel(
            tool_call("read", file_path="a.txt"),
            tool_call("forbid"),
            tool_call("read", file_path="a.txt"),
            "done",
        )
        agent = Agent(
            "worker",
            permission=EVERYTHING,
            model=model,
            tools=[acting("forbid", forbid), *toolset("files:read")],
        )
        assert (await agent.run("go", client=client)).status == "completed"
        states = [request.messages[-1].tool_calls[0].state for request in model.requests[1:]]
        assert states == ["completed", "completed", "error"]


# --- budgets --------------------------------------------------------------------------


async def test_policies_limit_the_tool_calls_of_an_agent(place: Place) -> None:
    place.rule("agents: {worker: {max_tool_calls: 1}}\n")
    async with place.client() as client:
        calls = [tool_call("read", file_path="a.txt"), tool_call("list", path=".")]
        result = await run(client, *calls)
        assert (result.status, result.metadata["error"]["code"]) == ("failed", "budget.exceeded")
        assert result.metadata["error"]["context"]["kind"] == "tool call"
        assert (await run(client, *calls, name="other")).status == "completed"


@pytest.mark.parametrize(
    "text",
    ["budgets: {max_tokens: 10}\n", "defaults: {max_tokens: 10}\n", "budgets: {max_wall_s: 0}\n"],
)
async def test_policies_limit_what_a_run_may_spend(place: Place, text: str) -> None:
    place.rule(text)
    async with place.client() as client:
        result = await run(client)
        assert (result.status, result.metadata["error"]["code"]) == ("failed", "budget.exceeded")


async def test_an_agent_cannot_widen_what_the_operator_gives(place: Place) -> None:
    place.rule("agents: {worker: {max_tool_calls: 0}}\n")
    async with place.client() as client:
        wide = Budget(max_tool_calls=100)
        result = await run(client, tool_call("read", file_path="a.txt"), budget=wide)
        assert result.status == "failed"


async def test_budget_that_a_reload_changes_holds_in_the_running_run_and_keeps_its_sum(
    place: Place,
) -> None:
    place.rule("budgets: {max_tool_calls: 100}\n")
    async with place.client() as client:

        async def narrow() -> None:
            place.rule("budgets: {max_tool_calls: 2}\n")
            assert (await client.policies.reload()).is_accepted

        result = await run(
            client,
            tool_call("narrow"),
            tool_call("read", file_path="a.txt"),
            tool_call("list", path="."),
            tools=[acting("narrow", narrow), *toolset("files:read")],
        )
        assert (result.status, result.metadata["error"]["code"]) == ("failed", "budget.exceeded")


def test_stricter_takes_the_smaller_of_each_limit() -> None:
    one = Budget(max_cost_usd=1.0, max_tokens=5, on_unknown_price="ignore")
    other = Budget(max_tokens=9, max_calls=2, max_wall_s=3.0)
    assert choose_stricter(one, other) == Budget(
        max_cost_usd=1.0, max_tokens=5, max_calls=2, max_wall_s=3.0, on_unknown_price="ignore"
    )
    refusing = Budget(max_cost_usd=2.0)
    assert choose_stricter(one, refusing).on_unknown_price == "refuse"
    assert not choose_stricter(Budget(), Budget()).has_limits


# --- tenants --------------------------------------------------------------------------


async def test_tenants_of_one_state_directory_have_budgets_of_their_own(place: Place) -> None:
    limit = {"budget.max_calls": 1}
    answers = [ModelReply(text="fine", usage=TokenUsage(input=1))]

    async def status(tenant: str) -> str:
        async with place.client(tenant=tenant, **limit) as client:
            agent = Agent("a", model=ScriptedModel(*answers))
            return str((await agent.run("go", client=client, raise_on_failure=False)).status)

    assert await status("north") == "completed"
    assert await status("north") == "failed"
    assert await status("south") == "completed"
    async with place.client(**limit) as client:
        assert client.tenant == "default"


def test_tenant_needs_a_plain_name(place: Place) -> None:
    with pytest.raises(UsageError):
        place.client(tenant="../x")


# --- shadow mode ----------------------------------------------------------------------


async def differences(client: AsyncClient) -> list[PolicyDiffered]:
    journal = await client.storage.journal()
    kinds = frozenset({PolicyDiffered.kind})
    return [e.expect(PolicyDiffered) for e in await journal.read(SYSTEM_SESSION, kinds=kinds)]


async def test_candidate_judges_every_call_and_changes_nothing(place: Place) -> None:
    (place.candidate / "tools.yaml").write_text("rules: [{permission: read, action: deny}]\n")
    async with place.client(has_shadow=True) as client:
        read = tool_call("read", file_path="a.txt")
        result = await run(client, read, tool_call("list", path="."))
        assert result.status == "completed"
        store = await client.policies.store()
        await store.settle()
        [found] = await differences(client)
        assert (found.permission, found.decided, found.candidate) == ("read", "allow", "deny")
        assert (found.targets, found.agent) == (("a.txt",), "worker")
        assert found.candidate_version == store.shadow.version  # type: ignore[union-attr]
        assert found.because == "read * deny"


async def test_differences_are_listed_at_the_command_line(place: Place) -> None:
    (place.candidate / "tools.yaml").write_text("rules: [{permission: read, action: ask}]\n")
    async with place.client(has_shadow=True) as client:
        await run(client, tool_call("read", file_path="a.txt"))
    words = ["--json", "--state-dir", str(place.state), "policies", "shadow"]
    shown = await asyncio.to_thread(CliRunner().invoke, root, words)
    assert shown.exit_code == 0, shown.output
    [row] = json.loads(shown.stdout)["differences"]
    assert (row["tool"], row["decided"], row["candidate"]) == ("read", "allow", "ask")
    text = await asyncio.to_thread(CliRunner().invoke, root, words[1:])
    assert "1 differences are kept" in text.output + text.stderr


async def test_wrong_candidate_is_told_before_any_run(place: Place) -> None:
    (place.candidate / "tools.yaml").write_text("rulez: []\n")
    async with place.client(has_shadow=True) as client:
        with pytest.raises(PolicyInvalid):
            await run(client)


async def test_reload_reads_the_candidate_again_and_keeps_the_last_good_one(place: Place) -> None:
    async with place.client(has_shadow=True) as client:
        store = await client.policies.store()
        assert store.shadow is not None
        (place.candidate / "tools.yaml").write_text("rules: [{permission: read, action: deny}]\n")
        await client.policies.reload()
        good = store.shadow.version
        (place.candidate / "tools.yaml").write_text("rulez: []\n")
        assert (await client.policies.reload()).is_accepted
        assert store.shadow.version == good
        kinds = frozenset({PolicyRejected.kind})
        [event] = await (await client.storage.journal()).read(SYSTEM_SESSION, kinds=kinds)
        assert event.expect(PolicyRejected).kept_version == good
        store.stop_watching()
        assert store.shadow is None


# --- violations -----------------------------------------------------------------------


async def violations(client: AsyncClient, *calls: object, **more: Any) -> list[BusEvent]:
    heard: list[BusEvent] = []
    await client.events.subscribe("policy.violation", heard.append)
    await run(client, *calls, **more)
    await client.events.settle()
    return heard


@pytest.mark.parametrize(
    ("call", "source"),
    [
        (tool_call("webfetch", url="https://example.org/x"), "ceiling"),
        (tool_call("read", file_path="secret.txt"), "ceiling"),
        (tool_call("bash", command="ls\u202ex"), "agent"),
    ],
)
async def test_refused_call_is_a_violation(place: Place, call: ToolPart, source: str) -> None:
    (place.policies / "paths.yaml").write_text("blocked_globs: [secret.txt]\n")
    async with place.client() as client:
        [event] = await violations(client, call)
        assert (event.data["source"], event.data["agent"]) == (source, "worker")
        assert event.data["policy_version"] == (await client.policies.store()).bundle.version


async def test_agents_own_deny_is_a_violation_and_a_persons_no_is_none(client: AsyncClient) -> None:
    strict = [*EVERYTHING, {"permission": "read", "pattern": "*", "action": "deny"}]
    heard: list[BusEvent] = []
    await client.events.subscribe("policy.violation", heard.append)
    for rules in (strict, [{"permission": "read", "pattern": "*", "action": "ask"}]):
        model = ScriptedModel(tool_call("read", file_path="a.txt"), "done")
        await Agent("w", permission=rules, model=model).run("go", client=client)
    await client.events.settle()
    assert [event.data["source"] for event in heard] == ["agent"]


async def test_what_a_tool_refuses_is_a_violation_and_hooks_hear_of_it(place: Place) -> None:
    told: list[SystemSecurityViolation] = []
    (place.work / "out").symlink_to("/etc")
    async with place.client() as client:
        client.hooks.observe(SystemSecurityViolation, told.append)
        heard = await violations(client, tool_call("read", file_path="out/passwd"))
        assert [event.data["source"] for event in heard] == ["tool"]
        assert [hook.tool or hook.permission for hook in told]


async def test_how_often_a_host_was_asked_is_not_forgotten_with_a_reload(place: Place) -> None:
    rules = "allow_net: true\nallowed_hosts: ['127.0.0.1:*']\nprivate_networks: [127.0.0.0/8]\n"
    text = rules + "rate_limits: {default_per_minute: 1}\n"
    (place.policies / "network.yaml").write_text(text)
    async with FakeServer() as server, place.client(**{"network.allow_net": True}) as client:
        url = f"{server.origin}/v1/models"
        assert (await client.tools.call("webfetch", {"url": url})).part.state == "completed"
        (place.policies / "network.yaml").write_text(text + "blocked_hosts: [bad.test]\n")
        assert (await client.policies.reload()).is_accepted
        asked = (await client.tools.call("webfetch", {"url": url})).part
        assert (asked.state, "allows no further requests" in asked.error) == ("error", True)


async def test_a_closed_network_says_what_opens_it(place: Place) -> None:
    async with place.client() as client:
        closed = (await client.tools.call("webfetch", {"url": "https://example.org"})).part
        assert closed.state == "error"
        assert "ALLOW_NET" in closed.error


# --- the raw network ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow_net", "text", "state"),
    [
        (True, "allow_net: true\nraw_processes: true\n", "completed"),
        (True, "allow_net: true\n", "error"),
        (True, "raw_processes: true\n", "error"),
        (False, "allow_net: true\nraw_processes: true\n", "error"),
        (True, "", "error"),
    ],
)
async def test_command_gets_the_raw_network_only_where_the_operator_says_so(
    place: Place, allow_net: bool, text: str, state: str
) -> None:
    (place.policies / "network.yaml").write_text(text)
    async with place.client(**{"network.allow_net": allow_net}) as client:
        model = ScriptedModel(tool_call("bash", command="cat a.txt"), "done")
        agent = Agent("w", permission=EVERYTHING, model=model, sandbox="network")
        await agent.run("go", client=client)
        [call] = model.requests[1].messages[-1].tool_calls
        assert call.state == state, call.error
        if state == "completed":
            assert "/network" in call.metadata["sandbox"]
        else:
            assert "is not allowed" in call.error


@pytest.mark.parametrize("name", ["reviewer", "REVIEWER"])
async def test_policy_of_an_agent_holds_whatever_the_case_of_its_name(
    place: Place, name: str
) -> None:
    place.rule("agents: {Reviewer: {allowed_tools: [grep], max_tool_calls: 1}}\n")
    async with place.client() as client:
        model = ScriptedModel(tool_call("read", file_path="a.txt"), "done")
        agent = Agent(name, permission=EVERYTHING, model=model)
        await agent.run("go", client=client)
        assert [spec.name for spec in model.requests[0].tools] == ["grep"]
        assert model.requests[1].messages[-1].tool_calls[0].state == "error"
        bundle = (await client.policies.store()).bundle
    assert bundle.compute_limits(name).max_tool_calls == 1


async def test_filtered_commands_reach_what_policies_and_the_agents_rules_allow(place: Place):
    (place.policies / "network.yaml").write_text(
        "allow_net: true\nallowed_hosts: ['127.0.0.1:*', 'kept.test:*']\n"
        "private_networks: ['127.0.0.0/8']\n"
    )
    ask = "curl -s -o /dev/null -w %{http_code} --noproxy none"
    model = ScriptedModel(
        tool_call("bash", command=f"{ask} http://127.0.0.1/", description="a"),
        tool_call("bash", command=f"{ask} http://elsewhere.test/", description="b"),
        tool_call("bash", command=f"{ask} http://kept.test/", description="c"),
        "done",
    )
    rules = [
        *EVERYTHING,
        {"permission": "egress", "action": "allow"},
        {"permission": "network", "pattern": "kept.test", "action": "deny"},
    ]
    async with place.client(**{"network.allow_net": True}) as client:
        agent = Agent("w", permission=rules, model=model, sandbox="filtered")
        await client.runs.execute(agent, "", "go")
        journal = await client.storage.journal()
        kinds = frozenset({"egress.opened", "egress.refused"})
        facts = await journal.read(SYSTEM_SESSION, kinds=kinds)
    told = [(fact.kind, json.loads(fact.payload)["host"]) for fact in facts]
    # The first one may be reached, whether anything listens there or not.
    assert told == [
        ("egress.opened", "127.0.0.1"),
        ("egress.refused", "elsewhere.test"),
        ("egress.refused", "kept.test"),
    ]
    assert all(fact.agent_path == "w" for fact in facts)
