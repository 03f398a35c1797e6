"""Where the lines of the audit trail go besides the files: syslog, and any HTTP address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from holdfast.errors import AuditSinkFailed, ConfigError
from holdfast.observability import AuditEntry
from holdfast.policy import NetworkRules
from holdfast.tools import HttpRequest, SafeHttpClient

if TYPE_CHECKING:
    from holdfast.settings import Settings

_TIMEOUT_S: Final = 10.0
# RFC 5424: facility 13 (log audit), severity 6 (informational) and 4 (warning).
_INFORMATIONAL: Final = 13 * 8 + 6
_WARNING: Final = 13 * 8 + 4
_BAD: Final = frozenset({"error", "deny", "refused", "unknown"})


class AuditSink(Protocol):
    """One receiver; `name` says which, wherever its place in the trail is noted."""

    @property
    def name(self) -> str:
        """Its address."""

    async def send(self, entries: Sequence[AuditEntry]) -> None:
        """Hand entries over, in order; raises AuditSinkFailed if they may not have arrived."""


def make_sinks(settings: Settings) -> list[AuditSink]:
    """Return the sinks that the settings name; raises ConfigError for an address of no kind."""
    found: list[AuditSink] = []
    chosen = settings.audit
    if chosen.syslog:
        found.append(SyslogSink(chosen.syslog))
    if chosen.webhook:
        found.append(WebhookSink(chosen.webhook, networks=chosen.webhook_networks))
    return found


class SyslogSink:
    """Sends each line as a message of RFC 5424: `udp://HOST:514`, `tcp://HOST:601`, or
    `unix:///dev/log`; over TCP with octet counting (RFC 6587)."""

    def __init__(self, url: str) -> None:
        """Send to this address."""
        self.name = url
        parts = urlsplit(url)
        if parts.scheme not in ("udp", "tcp", "unix") or not (parts.hostname or parts.path):
            raise ConfigError(
                detail="audit.syslog: say udp://HOST:514, tcp://HOST:601 or unix:///dev/log"
            )
        self._parts = parts
        self._host = socket.gethostname()[:255] or "-"

    async def send(self, entries: Sequence[AuditEntry]) -> None:
        """Send them; a datagram that is lost on its way is not noticed."""
        messages = [self.format(entry) for entry in entries]
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                if self._parts.scheme == "tcp":
                    await self._send_stream(messages)
                else:
                    await asyncio.to_thread(_send_datagrams, self._parts, messages)
        except (OSError, TimeoutError) as error:
            detail = str(error) or "it took too long"
            raise AuditSinkFailed(sink=self.name, detail=detail) from error

    def format(self, entry: AuditEntry) -> bytes:
        """Return the message of one entry."""
        priority = _WARNING if entry.outcome in _BAD else _INFORMATIONAL
        time = entry.time.replace("+00:00", "Z")
        head = f"<{priority}>1 {time} {self._host} holdfast - {entry.kind[:32]} - "
        return head.encode() + msgspec.json.encode(entry)

    async def _send_stream(self, messages: Sequence[bytes]) -> None:
        _, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port or 601)
        try:
            writer.writelines(b"%d %s" % (len(one), one) for one in messages)
            await writer.drain()
        finally:
            writer.close()
            await writer.wait_closed()


def _send_datagrams(parts: SplitResult, messages: Sequence[bytes]) -> None:
    if parts.scheme == "unix":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(parts.path)
            for message in messages:
                channel.send(message)
        return
    found = socket.getaddrinfo(parts.hostname, parts.port or 514, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as channel:
        for message in messages:
            channel.sendto(message, address)


class WebhookSink:
    """Posts lines as newline-delimited JSON to an address, which answers with 2xx."""

    def __init__(self, url: str, *, networks: Sequence[str] = ()) -> None:
        """Post to this address; `networks` that are not public may be reached too."""
        self.name = url
        host = urlsplit(url).hostname
        if urlsplit(url).scheme not in ("http", "https") or not host:
            raise ConfigError(detail="audit.webhook: say an http or https address")
        rules = NetworkRules(
            allow_net=True, allowed_hosts=(host,), private_networks=tuple(networks)
        )
        self._client = SafeHttpClient(rules)

    async def send(self, entries: Sequence[AuditEntry]) -> None:
        """Post them together."""
        request = HttpRequest(
            url=self.name,
            method="POST",
            headers={"Content-Type": "application/x-ndjson"},
            body=b"".join(msgspec.json.encode(one) + b"\n" for one in entries),
            max_bytes=64 * 1024,
            timeout_s=_TIMEOUT_S,
        )
        answer = await self._client.fetch(request)
        if not 200 <= answer.status < 300:
            raise AuditSinkFailed(sink=self.name, detail=f"it answered with {answer.status}")


__all__ = ["AuditSink", "SyslogSink", "WebhookSink", "make_sinks"]
