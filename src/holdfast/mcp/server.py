"""One configured server: what it offers, what of it was accepted, and calls to it."""

from __future__ import annotations

import asyncio
import functools
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.clock import SYSTEM, Clock
from holdfast.errors import HoldfastError, McpFailed, McpUntrusted, PermissionDenied
from holdfast.journal import Origin, Payload
from holdfast.mcp.connection import Connection
from holdfast.mcp.definitions import Offer, RemoteTool, read_offer
from holdfast.mcp.elicitation import CANCEL
from holdfast.mcp.errands import LONGEST_ANSWER_S, MOST_ASKED, Errand, Lend
from holdfast.mcp.events import McpConnected, McpInvoked, McpLost
from holdfast.mcp.failures import Lost, NoAnswer, Refusal
from holdfast.mcp.grants import GrantBook
from holdfast.mcp.logins import LoginBook
from holdfast.mcp.network import check_caller, check_process, check_profile
from holdfast.mcp.opening import Opening, connect_by_sdk
from holdfast.mcp.patience import Patience
from holdfast.mcp.pins import PinBook, Verdict
from holdfast.mcp.readings import (
    PROMPT,
    READ,
    OfferedPrompt,
    OfferedResource,
    find_target,
    make_readers,
    read_prompts,
    read_resources,
    show_resources,
    to_blocks,
)
from holdfast.mcp.results import render_error, to_result
from holdfast.mcp.tools import hold_back, make_tool
from holdfast.observability import Logger, make_traceparent
from holdfast.settings import McpEndpoint
from holdfast.tools import Tool, ToolContext, ToolResult
from holdfast.turns import ENCLOSING

if TYPE_CHECKING:
    from holdfast.mcp.wire.session import WireSession
    from holdfast.providers import RateLimiter

_log = Logger("holdfast.mcp")

_LONGEST_WAIT_S: Final = 30.0
_UNKNOWN: Final = "whether the call took effect is not known"

Note: TypeAlias = Callable[[Payload, Origin], Awaitable[None]]
"""Keeps a fact."""
Send: TypeAlias = "Callable[[WireSession, Errand], Awaitable[JsonObject]]"


class Trust(Protocol):
    """What of a project a person has vouched for."""

    def is_trusted(self, project: str, name: str, digest: str) -> bool:
        """Say whether exactly this was vouched for."""
        ...

    def trust(self, project: str, name: str, digest: str) -> None:
        """Vouch for it."""
        ...

    def revoke(self, project: str, name: str) -> None:
        """Take the word back."""
        ...


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """Where facts and pins of servers are kept."""

    note: Note
    pins: PinBook
    grants: GrantBook
    clock: Clock = SYSTEM
    logins: LoginBook | None = None
    lend: Lend | None = None
    """Asks our model for a server that may have it asked."""


