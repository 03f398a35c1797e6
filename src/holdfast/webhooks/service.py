"""Queues what webhooks are to be told, sends it, and goes on where a killed process stopped."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.errors import HoldfastError, NotFound, StorageError, UsageError
from holdfast.ids import make_id, make_random_token
from holdfast.journal import SYSTEM_SESSION, Condition, Event, Journal, Payload, RowQuery
from holdfast.observability import Logger, make_traceparent
from holdfast.policy import ApprovalRequested, NetworkRules, open_every_port
from holdfast.private_files import PrivateJsonFile
from holdfast.sessions import (
    RunCancelled,
    RunCompleted,
    RunFailure,
    RunParked,
    SessionManager,
    find_run,
    request_of,
)
from holdfast.tools import HttpRequest, SafeHttpClient
from holdfast.turns import Lease
from holdfast.webhooks.events import (
    DELIVERIES,
    WEBHOOKS,
    Delivery,
    DeliveryStatus,
    Webhook,
    WebhookAdded,
    WebhookQueued,
    WebhookRedelivered,
    WebhookRemoved,
    WebhookTried,
    WebhookType,
)
from holdfast.webhooks.signature import make_headers, make_secret

_log = Logger("holdfast.webhooks")
SECRETS_FILE: Final = "webhooks.json"
PAUSES_S: Final = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0)
"""Before each further attempt, with up to a fifth more; then it is a dead letter."""
_TOLD: Final = (RunCompleted, RunFailure, RunCancelled, RunParked, ApprovalRequested)
_KINDS: Final = frozenset(one.kind for one in _TOLD)
_NEWS: Final = frozenset({WebhookAdded.kind, WebhookRedelivered.kind})
"""Facts of other processes that the one which sends has to act on."""
_PAGE: Final = 500
_TIMEOUT_S: Final = 15.0
_AT_ONCE: Final = 8
_LONGEST_WAIT_S: Final = 30.0
_PAUSE_S: Final = 1.0
_LOOK_S: Final = 5.0
_GONE: Final = 410
_MOST: Final = 100
_RANDOM = random.SystemRandom()


WebhookSink: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]
"""Takes a message: the webhook's address, the JSON, and the headers with its id and signature."""


