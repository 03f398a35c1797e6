"""No call that needs consent ever runs without a matching, unused approval."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents import Agent
from holdfast.journal import Event, Journal, MemoryStore, Origin, RowQuery
from holdfast.policy import CallRequest, RuleSet, decide
from holdfast.policy.approvals import APPROVALS, Approval, ApprovalTerms, seal, seal_approval
from holdfast.policy.events import ApprovalAnswered, ApprovalUsed
from holdfast.runs import AgentRuntime
from holdfast.sessions import SESSION_PROJECTIONS, PermissionRule, SessionManager
from holdfast.sessions.events import SessionRulesAdded
from holdfast.testing import ScriptedModel, run_services, tool_call
from holdfast.tools import Tool, ToolContext, ToolRegistry, tool
from holdfast.tools.events import ToolStarted
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest
from holdfast.turns import LeaseKeeper, TurnQueue

NAMES = ("t0", "t1", "t2")
PEOPLE = ("ann", "bob")

rules = st.builds(
    PermissionRule,
    permission=st.sampled_from((*NAMES, "*")),
    pattern=st.sampled_from(("*", "x0", "x1", "edited")),
    action=st.sampled_from(("allow", "ask", "deny")),
)
calls = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(("x0", "x1", "x2"))), min_size=1, max_size=4
)
verdicts = st.sampled_from(("allow", "deny", "edit", "rule", "stop", "nobody"))
answers = st.tuples(verdicts, st.sampled_from(PEOPLE))
strangers = st.tuples(
    st.sampled_from(("allow", "deny", "edit", "forge", "late")), st.sampled_from(PEOPLE)
)


class Attendant:
    """Answers from a script while the run waits; afterwards nobody is there."""

    def __init__(self, script: Sequence[tuple[str, str]]) -> None:
        self._script = list(script)

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        verdict, by = self._script.pop(0) if self._script else ("nobody", "")
        if verdict == "nobody":
            return None
        if verdict in ("deny", "stop"):
            return ApprovalAnswer(verdict=verdict, by=by)  # type: ignore[arg-type]
        return ApprovalAnswer(
            verdict="allow",
            by=by,
            arguments={**request.arguments, "target": "edited"} if verdict == "edit" else None,
            rules=request.rules if verdict == "rule" else (),
        )


class World:
    """A journal in memory, three tools, and the list of what they did."""

    def __init__(self) -> None:
        self.did: list[tuple[str, str]] = []
        store = MemoryStore(projections=(*SESSION_PROJECTIONS, APPROVALS))
        self.journal = Journal(store)
        self.keeper = LeaseKeeper(self.journal, ttl_s=30)
        self.sessions = SessionManager(self.journal, self.keeper)
        self.turns = TurnQueue(self.sessions, self.keeper)

    def tools(self) -> list[Tool]:
        def make(name: str) -> Tool:
            async def act(number: int, target: str, context: ToolContext) -> str:
                """Act."""
                self.did.append((context.call_id, target))
                return "done"

            return tool(name=name, permission="ask", target="target")(act)

        return [make(name) for name in NAMES]

    async def answer(self, row: Approval, verdict: str, by: str) -> None:
        """Append what somebody in another process says, be it right or wrong."""
        arguments = {"number": 0, "target": "edited"}
        right = seal_approval(row, arguments) if verdict == "edit" else row.seal
        fact = ApprovalAnswered(
            approval_id=row.id,
            verdict="deny" if verdict == "deny" else "allow",
            by=by,
            seal="0" * 64 if verdict == "forge" else right,
            is_edited=verdict == "edit",
            arguments=arguments if verdict == "edit" else None,
        )
        await self.journal.append(row.session_id, [fact], origin=Origin(run_id=row.run_id))
        await self.turns.wake(row.run_id, cause=by)


async def play(
    wanted: list[tuple[str, str]],
    agent_rules: list[PermissionRule],
    script: list[tuple[str, str]],
    others: list[tuple[str, str]],
    required: int,
    park: bool,
) -> None:
    world = World()
    async with world.journal:
        session = await world.sessions.create_session("s")
        parts = [
            tool_call(name, number=place, target=target)
            for place, (name, target) in enumerate(wanted)
        ]
        agent = Agent("a", tools=world.tools(), permission=agent_rules)
        model = ScriptedModel(parts, "done")
        terms = ApprovalTerms(on_ask="park" if park else "deny", required=required)
        approver = Attendant(script)
        for verdict, by in [*others, ("", "")]:
            # Each round is a new process: nothing is left in memory but the journal.
            runtime = AgentRuntime(
                run_services(world.sessions, world.turns, terms=terms, approver=approver),
                model=model,
            )
            result = await runtime.execute_agent(agent, session, "go", ToolRegistry(), run_id="job")
            if result.status != "parked":
                break
            query = RowQuery(projection=APPROVALS, session_id=session.id, limit=100)
            rows = [keyed.row for keyed in await world.journal.rows(query)]
            for row in rows if verdict else ():
                await world.answer(row, verdict, by)
        events = await world.journal.read_all(session.id)
        await world.turns.close()
        check(events, RuleSet(rules=tuple(agent_rules)), world.did, required)


def check(events: list[Event], agent: RuleSet, did: list[tuple[str, str]], required: int) -> None:
    """Go through the journal as an auditor would, without the code that wrote it."""
    session: tuple[PermissionRule, ...] = ()
    table: dict[str, Approval] = {}
    used: list[ApprovalUsed] = []
    began: list[tuple[str, str]] = []
    for event in events:
        fact: Any = event.decode()
        if event.kind in APPROVALS.kinds:
            row = APPROVALS.apply(table.get(fact.approval_id), event, fact)
            assert row is not None
            if isinstance(fact, ApprovalUsed):
                assert not table[fact.approval_id].is_used
                used.append(fact)
            table[fact.approval_id] = row
        elif isinstance(fact, SessionRulesAdded):
            session += fact.rules
        elif isinstance(fact, ToolStarted):
            intent = fact.intent
            began.append((intent.call_id, intent.arguments["target"]))
            asked = CallRequest(
                permission=intent.tool, targets=fact.targets, target_kind="text", default="ask"
            )
            action = decide(asked, agent=agent, session=RuleSet(rules=session)).action
            assert action != "deny"
            if action == "ask":
                last = used[-1]
                approval = table[last.approval_id]
                assert approval.status == "used"
                assert last.call_id == intent.call_id == approval.call_id
                assert last.seal == seal(
                    tool=intent.tool,
                    arguments=intent.arguments,
                    agent_path="a",
                    permission=intent.tool,
                    policy_version=fact.policy_version,
                )
                people = {vote.by for vote in approval.votes if vote.seal == last.seal}
                assert len(people) >= required
    assert sorted(began) == sorted(did)
    assert len({call for call, _ in did}) == len(did)
    assert len({fact.approval_id for fact in used}) == len(used)
    assert msgspec.json.encode(list(table.values()))


@settings(max_examples=100)
@given(
    wanted=calls,
    agent_rules=st.lists(rules, max_size=3),
    script=st.lists(answers, max_size=3),
    others=st.lists(strangers, max_size=4),
    required=st.integers(1, 2),
    park=st.booleans(),
)
def test_no_call_that_asks_runs_without_a_matching_unused_approval(
    wanted: list[tuple[str, str]],
    agent_rules: list[PermissionRule],
    script: list[tuple[str, str]],
    others: list[tuple[str, str]],
    required: int,
    park: bool,
) -> None:
    asyncio.run(play(wanted, agent_rules, script, others, required, park))