class Server:
    """One endpoint under one client: connected once for every caller."""

    def __init__(self, opening: Opening, keeping: Keeping) -> None:
        """Prepare; nothing is started before it is asked for."""
        self.name = opening.name
        self.endpoint: McpEndpoint = opening.endpoint
        self.offer = Offer()
        self.verdicts: dict[str, Verdict] = {}
        self.is_throttled = False
        self.is_barred = False
        """Whether a person took back that they vouch for it."""
        self._opening = opening
        self._keeping = keeping
        self._limiter: RateLimiter | None = None
        self._lost: set[asyncio.Task[None]] = set()
        self._listing: asyncio.Lock | None = None
        self._listed_at = 0
        self._errands: list[Errand] = []
        self._readers: list[RemoteTool] = []
        self.connection = Connection(
            self.name,
            opening,
            lambda chosen, on_end: connect_by_sdk(chosen, on_end, self),
            clock=keeping.clock,
            on_lost=self._on_lost,
        )

    async def look(self, *, anew: bool = False) -> Offer:
        """Return what the server offers, judged by what was accepted.

        It is asked again after a new connection, if it says that something changed, or `anew`.

        Raises:
            McpFailed: it cannot be asked.
            HoldfastError: it must not be reached, or pins cannot be read.
        """
        if self._listing is None:
            self._listing = asyncio.Lock()
        async with self._listing:
            session = await self.connection.session()
            is_known = self._listed_at == self.connection.made and not self.connection.is_changed
            if is_known and not anew:
                return self.offer
            listed = await self.connection.list_tools()
            offer = read_offer(self.name, self.endpoint, listed)
            pins = self._keeping.pins
            verdicts = await asyncio.to_thread(pins.judge, self.name, offer.tools)
            is_first = self._listed_at != self.connection.made
            self.offer, self.verdicts = offer, verdicts
            self._listed_at = self.connection.made
            self._readers = await self._find_readers()
            if is_first:
                await self._keep(
                    McpConnected(
                        endpoint=self.name,
                        transport=self.endpoint.transport,
                        protocol=session.protocol,
                        server=render_error(session.server)[:200],
                        sandbox=self._opening.sandbox,
                        tools=len(offer.tools),
                        held_back=tuple(self.held_back),
                    )
                )
            return offer

    def is_for(self, *, has_network: bool) -> bool:
        """Say whether a run whose sandbox has a network, or has none, may use it."""
        policies = self._opening.policies()
        try:
            check_profile(self.name, self.endpoint, policies, has_network=has_network)
        except PermissionDenied:
            return False
        return True

    async def accept(self, names: tuple[str, ...]) -> Offer:
        """Accept tools as they are now; without names all, and those that are gone are forgotten.

        Raises:
            McpFailed: it cannot be asked.
            StorageError: it could not be written.
        """
        offer = await self.look(anew=True)
        chosen = [tool for tool in offer.tools if not names or tool.remote in names]
        pins = self._keeping.pins
        await asyncio.to_thread(pins.accept, self.name, chosen, is_whole=not names)
        self.verdicts = await asyncio.to_thread(pins.judge, self.name, offer.tools)
        return offer

    async def list_resources(self) -> list[OfferedResource]:
        """Return what can be read from the server now; raises as `look`."""
        return read_resources(self.name, await self.connection.list_resources())

    async def list_prompts(self) -> list[OfferedPrompt]:
        """Return the prompts of the server now; raises as `look`."""
        return read_prompts(self.name, await self.connection.list_prompts())

    @property
    def readers(self) -> tuple[RemoteTool, ...]:
        """Our tools for its resources and prompts."""
        return tuple(self._readers)

    async def _find_readers(self) -> list[RemoteTool]:
        """Return the tools for its resources and prompts; none where it has nothing to give.

        A server that cannot list them still has its tools.
        """
        try:
            resources = await self.list_resources()
            prompts = await self.list_prompts()
        except McpFailed as error:
            _log.warning("mcp.not_listed", endpoint=self.name, error=str(error))
            return []
        return make_readers(
            self.name,
            self.endpoint,
            self.offer.tools,
            has_resources=bool(resources),
            has_prompts=bool(prompts),
        )

    @property
    def held_back(self) -> list[str]:
        """Tools that are not what was accepted, by the server's names."""
        return [name for name, verdict in self.verdicts.items() if verdict != "accepted"]

    def tools(self) -> list[Tool]:
        """Return what was listed as tools of ours."""
        limit_s = self._find_limit()
        readers = [
            make_tool(one, self.read, timeout_s=limit_s, aim=find_target) for one in self._readers
        ]
        return [*(self._make_tool(remote) for remote in self.offer.tools), *readers]

    async def aclose(self) -> None:
        """End the connection, and the program with it."""
        await self.connection.aclose()
        if self._lost:
            await asyncio.wait(self._lost)

    # --- calls ------------------------------------------------------------------------

    async def call(
        self, remote: RemoteTool, arguments: JsonObject, context: ToolContext
    ) -> ToolResult:
        """Call a tool that has passed the gate.

        Raises:
            PermissionDenied: the caller's sandbox or network rules do not reach so far.
            RateLimitError: it was called too often in the last minute.
            McpFailed: there is no answer.
        """
        return await self._perform(
            remote.remote,
            context,
            lambda session, errand: session.call_tool(
                remote.remote,
                arguments,
                patience=errand.patience,
                on_progress=lambda *told: _report(context, *told),
                elicit=errand.elicit,
                sample=errand.sample,
                traceparent=_find_trace(context),
            ),
        )

    async def read(
        self, remote: RemoteTool, arguments: JsonObject, context: ToolContext
    ) -> ToolResult:
        """List or read resources, or get a prompt, after the gate; raises as `call`."""

        async def send(session: WireSession, errand: Errand) -> JsonObject:
            limits: dict[str, Any] = {
                "patience": errand.patience,
                "elicit": errand.elicit,
                "sample": errand.sample,
            }
            if remote.remote == READ:
                return to_blocks(await session.read_resource(arguments["uri"], **limits))
            if remote.remote == PROMPT:
                given = arguments.get("arguments") or {}
                return to_blocks(await session.get_prompt(arguments["name"], given, **limits))
            found = read_resources(self.name, await session.list_resources())
            return {"content": [{"type": "text", "text": show_resources(found)}]}

        return await self._perform(remote.remote, context, send)

    async def _perform(self, what: str, context: ToolContext, send: Send) -> ToolResult:
        begun = self._keeping.clock.monotonic()
        lend = self._keeping.lend if self.endpoint.sampling else None
        errand = Errand(self.name, context, Patience(self.endpoint.timeout_s), self._keep, lend)
        self._errands.append(errand)
        record = functools.partial(self._record_invoked, what, context, begun)
        try:
            self._check(context)
            await self._admit()
            answer = await self.connection.ask(lambda session: send(session, errand))
            result = await to_result(answer, context)
        except Refusal as error:
            text = render_error(str(error), self._opening.secrets)
            await record("error", text)
            return ToolResult(f"The MCP server {self.name} says: {text}", is_error=True)
        except (Lost, NoAnswer) as error:
            text = render_error(str(error), self._opening.secrets)
            if isinstance(error, NoAnswer):
                text = await self._opening.explain(f"no answer in {self.endpoint.timeout_s:g} s")
            await record("unknown", text)
            raise McpFailed(endpoint=self.name, detail=f"{text}; {_UNKNOWN}") from error
        except HoldfastError as error:
            await record("refused", str(error))
            raise
        except asyncio.CancelledError:
            await asyncio.shield(record("unknown", "it was cancelled"))
            raise
        finally:
            self._errands.remove(errand)
        is_error = result.is_error
        await record("error" if is_error else "answered", result.output if is_error else "")
        return result

    def _check(self, context: ToolContext) -> None:
        """Refuse what would take the caller further than its own sandbox and network rules."""
        if self.is_barred:
            raise McpUntrusted(endpoint=self.name, what=format_where(self.endpoint))
        if self.endpoint.can_write and context.is_read_only:
            because = f"this run only reads, and the MCP server {self.name} may write"
            raise PermissionDenied(permission="sandbox", target=self.name, because=because)
        policies = self._opening.policies()
        check_profile(self.name, self.endpoint, policies, has_network=context.has_network)
        check_process(self.name, self.endpoint, policies)
        grants = self._opening.grants() if self.endpoint.is_filtered else ()
        check_caller(self.name, self.endpoint, policies, context.rights, context.agent_path, grants)

    async def _admit(self) -> None:
        if self.endpoint.rate_limit_per_minute is None:
            return
        from holdfast.providers import (  # noqa: PLC0415
            RateLimiter,
            RateLimitRule,
            RateSubject,
        )

        if self._limiter is None:
            rule = RateLimitRule(
                name=f"mcp {self.name}", max_calls=self.endpoint.rate_limit_per_minute
            )
            self._limiter = RateLimiter(
                [rule], max_wait_s=_LONGEST_WAIT_S, clock=self._keeping.clock
            )
        self.is_throttled = False
        await self._limiter.acquire(RateSubject(), on_short=self._on_short)
        self.is_throttled = False

    # --- facts ------------------------------------------------------------------------

    async def _record_invoked(
        self, what: str, context: ToolContext, begun: float, outcome: str, error: str
    ) -> None:
        fact = McpInvoked(
            endpoint=self.name,
            tool=what,
            call_id=context.call_id,
            session_id=context.session_id,
            outcome=outcome,  # type: ignore[arg-type] # one of the four
            duration_s=round(self._keeping.clock.monotonic() - begun, 6),
            error=error[:500],
        )
        await self._keep(
            fact, Origin(run_id=context.run_id, agent_path="/".join(context.agent_path))
        )

    async def _keep(self, fact: Payload, origin: Origin = Origin()) -> None:  # noqa: B008 - frozen
        await self._keeping.note(fact, origin)

    def _on_short(self, _shortage: object, _is_refused: bool) -> None:
        self.is_throttled = True

    def on_change(self) -> None:
        """Look again before the next call: the server says that what it offers has changed."""
        self.connection.is_changed = True

    def on_said(self, level: str, text: str) -> None:
        """Log a line that the server sent."""
        said = render_error(text, self._opening.secrets)
        _log.debug("mcp.said", endpoint=self.name, level=level, text=said)

    async def on_elicit(self, asked: JsonObject) -> JsonObject:
        """Answer a question that came beside a call.

        It does not say which call it is for: with one under way it is that one's, otherwise
        it is given up, so that no person answers for the run of another.
        """
        if len(self._errands) != 1:
            return CANCEL
        return await self._errands[0].elicit(asked)

    async def on_sample(self, asked: JsonObject) -> JsonObject:
        """Ask our model for the one call that is under way; see `on_elicit`."""
        if len(self._errands) != 1:
            raise Refusal("it does not say for which call it asks")
        return await self._errands[0].sample(asked)

    def _on_lost(self, reason: str, pause_s: float) -> None:
        fact = McpLost(endpoint=self.name, reason=reason[:500], retry_in_s=pause_s)
        task = asyncio.get_running_loop().create_task(self._keep_quietly(fact))
        self._lost.add(task)
        task.add_done_callback(self._lost.discard)

    async def _keep_quietly(self, fact: Payload) -> None:
        try:
            await self._keep(fact)
        except HoldfastError:
            return  # the journal is closed, or full: the caller that writes to it next is told

    def _make_tool(self, remote: RemoteTool) -> Tool:
        verdict = self.verdicts.get(remote.remote, "new")
        if verdict != "accepted":
            return hold_back(remote, verdict)
        return make_tool(remote, self.call, timeout_s=self._find_limit())

    def _find_limit(self) -> float:
        """Return when a call ends at the latest; a person may be asked in its midst."""
        endpoint = self.endpoint
        own_s = endpoint.connect_timeout_s + _LONGEST_WAIT_S + endpoint.timeout_s
        return own_s + MOST_ASKED * LONGEST_ANSWER_S


def format_where(endpoint: McpEndpoint) -> str:
    """Say in a line what a server is: its address, or its command."""
    return endpoint.url or shlex.join((str(endpoint.command), *endpoint.args))


def _find_trace(context: ToolContext) -> str:
    """Return where the call of a run stands in its trace; empty for one that belongs to none."""
    turn = ENCLOSING.get()
    if turn is None:
        return ""
    starter = turn.request.options.get("starter")
    root = starter.get("root", "") if isinstance(starter, dict) else ""
    key = f"call:{context.run_id}:{context.call_id}"
    given = turn.request.traceparent
    return make_traceparent(context.run_id, key, root=str(root), given=given).format()


def _report(context: ToolContext, done: float, total: float | None, message: str | None) -> None:
    fraction = min(1.0, max(0.0, done / total)) if total else None
    context.report(render_error(message or f"{done:g}")[:200], fraction=fraction)


__all__ = ["Keeping", "Note", "Server", "Trust", "format_where"]
