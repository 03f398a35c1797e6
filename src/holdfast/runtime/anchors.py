"""Anchors: the ends of all chains, kept outside of the store that they prove.

A process that can write the records can rewrite a whole chain, or put an older copy there. What
was written elsewhere before, to a file that can only grow, to another store, or to an address,
says that something else was there. `audit verify` compares with all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from holdfast.clock import Clock
from holdfast.errors import AlreadyExists, HoldfastError, StorageError, UsageError
from holdfast.journal import (
    SYSTEM_SESSION,
    Finding,
    HeadsAnchored,
    Journal,
    check_chain,
    list_store_places,
    make_anchor,
    open_store,
)
from holdfast.observability import Logger
from holdfast.policy import NetworkRules, open_every_port
from holdfast.sessions import RunCancelled, RunCompleted, RunFailure, RunParked
from holdfast.settings import Settings
from holdfast.tools import HttpRequest, SafeHttpClient

_ENDS = (RunCompleted.kind, RunFailure.kind, RunCancelled.kind, RunParked.kind)
_MOST_BYTES = 1024 * 1024 * 1024
_TAIL_BYTES = 256 * 1024
_TIMEOUT_S = 30.0
_PAGE = 1_000
_NEAR = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
)
"""The address is the operator's own choice, and may be a machine of their network."""
_log = Logger(__name__)


class Anchors(msgspec.Struct, frozen=True, kw_only=True):
    """What an anchor says of a store, and what is wrong with the anchor itself."""

    anchors: tuple[HeadsAnchored, ...] = ()
    findings: tuple[Finding, ...] = ()


