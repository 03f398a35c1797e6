"""What belongs to whom: the one place that keeps callers to what is their own.

A session belongs to the subject in whose name it was begun, and with it its runs, messages,
calls, approvals, outputs and memories. A caller without the scope `sessions:all` sees its own
ones only; what belongs to others does not exist for it (`NotFound`, as for an id that nobody has).

An operation is let through if its request names something of the caller's own (of the state, the
scope `user`, or that of an own session or run), if its answer can
be cut down to that (`LISTED`), if it begins something (`BEGINS`), or if what it is about belongs
to the whole tenant (`SHARED`). Everything else needs `sessions:all`: an operation that is added
is closed until it is listed here, or names what it is about.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidId, NotFound, NotPermitted
from holdfast.operations.caller import ALL_OWNERS, Caller
from holdfast.runtime import Runtime, name_begun_session
from holdfast.sessions import Page, Session, SessionFilter
from holdfast.state import parse_address

SESSION_FIELDS: Final = frozenset({"session_id", "parent_id"})
RUN_FIELDS: Final = frozenset({"run_id", "continues"})
MEMORY_FIELDS: Final = frozenset({"memory_id", "memory_ids"})
OWNED_FIELDS: Final = SESSION_FIELDS | RUN_FIELDS | MEMORY_FIELDS | {"approval_id"}
"""Fields of requests that name what belongs to a subject, wherever they occur."""

BEGINS: Final = frozenset(
    {
        "loops.run",
        "loops.stream",
        "loops.submit",
        "mcp.invoke",
        "runs.execute",
        "runs.start",
        "runs.stream",
        "runs.submit",
        "sessions.create",
        "tools.call",
        "workflows.run",
    }
)
"""Begin something that then is the caller's own; a run id that is not there yet is a new run."""

LISTED: Final = frozenset(
    {
        "approvals.list",
        "approvals.questions",
        "events.stream",
        "events.timeline",
        "events.watch",
        "runs.interrupted",
        "runs.list",
        "sessions.list",
        "sessions.most_recent",
        "workflows.runs",
    }
)
"""Have items that each belong to a session; those of others are left out."""

OF_USER: Final = frozenset(
    {
        "artifacts.delete",
        "artifacts.get",
        "artifacts.grant",
        "artifacts.grants",
        "artifacts.list",
        "artifacts.load",
        "artifacts.revoke",
        "artifacts.save",
        "artifacts.share",
        "artifacts.shared",
        "artifacts.stream",
        "artifacts.stream_shared",
        "artifacts.versions",
        "artifacts.write",
        "memory.list",
        "memory.relevant",
        "memory.search",
        "memory.store",
        "runs.find",
    }
)
"""Work, where they name no session, on what is the caller's as a user: memories, its own runs, and
files that it has or was given, which the store of artifacts looks after itself."""

SHARED: Final = frozenset(
    {
        "agents.check",
        "agents.get",
        "agents.list",
        "agents.remove",
        "agents.state",
        "approvals.terms",
        "hooks.list",
        "hooks.trust",
        "keys.create",
        "keys.end_login",
        "keys.list",
        "keys.list_logins",
        "keys.revoke",
        "keys.rotate",
        "mcp.accept",
        "mcp.endpoints",
        "mcp.forget",
        "mcp.grant",
        "mcp.health",
        "mcp.list_prompts",
        "mcp.list_resources",
        "mcp.log_out",
        "mcp.tools",
        "mcp.trust",
        "policies.explain",
        "policies.get",
        "policies.reload",
        "policies.status",
        "policies.validate",
        "providers.list",
        "skills.list",
        "skills.trust",
        "tenants.create",
        "tenants.delete",
        "tenants.erase_user",
        "tenants.export",
        "tenants.list",
        "tenants.resume",
        "tenants.suspend",
        "tenants.usage",
        "tools.describe",
        "tools.list",
        "triggers.list",
        "triggers.remove",
        "webhooks.add",
        "webhooks.deliver",
        "webhooks.deliveries",
        "webhooks.list",
        "webhooks.redeliver",
        "webhooks.remove",
        "workers.list_dead",
        "workers.list",
        "workers.retry",
        "workflows.list",
        "workflows.validate",
    }
)
"""Are about what belongs to the tenant as a whole; their scopes alone say who may ask."""

_MOST_LISTED: Final = 10_000
_MOST_KNOWN: Final = 10_000


