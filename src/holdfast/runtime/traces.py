"""Traces sent to an OTLP receiver: of runs that end, and of any run of the journal when asked.

Where a receiver is set, each run that ends is sent once, whole, by one of the processes that are
open; how far the journal was read is kept, so that nothing is missed after a crash. Without one,
nothing here is loaded.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from holdfast._version import __version__
from holdfast.errors import HoldfastError, MissingExtra, NotFound, TraceExportFailed, UsageError
from holdfast.journal import Journal
from holdfast.observability import make_span_id, make_trace_id, parse_traceparent
from holdfast.policy import NetworkRules
from holdfast.private_files import PrivateJsonFile
from holdfast.runs import CHILDREN
from holdfast.runtime.grpc_export import GRPC_SCHEMES, choose_grpc_address, export_over_grpc
from holdfast.runtime.sent_trace import SentTrace
from holdfast.runtime.trace_spans import (
    RunTrace,
    Value,
    add_foreign_names,
    build_trace,
)
from holdfast.sessions import request_of
from holdfast.settings import Settings
from holdfast.tools import HttpRequest, SafeHttpClient
from holdfast.turns import TurnQueue

_PAGE: Final = 500
_LOOK_S: Final = 1.0
_TIMEOUT_S: Final = 30.0
_ENDED: Final = frozenset({"run.completed", "run.failed", "run.cancelled"})
_ANYWHERE: Final = ("0.0.0.0/0", "::/0")


class _Position(msgspec.Struct):
    seq: int = -1


class TraceService:
    """Sends traces of one state directory."""

    def __init__(
        self,
        settings: Settings,
        base_dir: Path,
        journal: Journal,
        turns: TurnQueue,
        tenant: str,
    ) -> None:
        """Send in the name of this tenant."""
        self._chosen = settings.telemetry
        secret = settings.secrets.otlp_headers
        self._headers = parse_headers(secret.get_secret_value() if secret is not None else "")
        self._turns = turns
        self._journal = journal
        self._tenant = tenant
        self._lock_path = base_dir / "traces.lock"
        self._position = PrivateJsonFile(base_dir / "traces.json", _Position, empty=_Position)
        self.error = ""
        """Why traces could not be sent when it was last tried."""

    async def follow(self) -> None:
        """Send the trace of each run that ends, once a second; until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.send_quietly()

    async def send_quietly(self) -> None:
        """Send what has ended since; what fails is kept in `error`, and sent later."""
        try:
            await self.send_ended()
            self.error = ""
        except HoldfastError as error:
            self.error = f"{error.code}: {error}"

    async def send_ended(self) -> int:
        """Send the traces of runs that ended since the last time; returns how many.

        The first time, it begins with what ends from then on.
        """
        sent = 0
        with self._lock() as is_held:
            if not is_held:
                return 0
            position = (await asyncio.to_thread(self._position.read)).seq
            if position < 0:
                position = await self._journal.read_last_seq()
                await self._keep(position)
            while page := await self._journal.store.feed(after=position, limit=_PAGE):
                for event in page:
                    if event.kind in _ENDED and await self._is_sampled(event.run_id):
                        await self.send(event.run_id, self._chosen.otlp_url)
                        sent += 1
                        await self._keep(event.seq)
                position = page[-1].seq
                await self._keep(position)
        return sent

    async def send(
        self, run_id: str, url: str = "", *, has_content: bool | None = None
    ) -> SentTrace:
        """Send the trace of a run, whenever it was; a run below another one comes as a root.

        Raises:
            NotFound: there is no such run.
            TraceExportFailed: the receiver did not take it.
            MissingExtra: opentelemetry-proto is not installed (extra `otel`).
        """
        run = await self._turns.get(run_id)
        content = self._chosen.content if has_content is None else has_content
        trace = await build_trace(self._journal, run, tenant=self._tenant, has_content=content)
        address = choose_address(url or self._chosen.otlp_url)
        body = encode_trace(trace, run.id)
        if urlsplit(address).scheme in GRPC_SCHEMES:
            await asyncio.to_thread(export_over_grpc, address, body, self._headers)
        else:
            await self._post(address, body)
        return SentTrace(
            run_id=run.id, trace_id=trace.trace_id.hex(), spans=len(trace.spans), url=address
        )

    async def _post(self, address: str, body: bytes) -> None:
        host = urlsplit(address).netloc.rpartition("@")[2]
        rules = NetworkRules(allow_net=True, allowed_hosts=(host,), private_networks=_ANYWHERE)
        request = HttpRequest(
            url=address,
            method="POST",
            headers={"Content-Type": "application/x-protobuf", **self._headers},
            body=body,
            max_bytes=64 * 1024,
            timeout_s=_TIMEOUT_S,
        )
        try:
            answer = await SafeHttpClient(rules).fetch(request)
        except HoldfastError as error:
            raise TraceExportFailed(url=address, detail=str(error)) from error
        if not 200 <= answer.status < 300:
            raise TraceExportFailed(url=address, detail=f"it answered with {answer.status}")

    async def _is_sampled(self, run_id: str) -> bool:
        """Say whether a run is sent by itself: a root, and of the part that is."""
        if not run_id:
            return False
        try:
            run = await self._turns.get(run_id)
            above = parse_traceparent((await request_of(self._journal, run)).traceparent)
        except NotFound:
            return False  # its session was deleted meanwhile
        part = int.from_bytes(make_trace_id(run_id)[8:], "big") / 2**64
        # Who began the trace has decided for all of it.
        if not (above.is_sampled if above is not None else part < self._chosen.sample_ratio):
            return False
        return await self._journal.row(CHILDREN, run.session_id, run_id) is None

    async def _keep(self, seq: int) -> None:
        def note(position: _Position) -> None:
            position.seq = seq

        await asyncio.to_thread(self._position.change, note)

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        held = os.open(self._lock_path, flags, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            yield False
            return
        try:
            yield True
        finally:
            os.close(held)


def choose_address(url: str) -> str:
    """Return where traces are sent; raises UsageError for what is no address of a receiver."""
    parts = urlsplit(url)
    if parts.scheme in GRPC_SCHEMES and parts.hostname:
        return choose_grpc_address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            detail="Say where: an OTLP receiver such as http://127.0.0.1:4318 or "
            "grpc://127.0.0.1:4317."
        )
    if parts.path in ("", "/"):
        parts = parts._replace(path="/v1/traces")
    return urlunsplit(parts)