class AnchorPlace(Protocol):
    """Where anchors are kept: what was written there stays."""

    async def open(self) -> None:
        """Open it; comes first."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...

    async def read_last(self, store: str) -> HeadsAnchored | None:
        """Return the last anchor of a store, `None` if there is none or it cannot be asked."""
        ...

    async def read_all(self, store: str) -> Anchors:
        """Return all anchors of a store, oldest first."""
        ...

    async def write(self, anchor: HeadsAnchored) -> None:
        """Keep one more."""
        ...


class AnchorService:
    """Anchors the records where the setting `audit.anchor` says, as runs end."""

    def __init__(self, journal: Journal, settings: Settings, *, base_dir: Path, store: str) -> None:
        """Anchor this journal under the name of its store; nothing is touched yet."""
        self._journal = journal
        self._store = store
        self._address = settings.audit.anchor
        self._interval_s = settings.audit.anchor_interval_s or 0.0
        token = settings.secrets.anchor_token
        self._token = token.get_secret_value() if token is not None else ""
        self._base_dir = base_dir
        self._watching: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._last: HeadsAnchored | None = None
        self._has_failed = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Where on this machine anchors are kept, which no tool may see."""
        parts = urlsplit(self._address)
        if not self._address or parts.scheme in ("http", "https"):
            return ()
        if parts.scheme == "file":
            return (_find_file(self._address),)
        return list_store_places(self._address, base_dir=self._base_dir)

    def begin(self) -> None:
        """Anchor whenever a run ends, here or in another process on the same store."""
        if self._address and self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    async def anchor(self) -> HeadsAnchored | None:
        """Anchor now what has grown since the last time; `None` if nothing has.

        Raises:
            UsageError: there is no `audit.anchor`, or no such kind of place.
            StorageError: it cannot be written, or the address does not take it.
        """
        async with self._one_at_a_time, _opened(self._find_place()) as place:
            if self._last is None:
                self._last = await place.read_last(self._store)
            made = await make_anchor(
                self._journal.store, self._journal.clock, name=self._store, last=self._last
            )
            if made is not None:
                await place.write(made)
                self._last = made
            return made

    async def read(self) -> Anchors:
        """Return all anchors of this store; nothing if there is no `audit.anchor`.

        What cannot be read is a finding: the proof is missing.
        """
        if not self._address:
            return Anchors()
        try:
            async with _opened(self._find_place()) as place:
                return await place.read_all(self._store)
        except HoldfastError as error:
            return Anchors(findings=(_find_fault(f"the anchor cannot be read: {error}"),))

    async def close(self) -> None:
        """Stop watching, and anchor what was written last."""
        if self._watching is None:
            return
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        self._watching = None
        await self._try()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        async for event in self._journal.subscribe(patterns=_ENDS):
            if self._last is None or event.seq > self._last.seq:
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._try()
                due = loop.time() + self._interval_s

    async def _try(self) -> None:
        """Anchor, and go on without where that fails: the next time covers what is missing."""
        try:
            await self.anchor()
            self._has_failed = False
        except HoldfastError as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning("anchor_failed", error=str(error))

    def _find_place(self) -> AnchorPlace:
        if not self._address:
            raise UsageError(
                detail="No place for anchors is set; give audit.anchor, such as "
                "file:///var/log/holdfast/anchors.jsonl."
            )
        scheme = urlsplit(self._address).scheme
        if scheme == "file":
            return FileAnchors(_find_file(self._address))
        if scheme in ("http", "https"):
            return HttpAnchors(self._address, self._token)
        return StoreAnchors(self._address, base_dir=self._base_dir, clock=self._journal.clock)


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file of anchors; `previous` is the SHA-256 of the line before it."""

    previous: str
    anchor: HeadsAnchored


class FileAnchors:
    """Anchors in a file of JSON lines that only grows; each line names the one before it."""

    def __init__(self, path: Path) -> None:
        """Keep them in this file; it is made with the first one."""
        self._path = path

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def read_last(self, store: str) -> HeadsAnchored | None:
        """Return the last anchor of a store, from the end of the file."""
        line = await asyncio.to_thread(self._find_last, store)
        found = _parse_line(line) if line else None
        return found.anchor if found is not None else None

    async def read_all(self, store: str) -> Anchors:
        """Return all anchors of a store, and lines that were changed or removed."""
        lines = (await asyncio.to_thread(self._read, _MOST_BYTES)).splitlines()
        anchors: list[HeadsAnchored] = []
        findings: list[Finding] = []
        previous, torn = "", ""
        for number, line in enumerate(lines, 1):
            found = _parse_line(line)
            if found is None:
                # One that was cut by a crash is followed by one that does not build on it.
                torn = torn or f"line {number} of the anchor {self._path} cannot be read"
                continue
            if found.previous != previous:
                problem = f"the anchor {self._path} was changed before line {number}"
                findings.append(_find_fault(torn or problem))
            torn, previous = "", _digest(line)
            if found.anchor.store == store:
                anchors.append(found.anchor)
        return Anchors(anchors=tuple(anchors), findings=tuple(findings))

    async def write(self, anchor: HeadsAnchored) -> None:
        """Add a line, on the disk when this returns."""
        await asyncio.to_thread(self._write, anchor)

    def _find_last(self, store: str = "") -> bytes:
        """Return the last whole line, of a store or of any."""
        for size in (_TAIL_BYTES, _MOST_BYTES):
            for line in reversed(self._read(size).splitlines()):
                found = _parse_line(line)
                if found is not None and store in ("", found.anchor.store):
                    return line
        return b""

    def _read(self, most: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most))
                return file.read(most)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StorageError(path=str(self._path), detail=str(error.strerror)) from error

    def _write(self, anchor: HeadsAnchored) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0) as file:
                # One process at a time: each line names the one before it.
                fcntl.flock(file, fcntl.LOCK_EX)
                before = self._find_last()
                line = _Line(previous=_digest(before) if before else "", anchor=anchor)
                start = b"" if self._read(1) in (b"", b"\n") else b"\n"
                data = start + msgspec.json.encode(line) + b"\n"
                if file.write(data) != len(data):
                    raise StorageError(path=str(self._path), detail="the line is not whole")
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(path=str(self._path), detail=str(error.strerror)) from error


class StoreAnchors:
    """Anchors as facts of another store, in a session for each store that is anchored."""

    def __init__(self, url: str, *, base_dir: Path, clock: Clock) -> None:
        """Keep them in the store at this address."""
        self._url = url
        self._journal = Journal(open_store(url, base_dir=base_dir, clock=clock), clock=clock)

    async def open(self) -> None:
        """Open the other store."""
        await self._journal.open()

    async def close(self) -> None:
        """Close it."""
        await self._journal.close()

    async def read_last(self, store: str) -> HeadsAnchored | None:
        """Return the last anchor of a store."""
        head = await self._journal.head(_name_session(store))
        if head is None:
            return None
        events = await self._journal.read(head.session_id, after=head.session_seq - 1)
        return events[-1].expect(HeadsAnchored)

    async def read_all(self, store: str) -> Anchors:
        """Return all anchors of a store; their own chain is checked."""
        events = await self._journal.read_all(_name_session(store))
        findings = tuple(
            _find_fault(f"the anchor: event {found.session_seq}: {found.problem}")
            for found in (check_chain(events) if events else ())
        )
        anchors = () if findings else tuple(event.expect(HeadsAnchored) for event in events)
        return Anchors(anchors=anchors, findings=findings)

    async def write(self, anchor: HeadsAnchored) -> None:
        """Add a fact."""
        name = _name_session(anchor.store)
        if await self._journal.head(name) is None:
            with contextlib.suppress(AlreadyExists):
                await self._journal.append(name, [anchor], must_be_new=True)
                return
        await self._journal.append(name, [anchor])


class HttpAnchors:
    """Anchors at an address: each is sent by POST; GET with `?store=` returns them, one a line."""

    def __init__(self, url: str, token: str) -> None:
        """Send them to this address, with a token if there is one.

        Raises:
            UsageError: a token would go over plain http to another machine.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
            raise UsageError(detail="audit.anchor: an address on another machine must be https.")
        rules = NetworkRules(
            allow_net=True, allowed_hosts=(open_every_port(host),), private_networks=_NEAR
        )
        self._http = SafeHttpClient(rules)
        self._url = url
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def read_last(self, store: str) -> HeadsAnchored | None:
        """Return the last anchor; an address that cannot be read gets all heads once more."""
        try:
            found = await self.read_all(store)
        except HoldfastError:
            return None
        return found.anchors[-1] if found.anchors else None

    async def read_all(self, store: str) -> Anchors:
        """Return what was sent."""
        sign = "&" if urlsplit(self._url).query else "?"
        body = await self._ask("GET", f"{self._url}{sign}{urlencode({'store': store})}")
        anchors: list[HeadsAnchored] = []
        for line in body.splitlines():
            try:
                anchor = msgspec.json.decode(line, type=HeadsAnchored)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return Anchors(findings=(_find_fault("the address returns what is no anchor"),))
            if anchor.store == store:
                anchors.append(anchor)
        return Anchors(anchors=tuple(anchors))

    async def write(self, anchor: HeadsAnchored) -> None:
        """Send one."""
        await self._ask("POST", self._url, msgspec.json.encode(anchor))

    async def _ask(self, method: str, url: str, body: bytes = b"") -> bytes:
        request = HttpRequest(
            url=url,
            method=method,
            headers={**self._headers, "content-type": "application/json"},
            body=body,
            max_bytes=_MOST_BYTES,
            timeout_s=_TIMEOUT_S,
        )
        response = await self._http.fetch(request)
        if not 200 <= response.status < 300 or response.is_truncated:
            host = urlsplit(self._url).hostname
            raise StorageError(path=str(host), detail=f"the address answered {response.status}")
        return response.body


@contextlib.asynccontextmanager
async def _opened(place: AnchorPlace) -> AsyncIterator[AnchorPlace]:
    await place.open()
    try:
        yield place
    finally:
        await place.close()


def _find_file(address: str) -> Path:
    parts = urlsplit(address)
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path.strip("/") or "\0" in path:
        raise UsageError(detail="audit.anchor: file:// is followed by the absolute path of a file.")
    return Path("/" + path.lstrip("/"))


def _parse_line(line: bytes) -> _Line | None:
    try:
        return msgspec.json.decode(line, type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _name_session(store: str) -> str:
    return f"anchors_{store}"


def _find_fault(problem: str) -> Finding:
    return Finding(session_id=SYSTEM_SESSION, session_seq=0, problem=problem)


__all__ = ["AnchorPlace", "AnchorService", "Anchors"]
