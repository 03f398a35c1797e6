"""What is done about a call that a crash or a wait left open."""

from __future__ import annotations

import asyncio

import pytest
from run_kit import open_run

from holdfast.errors import NotFound, TellModel
from holdfast.journal import Origin
from holdfast.messages import ToolPart
from holdfast.tools import Intent, Parked, Reconciliation, ToolContext, ToolResult, tool
from holdfast.tools import ledger as ways
from holdfast.tools.events import (
    NestedCallEnded,
    ToolAnswered,
    ToolOutcomeDecided,
    ToolOutcomeUnknown,
    ToolParked,
    ToolStarted,
)
from holdfast.tools.ledger import CallRecord, choose_way_forward


def charge_tool(effect="unsafe", found=None):
    async def charge(amount: int) -> str:
        """Charge the customer."""
        return f"charged {amount}"

    async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
        return found

    options = {"reconcile": reconcile} if effect == "reconcile" else {}
    return tool(effect=effect, **options)(charge)


def started(effect="unsafe", message_id="m") -> ToolStarted:
    intent = Intent(
        tool="charge",
        version="1.0.0",
        call_id="c1",
        idempotency_key="k",
        arguments={"amount": 5},
    )
    return ToolStarted(intent=intent, message_id=message_id, effect=effect, source_hash="h")


def decided(verdict: str, result: ToolResult | None = None) -> ToolOutcomeDecided:
    return ToolOutcomeDecided(call_id="c1", verdict=verdict, decided_by="ann", result=result)


RESULT = ToolResult("charged before")


@pytest.mark.parametrize(
    ("tool_effect", "record", "way"),
    [
        ("read", CallRecord(), ways.Again),
        ("idempotent", CallRecord(started=started("idempotent")), ways.Again),
        ("unsafe", CallRecord(started=started(), began_under=1), ways.AskPerson),
        # A tool that has changed its mind about its effect does not know about the old call.
        ("idempotent", CallRecord(started=started("unsafe")), ways.AskPerson),
        ("unsafe", CallRecord(started=started("idempotent")), ways.AskPerson),
        ("reconcile", CallRecord(started=started("unsafe")), ways.AskPerson),
        ("unsafe", CallRecord(started=started(), decided=decided("not_happened")), ways.Again),
        ("unsafe", CallRecord(started=started(), decided=decided("happened")), ways.Known),
        ("unsafe", CallRecord(started=started(), decided=decided("abort")), ways.Known),
    ],
)
async def test_the_declared_effect_decides(context, tool_effect, record, way):
    definition = charge_tool(tool_effect, Reconciliation(verdict="unknown"))
    assert isinstance(await choose_way_forward(definition, record, context), way)


@pytest.mark.parametrize(
    ("found", "way"),
    [
        (Reconciliation(verdict="happened", result=RESULT), ways.Known),
        (Reconciliation(verdict="not_happened"), ways.Again),
        (Reconciliation(verdict="unknown", because="the shop is closed"), ways.AskPerson),
        (Reconciliation(verdict="happened"), ways.AskPerson),
    ],
)
async def test_a_tool_that_can_reconcile_is_asked(context, found, way):
    record = CallRecord(started=started("reconcile"))
    answer = await choose_way_forward(charge_tool("reconcile", found), record, context)
    assert isinstance(answer, way)
    if isinstance(answer, ways.AskPerson) and found.because:
        assert found.because in answer.question


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        TellModel("the shop is closed"),
        SystemExit(1),
        NotFound(kind="a", value="b"),
    ],
)
async def test_a_tool_that_fails_to_reconcile_leaves_it_to_a_person(context, error):
    async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
        raise error

    @tool(effect="reconcile", reconcile=reconcile)
    async def charge(amount: int) -> str:
        """Charge the customer."""
        return f"charged {amount}"

    answer = await choose_way_forward(charge, CallRecord(started=started("reconcile")), context)
    assert isinstance(answer, ways.AskPerson)


async def test_a_tool_that_hangs_when_it_reconciles_leaves_it_to_a_person(context):
    async def reconcile(intent: Intent, context: ToolContext) -> Reconciliation:
        await asyncio.Event().wait()
        raise AssertionError

    @tool(effect="reconcile", reconcile=reconcile, timeout_s=0.01)
    async def charge(amount: int) -> str:
        """Charge the customer."""
        return f"charged {amount}"

    record = CallRecord(started=started("reconcile"))
    async with asyncio.timeout(30):
        assert isinstance(await choose_way_forward(charge, record, context), ways.AskPerson)


