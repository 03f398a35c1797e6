"""A process may be killed around every exchange with Postgres that may change something."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from holdfast.testing.crash import cross_boundary

_SYNC = b"S\x00\x00\x00\x04"
_STATEMENT = re.compile(
    rb"\b(INSERT INTO|UPDATE|DELETE FROM|COMMIT|SELECT|BEGIN|SET|SHOW|ROLLBACK)\b(?:\s+([a-z_.]+))?"
)
_CHANGES = (b"INSERT INTO", b"UPDATE", b"DELETE FROM", b"COMMIT")
_MOST = 1 << 20


def name_tenant(url: str, directory: str | Path) -> str:
    """Return the address of rows that belong to a directory alone."""
    tenant = re.sub(r"[^a-z0-9]+", "-", str(directory).lower())[-60:].strip("-")
    return f"{url}&holdfast_tenant={tenant}"


@contextlib.contextmanager
def serve_boundaries(url: str) -> Iterator[str]:
    """Stand before a Postgres server, in this process; yields the address."""
    address = urlsplit(url)
    query = dict(parse_qsl(address.query))
    behind = f"{query.pop('host')}/.s.PGSQL.5432"
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_accept, args=(listening, behind), daemon=True).start()
    query |= {"sslmode": "disable", "gssencmode": "disable"}
    user, port = quote(address.username or ""), listening.getsockname()[1]
    try:
        yield urlunsplit(
            address._replace(netloc=f"{user}@127.0.0.1:{port}", query=urlencode(query))
        )
    finally:
        listening.close()


def _accept(listening: socket.socket, behind: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listening.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(behind)
            threading.Thread(target=_carry, args=(client, server), daemon=True).start()


def _carry(client: socket.socket, server: socket.socket) -> None:
    sent = b""
    with client, server, contextlib.suppress(OSError):
        while True:
            ready, _, _ = select.select([client, server], [], [])
            if server in ready:
                if not (data := server.recv(_MOST)):
                    return
                client.sendall(data)
                continue
            if not (data := client.recv(_MOST)):
                return
            sent += data
            if not (sent.endswith(_SYNC) or _is_query(sent)):
                server.sendall(data)
                continue
            found = _STATEMENT.search(sent)
            sent = b""
            if found is not None and found[1] not in _CHANGES:
                server.sendall(data)
                continue
            # What was prepared before is carried out without its words.
            name = b" ".join(filter(None, found.groups())).decode() if found else "EXECUTE"
            client.sendall(cross_boundary(name, lambda data=data: _exchange(server, data)))


def _is_query(sent: bytes) -> bool:
    return sent[:1] == b"Q" and len(sent) == 1 + int.from_bytes(sent[1:5])


def _exchange(server: socket.socket, data: bytes) -> bytes:
    server.sendall(data)
    return server.recv(_MOST)


__all__ = ["name_tenant", "serve_boundaries"]