class CreatedWebhook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook with the secret that its messages are signed with, shown this once."""

    webhook: Webhook
    secret: str


class _Secrets(msgspec.Struct, forbid_unknown_fields=True):
    by_id: dict[str, str] = msgspec.field(default_factory=dict)


class WebhookService:
    """The webhooks of one journal.

    Messages hold ids and states, never what was said: whoever wants that asks with a key.
    """

    def __init__(
        self,
        sessions: SessionManager,
        *,
        base_dir: Path,
        tenant: str,
        networks: Sequence[str] = (),
        sinks: Mapping[str, WebhookSink] = MappingProxyType({}),
    ) -> None:
        """Tell of what happens in this journal; `networks` that are not public may be told too.

        `sinks` take the messages for addresses of their schemes, instead of HTTP.
        """
        self._sinks = sinks
        self._journal: Journal = sessions.journal
        self._sessions = sessions
        self._tenant = tenant
        self._networks = tuple(networks)
        self._secrets = PrivateJsonFile(base_dir / SECRETS_FILE, _Secrets, empty=_Secrets)
        self._task: asyncio.Task[None] | None = None
        self._pending = 0
        self._read: dict[str, int] = {}
        """How far this process has looked for each webhook; what follows is stored as messages."""
        self._news = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._lead: Lease | None = None

    @property
    def is_busy(self) -> bool:
        """Whether messages wait to be sent."""
        return self._pending > 0

    async def add(
        self, url: str, types: Sequence[WebhookType] = (), *, by: str = ""
    ) -> CreatedWebhook:
        """Tell an address of what happens from now on; without `types`, of everything.

        Raises:
            UsageError: the address or a type cannot be meant, or there are too many.
        """
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
        if not (is_http or parts.scheme in self._sinks) or "@" in parts.netloc:
            raise UsageError(detail="A webhook needs an http or https address without credentials.")
        unknown = sorted(set(types) - set(get_args(WebhookType)))
        if unknown:
            told = ", ".join(get_args(WebhookType))
            raise UsageError(detail=f"There is no type {unknown[0]!r}, only {told}.")
        if len(await self.list_webhooks()) >= _MOST:
            raise UsageError(detail=f"There are {_MOST} webhooks; remove one first.")
        # Refused now rather than with the first message.
        if is_http:
            await self._make_client(url).check(url)
        webhook_id, secret = make_id("whk"), make_secret(bytes.fromhex(make_random_token(32)))

        def keep(kept: _Secrets) -> None:
            kept.by_id[webhook_id] = secret

        await asyncio.to_thread(self._secrets.change, keep)
        added = WebhookAdded(
            webhook_id=webhook_id,
            url=url,
            types=tuple(types) or get_args(WebhookType),
            position=await self._journal.read_last_seq(),
            by=by,
        )
        await self._journal.append(SYSTEM_SESSION, [added])
        self._news.set()
        return CreatedWebhook(webhook=await self.get(webhook_id), secret=secret)

    async def remove(self, webhook_id: str, *, by: str = "") -> None:
        """Tell an address of nothing any more, not even of what waits; raises NotFound."""
        await self.get(webhook_id)
        removed = WebhookRemoved(webhook_id=webhook_id, by=by)
        await self._journal.append(SYSTEM_SESSION, [removed])

        def forget(kept: _Secrets) -> None:
            kept.by_id.pop(webhook_id, None)

        await asyncio.to_thread(self._secrets.change, forget)

    async def get(self, webhook_id: str) -> Webhook:
        """Return a webhook; raises NotFound."""
        found = await self._journal.row(WEBHOOKS, SYSTEM_SESSION, webhook_id)
        if found is None:
            raise NotFound(kind="webhook", value=webhook_id)
        return found

    async def list_webhooks(self) -> list[Webhook]:
        """Return the webhooks, oldest first."""
        query = RowQuery(projection=WEBHOOKS, session_id=SYSTEM_SESSION, order="created_at")
        rows = await self._journal.rows(msgspec.structs.replace(query, limit=1000))
        return [keyed.row for keyed in rows]

    async def list_deliveries(
        self, *, status: DeliveryStatus | None = None, webhook_id: str = "", limit: int = 100
    ) -> list[Delivery]:
        """Return messages, newest first; those with the status `dead` were given up."""
        where: tuple[Condition, ...] = ()
        if status is not None:
            where += (Condition("status", "=", status),)
        if webhook_id:
            where += (Condition("webhook_id", "=", webhook_id),)
        query = RowQuery(
            projection=DELIVERIES,
            session_id=SYSTEM_SESSION,
            where=where,
            order="time",
            descending=True,
            limit=limit,
        )
        return [keyed.row for keyed in await self._journal.rows(query)]

    async def redeliver(self, message_id: str, *, by: str = "") -> Delivery:
        """Send a message again, under the same id, as if for the first time; raises NotFound."""
        found = await self._journal.row(DELIVERIES, SYSTEM_SESSION, message_id)
        if found is None:
            raise NotFound(kind="message", value=message_id)
        await self.get(found.webhook_id)
        again = WebhookRedelivered(message_id=message_id, webhook_id=found.webhook_id, by=by)
        await self._journal.append(SYSTEM_SESSION, [again])
        self._news.set()
        return await self._find_delivery(message_id)

    # --- sending ----------------------------------------------------------------------

    async def begin(self) -> None:
        """Begin to send in the background; safe to repeat."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="webhooks")

    async def deliver(self) -> int:
        """Queue what has happened, send what is due now, and return how many were taken.

        Of several processes on one journal a single one sends, as long as it lives; the others
        take nothing.
        """
        async with self._one_at_a_time:
            if not await self._take_lead():
                return 0
            try:
                await self._queue()
                return await self._send_due()
            finally:
                if self._task is None:
                    await self._give_lead_back()

    async def close(self) -> None:
        """End the sending; what was not sent is sent by the next process."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._give_lead_back()

    async def forget_owner(self, owner: str) -> int:
        """Remove what messages told of sessions of a subject; returns of how many messages."""
        kinds = frozenset({WebhookQueued.kind})
        found: list[int] = []
        after = 0
        while page := await self._journal.store.read(
            SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds
        ):
            after = page[-1].session_seq
            for event in page:
                fact = event.decode()
                assert isinstance(fact, WebhookQueued)
                if fact.data.get("owner") == owner:
                    found.append(event.session_seq)
        return await self._journal.redact(SYSTEM_SESSION, found, reason="the user was erased")

    async def _take_lead(self) -> bool:
        """Say whether this process is the one that sends."""
        keeper = self._sessions.keeper
        if self._lead is not None and keeper.does_still_hold(self._lead):
            return True
        try:
            self._lead = await keeper.acquire(SYSTEM_SESSION)
        except NotFound:
            self._lead = None  # nothing was ever stored there, not even a webhook
        return self._lead is not None

    async def _give_lead_back(self) -> None:
        lead, self._lead = self._lead, None
        if lead is not None:
            await self._sessions.keeper.release(lead)

    async def _run(self) -> None:
        while True:
            try:
                self._news.clear()
                seen = await self._journal.read_last_seq()
                await self.deliver()
                if await self.list_webhooks():
                    await self._wait(seen)
                else:
                    # Another process may add one.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_S):
                            await self._news.wait()
            except StorageError:
                # A full disk or a long lock: nothing is lost, it is read afterwards.
                await asyncio.sleep(_PAUSE_S)

    async def _wait(self, seen: int) -> None:
        """Wait for further events, for the time of the next attempt, or to be told."""
        waiting = await self._find_pending(limit=1) if self._lead is not None else []
        now = self._journal.clock.now()
        due_s = waiting[0].next_at - now if waiting else _LONGEST_WAIT_S
        if self._lead is None:
            due_s = _LOOK_S  # the process that sends may end
        bound_s = min(max(due_s, 0.05), _LONGEST_WAIT_S)
        tasks = [
            asyncio.create_task(self._wait_for_change(seen, bound_s)),
            asyncio.create_task(self._news.wait()),
        ]
        try:
            await asyncio.wait(tasks, timeout=bound_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_change(self, seen: int, timeout_s: float) -> None:
        """Return when an event is stored that is not one of our own."""
        place = seen
        while await self._journal.store.changed(place, timeout_s):
            page = await self._journal.store.feed(after=place, limit=_PAGE)
            if any(event.kind in _KINDS | _NEWS for event in page):
                return
            if page:
                place = page[-1].seq

    async def _queue(self) -> None:
        """Turn events into messages; both are stored together with how far we came."""
        hooks = await self.list_webhooks()
        if not hooks:
            return
        known = self._read
        after = min(max(one.position, known.get(one.id, 0)) for one in hooks)
        while page := await self._journal.store.feed(after=after, limit=_PAGE):
            after = page[-1].seq
            facts: list[Payload] = []
            for event in page:
                if event.kind in _KINDS:
                    facts += await self._make_messages(event, hooks)
            if facts:
                await self._journal.append(SYSTEM_SESSION, facts)
            self._read = {one.id: after for one in hooks}

    async def _make_messages(self, event: Event, hooks: Sequence[Webhook]) -> list[WebhookQueued]:
        found: list[WebhookQueued] = []
        told: list[tuple[WebhookType, JsonObject]] | None = None
        for hook in hooks:
            if event.seq <= hook.position:
                continue
            if told is None:
                told = await self._tell(event)
            for kind, data in told:
                if kind in hook.types:
                    key = digest([hook.id, event.session_id, event.session_seq, kind])
                    queued = WebhookQueued(
                        message_id=f"msg_{key[:32]}",
                        webhook_id=hook.id,
                        type=kind,
                        position=event.seq,
                        time=event.time,
                        data=data,
                    )
                    found.append(queued)
        return found

    async def _tell(self, event: Event) -> list[tuple[WebhookType, JsonObject]]:
        """Return what an event is to the outside: nothing for runs below another one."""
        try:
            fact = event.decode()
            session = await self._sessions.get_session(event.session_id)
        except HoldfastError:
            return []  # its session was deleted meanwhile
        data: JsonObject = {
            "tenant": self._tenant,
            "session_id": event.session_id,
            "run_id": event.run_id,
            "owner": session.owner,
        }
        if isinstance(fact, ApprovalRequested):
            asked = {"approval_id": fact.approval_id, "tool": fact.tool}
            return [("approval.asked", {**data, **asked, "expires_at": fact.expires_at})]
        if session.parent_id:
            return []
        run = await find_run(self._journal, event.run_id)
        data["agent"] = run.agent if run is not None else ""
        if isinstance(fact, RunParked):
            return [("run.parked", {**data, "reason": fact.reason})]
        if isinstance(fact, RunFailure):
            code = str(fact.error.get("code", ""))
            failed: JsonObject = {**data, "status": "failed", "code": code}
            is_spent = code.startswith("budget.")
            return [("run.failed", failed), *([("budget.exhausted", failed)] if is_spent else [])]  # type: ignore[list-item]
        status = "completed" if isinstance(fact, RunCompleted) else "cancelled"
        return [("run.ended", {**data, "status": status})]

    async def _find_pending(self, *, limit: int) -> list[Delivery]:
        query = RowQuery(
            projection=DELIVERIES,
            session_id=SYSTEM_SESSION,
            where=(Condition("status", "=", "pending"),),
            order="next_at",
            limit=limit,
        )
        return [keyed.row for keyed in await self._journal.rows(query)]

    async def _send_due(self) -> int:
        taken = 0
        hooks = {one.id: one for one in await self.list_webhooks()}
        secrets = (await asyncio.to_thread(self._secrets.read)).by_id
        room = asyncio.Semaphore(_AT_ONCE)

        async def send(one: Delivery) -> bool:
            async with room:
                return await self._send(one, hooks.get(one.webhook_id), secrets)

        while True:
            waiting = await self._find_pending(limit=_PAGE)
            self._pending = len(waiting)
            now = self._journal.clock.now()
            due = [one for one in waiting if one.next_at <= now]
            if not due:
                return taken
            taken += sum(await asyncio.gather(*map(send, due)))

    async def _send(
        self, delivery: Delivery, hook: Webhook | None, secrets: dict[str, str]
    ) -> bool:
        """Send one message and note what came of it; returns whether it was taken."""
        secret = secrets.get(delivery.webhook_id)
        if hook is None or secret is None:
            error = "the webhook was removed, or its secret is gone"
            await self._note(delivery, "dead", error=error)
            return False
        body = msgspec.json.encode(
            {"type": delivery.type, "timestamp": _format_time(delivery.time), "data": delivery.data}
        )
        at = int(self._journal.clock.now())
        headers = make_headers(secret, delivery.id, at=at, body=body)
        sink = self._sinks.get(urlsplit(hook.url).scheme)
        if sink is not None:
            return await self._hand_over(sink, delivery, hook.url, body, headers)
        request = HttpRequest(
            url=hook.url,
            method="POST",
            headers={**headers, **await self._find_trace(delivery)},
            body=body,
            max_bytes=64 * 1024,
            timeout_s=_TIMEOUT_S,
        )
        try:
            answer = await self._make_client(hook.url).fetch(request)
        except HoldfastError as error:
            await self._note(delivery, "pending", error=f"{error.code}: {error}"[:500])
            return False
        if 200 <= answer.status < 300:
            await self._note(delivery, "delivered", http_status=answer.status)
            return True
        status: DeliveryStatus = "dead" if answer.status == _GONE else "pending"
        error_text = f"it answered with {answer.status}"
        await self._note(delivery, status, http_status=answer.status, error=error_text)
        return False

    async def _find_trace(self, delivery: Delivery) -> dict[str, str]:
        """Return the header that tells a receiver the trace of the run that a message is about."""
        run_id = str(delivery.data.get("run_id") or "")
        run = await find_run(self._journal, run_id) if run_id else None
        if run is None:
            return {}  # its session was deleted meanwhile
        given = (await request_of(self._journal, run)).traceparent
        return {"traceparent": make_traceparent(run_id, f"run:{run_id}", given=given).format()}

    async def _hand_over(
        self,
        sink: WebhookSink,
        delivery: Delivery,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> bool:
        """Give a message to a plugin; what it raises, or takes too long for, is tried again."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await sink(url, body, headers)
        except Exception as error:  # noqa: BLE001 - others' code
            said = f"{type(error).__name__}: {error}"[:500]
            await self._note(delivery, "pending", error=said)
            return False
        await self._note(delivery, "delivered")
        return True

    async def _note(
        self, delivery: Delivery, status: DeliveryStatus, *, http_status: int = 0, error: str = ""
    ) -> None:
        attempt = delivery.attempts + 1
        next_at = 0.0
        if status == "pending":
            if attempt > len(PAUSES_S):
                status = "dead"
            else:
                pause_s = PAUSES_S[attempt - 1] * (1 + _RANDOM.random() / 5)
                next_at = self._journal.clock.now() + pause_s
        if status == "dead":
            _log.warning("webhook given up", message_id=delivery.id, error=error)
        tried = WebhookTried(
            message_id=delivery.id,
            webhook_id=delivery.webhook_id,
            attempt=attempt,
            status=status,
            http_status=http_status,
            error=error,
            next_at=next_at,
        )
        await self._journal.append(SYSTEM_SESSION, [tried])

    async def _find_delivery(self, message_id: str) -> Delivery:
        found = await self._journal.row(DELIVERIES, SYSTEM_SESSION, message_id)
        assert found is not None
        return found

    def _make_client(self, url: str) -> SafeHttpClient:
        """Return a client that reaches the host of this address and no other."""
        host = urlsplit(url).hostname or ""
        rules = NetworkRules(
            allow_net=True, allowed_hosts=(open_every_port(host),), private_networks=self._networks
        )
        return SafeHttpClient(rules)


def _format_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")


__all__ = ["PAUSES_S", "CreatedWebhook", "WebhookService"]