async def test_answers_of_people_become_results(context):
    answered = ToolAnswered(call_id="c1", answered_by="ann", result=ToolResult("yes"))
    known = await choose_way_forward(charge_tool(), CallRecord(answered=answered), context)
    assert known == ways.Known(ToolResult("yes"))
    gone = await choose_way_forward(
        charge_tool(), CallRecord(started=started(), decided=decided("abort")), context
    )
    assert gone.result.is_error
    told = CallRecord(started=started(), decided=decided("happened", RESULT))
    assert (await choose_way_forward(charge_tool(), told, context)).result == RESULT


async def test_a_new_attempt_makes_old_words_void(tmp_path):
    async with open_run(tmp_path, charge_tool()) as run:
        unknown = ToolOutcomeUnknown(call_id="c1", tool="charge", question="?")
        await run.turn.append(started(), unknown, decided("not_happened"))
        assert (await run.records())["c1"].decided is not None
        await run.turn.append(started())
        assert (await run.records())["c1"] == CallRecord(started=started(), began_under=1)


async def test_every_kind_of_fact_is_read_back(tmp_path):
    part = ToolPart(call_id="b.1", tool="charge", state="completed", output="x")
    facts = (
        ToolParked(call_id="p", tool="ask", reason="question", request={}),
        ToolAnswered(call_id="p", answered_by="ann", result=ToolResult("yes")),
        NestedCallEnded(call_id="b.1", message_id="m", part=part),
    )
    async with open_run(tmp_path) as run:
        await run.turn.append(*facts)
        records = await run.records()
    assert records["p"].parked == facts[0]
    assert records["p"].answered == facts[1]
    assert records["b.1"].ended == part
    assert not any(record.is_waiting for record in records.values())


@pytest.mark.parametrize("verdict", ["happened", "not_happened", "abort"])
async def test_an_unknown_outcome_waits_for_a_person_and_is_asked_once(tmp_path, verdict):
    async with open_run(tmp_path, charge_tool()) as run:
        calls = await run.ask(ToolPart(call_id="c1", tool="charge", input={"amount": 5}))
        await run.turn.append(started(message_id=calls[0].message_id))
        for _ in range(2):
            [parked] = await run.manager.execute_all(calls, records=await run.records())
            assert isinstance(parked, Parked)
        facts = await run.facts()
        assert sum(isinstance(fact, ToolOutcomeUnknown) for fact in facts) == 1
        assert (await run.records())["c1"].is_waiting
        journal = await run.client.storage.journal()
        await journal.append(run.session_id, [decided(verdict)], origin=Origin(run_id="r"))
        [part] = await run.manager.execute_all(calls, records=await run.records())
        intents = sum(isinstance(fact, ToolStarted) for fact in await run.facts())
    assert part.state == ("error" if verdict == "abort" else "completed")
    assert intents == (2 if verdict == "not_happened" else 1)


async def test_the_next_attempt_notes_anew_what_it_found(tmp_path):
    notes = iter([{"balance": 10}])

    async def prepare(values, context):
        return next(notes)

    @tool(effect="unsafe", prepare=prepare)
    async def charge(amount: int) -> str:
        """Charge."""
        return "charged"

    async with open_run(tmp_path, charge) as run:
        calls = await run.ask(ToolPart(call_id="c1", tool="charge", input={"amount": 5}))
        begun = started(message_id=calls[0].message_id)
        await run.turn.append(begun, decided("not_happened"))
        await run.manager.execute_all(calls, records=await run.records())
        found = [fact for fact in await run.facts() if isinstance(fact, ToolStarted)]
    assert found[-1].intent.noted == {"balance": 10}
    assert found[-1].source_hash == charge.source_hash


@pytest.mark.parametrize(
    "fact",
    [
        started(),
        ToolOutcomeUnknown(call_id="c1", tool="t", question="secret"),
        decided("happened", ToolResult("secret")),
        ToolParked(call_id="c1", tool="t", reason="question", request={"secret": 1}),
        ToolAnswered(call_id="c1", answered_by="ann", result=ToolResult("secret")),
        NestedCallEnded(call_id="c1", message_id="m", part=ToolPart(call_id="c", tool="secret")),
    ],
    ids=lambda fact: fact.kind,
)
def test_redaction_keeps_the_call_and_drops_the_content(fact):
    assert "secret" not in repr(fact.redacted())
