"""Delegation by tool calls: the caller's run is the parent, the call is the key."""

from __future__ import annotations

import msgspec

from holdfast.agents import (
    STATE_KEY,
    Agent,
    AgentResult,
    HandedOff,
    HandoffInput,
    RunRequest,
    Transform,
    digest_handoff,
)
from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists
from holdfast.journal import Origin
from holdfast.orchestration.delegation.child import Children, ChildRequest, derive_id
from holdfast.runs import derive_call_lineage
from holdfast.sessions import Session
from holdfast.state import StateChanged, check_key
from holdfast.tools import ToolContext, read_kept_labels


class CallDelegation:
    """Runs other agents for tool calls, with no more than the caller's run has."""

    def __init__(self, children: Children) -> None:
        """Start children here."""
        self._children = children
        self._transforms: dict[tuple[str, int], str] = {}

    def register_transform(self, transform: Transform) -> None:
        """Make a transform known by its name and version.

        Raises:
            AlreadyExists: another function has this name and version; raise the version.
        """
        key = (transform.name, transform.version)
        if self._transforms.setdefault(key, transform.source_hash) != transform.source_hash:
            name = f"{transform.name} version {transform.version}"
            raise AlreadyExists(kind="transform", value=name)

    async def send(self, context: ToolContext, request: RunRequest) -> AgentResult:
        """Run an agent below the caller's run and return its result.

        A person who stops where the agent asks stops the caller's run too, and so on upwards:
        the caller that is to be refused one call only is refused it.
        """
        session = await self._children.sessions.get_session(context.session_id)
        # What the application handed to the caller's run is there for those below it.
        request = msgspec.structs.replace(request, deps=context.deps)
        child = self._make_child(context, request, session)
        result = await self._children.admit(child) or await self._children.run(child)
        if result.was_stopped:
            reason, by = str(result.metadata["reason"]), result.stopped_by
            await self._children.turns.cancel(context.run_id, reason=reason, stopped_by=by)
        if result.session_id:
            # The caller that reads the report reads what the agent had read.
            journal = self._children.sessions.journal
            context.labels.add(await read_kept_labels(journal, result.session_id))
        return result

    async def hand_over(
        self, context: ToolContext, agent: str, message: str, transform: Transform
    ) -> AgentResult:
        """Let an agent go on in a linked session with what the transform lets along."""
        self.register_transform(transform)
        children = self._children
        session = await children.sessions.get_session(context.session_id)
        request = RunRequest(agent=agent, message=message, deps=context.deps)
        if await children.turns.find(derive_id("run", context.idempotency_key)) is None:
            given = HandoffInput(
                message=message,
                messages=await children.sessions.messages.all(session),
                state=await self._read_state(context, session),
            )
            parcel = transform.apply(given)
            request = RunRequest(
                agent=agent, message=parcel.text, state=parcel.state, deps=context.deps
            )
            facts = await self._carry_over(context, parcel.state)
            fact = HandedOff(
                call_id=context.call_id,
                from_agent=context.agent_path[-1] if context.agent_path else "",
                to_agent=agent,
                transform=transform.name,
                transform_version=transform.version,
                transform_hash=transform.source_hash,
                parcel=digest_handoff(parcel),
                session_id=derive_id("ses", context.idempotency_key),
                run_id=derive_id("run", context.idempotency_key),
            )
            await self._note(context, fact)
            if facts:
                child = self._make_child(context, request, session)
                begun = await children.begin(child, facts)
                request = msgspec.structs.replace(request, session_id=begun)
        return await self.send(context, request)

    # --- inside -----------------------------------------------------------------------

    async def _read_state(self, context: ToolContext, session: Session) -> dict[str, object]:
        """Return the giver's state: what its session began with, as it has become since."""
        found = session.metadata.get(STATE_KEY, {})
        begun = msgspec.convert(found, dict[str, object]) if isinstance(found, dict) else {}
        state = context.state
        changed = await state.environment.store.at(state.bound)
        kept = {key: value for key, value in begun.items() if key not in changed}
        return {**kept, **(await state.snapshot()).values}

    async def _carry_over(self, context: ToolContext, handed: JsonObject) -> list[StateChanged]:
        """Return what the receiver's session begins with; taint goes along.

        Raises:
            UsageError: the transform lets a key along that no state can have.
        """
        state = context.state
        facts = []
        for key, value in handed.items():
            state.check("write", check_key(key))
            known = await state.entry(key)
            # A value that goes along unchanged stays what it is: its labels, its schema.
            is_same = known is not None and known.value == value
            facts.append(
                StateChanged(
                    key=key,
                    version=1,
                    data={"value": state.as_json(key, value)},
                    labels=state.labels(known.labels if known is not None else ()),
                    schema=known.schema if known is not None and is_same else "",
                    schema_number=known.schema_number if known is not None and is_same else 0,
                    cause="hand-over",
                )
            )
        return facts

    def _make_child(
        self, context: ToolContext, request: RunRequest, session: Session
    ) -> ChildRequest:
        limits = context.child_limits
        return ChildRequest(
            key=context.idempotency_key,
            request=msgspec.structs.replace(
                request,
                skill_names=_find_common(limits.skill_names, request.skill_names),
                on_ask=limits.on_ask,
                approver=limits.approver,
            ),
            # Only code has an agent itself; a model names one.
            above=derive_call_lineage(context, session, is_handed=isinstance(request.agent, Agent)),
            parent=session,
            seconds=limits.seconds_left(),
        )

    async def _note(self, context: ToolContext, fact: HandedOff) -> None:
        """Keep a hand-off once, also when a crash lets the call begin again."""
        journal = self._children.sessions.journal
        kinds = frozenset({HandedOff.kind})
        after = 0
        while page := await journal.read(context.session_id, after=after, kinds=kinds):
            if any(event.expect(HandedOff).run_id == fact.run_id for event in page):
                return
            after = page[-1].session_seq
        origin = Origin(run_id=context.run_id, agent_path="/".join(context.agent_path))
        await journal.append(context.session_id, [fact], origin=origin, epoch=context.fence)


def _find_common(
    one: tuple[str, ...] | None, other: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if one is None or other is None:
        return one if other is None else other
    return tuple(name for name in other if name in one)