class OwnView:
    """What one caller may see of the records of its tenant; each session is looked up once."""

    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        """See what this caller sees."""
        self._runtime = runtime
        self._caller = caller
        self._known: dict[str, bool] = {}
        self._limit: int | None = None
        self._is_listed = False

    async def narrow(self, name: str, given: inspect.BoundArguments) -> None:
        """Hold a request against what is the caller's own, and cut listings down to that.

        Raises:
            NotFound: it names what is not there, or belongs to another subject.
            NotPermitted: it is about what belongs to all.
        """
        arguments = given.arguments
        is_bound = False
        for field, value in _list_named(arguments):
            await self._check(name, field, value)
            is_bound = is_bound or field != "parent_id"
        if name.startswith("state."):
            is_bound = await self._check_state(arguments)
        self._refuse_widening(arguments)
        if name in LISTED:
            self._is_listed = not is_bound
            if "where" in given.signature.parameters:
                where = arguments.get("where") or SessionFilter()
                arguments["where"] = msgspec.structs.replace(where, owner=self._caller.subject)
            elif "limit" in given.signature.parameters and not is_bound:
                self._limit = arguments.get("limit", given.signature.parameters["limit"].default)
                arguments["limit"] = max(self._limit or 0, _MOST_LISTED)
        elif not is_bound and name not in BEGINS | OF_USER | SHARED:
            raise NotPermitted(subject=self._caller.subject, scope=ALL_OWNERS)

    async def cut(self, answer: object) -> object:
        """Return an answer without what belongs to others."""
        if not self._is_listed:
            return answer
        if isinstance(answer, Page):
            kept = tuple([one for one in answer.items if await self.shows(one)])
            return msgspec.structs.replace(answer, items=kept)
        if isinstance(answer, list):
            found = [one for one in answer if await self.shows(one)]
            return found if self._limit is None else found[: self._limit]
        return answer if answer is None or await self.shows(answer) else None

    async def shows(self, item: object) -> bool:
        """Say whether an item of a listing or a stream may be seen."""
        if not self._is_listed:
            return True
        if isinstance(item, Session):
            return self._caller.may_see(item.owner)
        return await self._is_own_session(getattr(item, "session_id", ""))

    # --- inside -----------------------------------------------------------------------

    async def _check(self, name: str, field: str, value: str) -> None:
        if field in SESSION_FIELDS:
            is_own, kind = await self._is_own_session(value), "session"
        elif field in RUN_FIELDS:
            may_begin = name in BEGINS and field == "run_id"
            is_own, kind = await self._is_own_run(value, may_begin=may_begin), "run"
        elif field in MEMORY_FIELDS:
            is_own, kind = await self._is_own_memory(value), "memory"
        else:
            is_own, kind = await self._is_own_approval(value), "approval"
        if not is_own:
            raise NotFound(kind=kind, value=value)

    async def _is_own_session(self, session_id: str) -> bool:
        known = self._known.get(session_id)
        if known is not None:
            return known
        try:
            session = await self._runtime.sessions.get_session(session_id)
        except (NotFound, InvalidId):
            return False
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        # The owner of a session never changes.
        known = self._known[session_id] = self._caller.may_see(session.owner)
        return known

    async def _is_own_run(self, run_id: str, *, may_begin: bool) -> bool:
        run = await self._runtime.turns.find(run_id)
        if run is not None:
            return await self._is_own_session(run.session_id)
        if not may_begin:
            return False
        # A crash may have left the session of another subject's run that had not begun.
        begun = name_begun_session(run_id)
        try:
            await self._runtime.sessions.get_session(begun)
        except (NotFound, InvalidId):
            return True
        return await self._is_own_session(begun)

    async def _is_own_approval(self, approval_id: str) -> bool:
        try:
            found = await self._runtime.approvals.get(approval_id)
        except NotFound:
            return False
        return await self._is_own_session(found.approval.session_id)

    async def _is_own_memory(self, memory_id: str) -> bool:
        try:
            entry = await (await self._runtime.memory.manager()).get_memory(memory_id)
        except NotFound:
            return False
        if entry.scope == "user":
            return self._caller.may_see(entry.owner)
        return entry.scope == "session" and await self._is_own_session(entry.session_id)

    async def _check_state(self, arguments: dict[str, Any]) -> bool:
        """Say whether a request on the state names a scope of the caller's own.

        Raises:
            NotFound: it names that of another user, session or run.
            UsageError: it names none.
        """
        named = [arguments[one] for one in ("address", "prefix", "scope") if arguments.get(one)]
        if not named:
            return False
        at = parse_address(str(named[0]), may_be_prefix=True)
        if at.kind == "user":
            is_own = at.id in ("", self._caller.subject)
        elif at.kind == "session" and at.id:
            is_own = await self._is_own_session(at.id)
        elif at.kind == "run" and at.id:
            is_own = await self._is_own_run(at.id, may_begin=False)
        else:
            return False
        if not is_own:
            raise NotFound(kind=at.kind, value=at.id)
        return True

    def _refuse_widening(self, arguments: dict[str, Any]) -> None:
        """Refuse what looks at the sessions of all, or writes what agents of others read."""
        scope = getattr(arguments.get("options"), "scope", arguments.get("scope", "session"))
        if arguments.get("across_sessions") or scope in ("project", "global"):
            raise NotPermitted(subject=self._caller.subject, scope=ALL_OWNERS)


def _list_named(arguments: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield what a request names of what belongs to subjects, also inside of structs."""
    for field, value in arguments.items():
        if field in OWNED_FIELDS:
            for one in [value] if isinstance(value, str) else value or ():
                if one:
                    yield field, one
        elif isinstance(value, msgspec.Struct):
            inner = {name: getattr(value, name) for name in value.__struct_fields__}
            yield from _list_named(inner)


__all__ = ["BEGINS", "LISTED", "OF_USER", "OWNED_FIELDS", "SHARED", "OwnView"]