def parse_headers(text: str) -> dict[str, str]:
    """Return headers of the form `name=value,name=value`; raises UsageError."""
    found = {}
    for one in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise UsageError(
                detail="OTEL_EXPORTER_OTLP_HEADERS has the form name=value,name=value."
            )
        found[name.strip()] = value.strip()
    return found


def encode_trace(trace: RunTrace, run_id: str) -> bytes:
    """Return a trace as OTLP's protobuf; raises MissingExtra."""
    try:
        from opentelemetry.proto.collector.trace.v1 import (  # noqa: PLC0415 - an optional extra
            trace_service_pb2,
        )
        from opentelemetry.proto.trace.v1 import trace_pb2  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(what="traces", package="opentelemetry-proto", extra="otel") from error
    from opentelemetry.proto.common.v1 import common_pb2  # noqa: PLC0415

    def value_of(value: Value) -> common_pb2.AnyValue:
        if isinstance(value, bool):
            return common_pb2.AnyValue(bool_value=value)
        if isinstance(value, int):
            return common_pb2.AnyValue(int_value=value)
        if isinstance(value, float):
            return common_pb2.AnyValue(double_value=value)
        if isinstance(value, tuple):
            array = common_pb2.ArrayValue(values=[value_of(one) for one in value])
            return common_pb2.AnyValue(array_value=array)
        return common_pb2.AnyValue(string_value=value)

    request = trace_service_pb2.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for name, text in (("service.name", "holdfast"), ("service.version", __version__)):
        resource.resource.attributes.add(key=name, value=value_of(text))
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "holdfast", __version__
    for span in trace.spans:
        made = scope.spans.add(
            trace_id=trace.trace_id,
            span_id=make_span_id(run_id, span.key),
            parent_span_id=make_span_id(run_id, span.parent) if span.parent else trace.parent,
            name=span.name,
            kind=trace_pb2.Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=int(span.start * 1e9),
            end_time_unix_nano=int(max(span.end, span.start) * 1e9),
        )
        for name, value in add_foreign_names(span.attributes):
            made.attributes.add(key=name, value=value_of(value))
        for at, name in span.moments:
            made.events.add(time_unix_nano=int(at * 1e9), name=name)
        if span.error:
            made.attributes.add(key="error.type", value=value_of(span.error))
            made.status.code = trace_pb2.Status.STATUS_CODE_ERROR
            made.status.message = span.error
        else:
            made.status.code = trace_pb2.Status.STATUS_CODE_OK
    return bytes(request.SerializeToString())


__all__ = ["SentTrace", "TraceService", "choose_address", "encode_trace", "parse_headers"]
