"""A server that speaks as much of Redis as the store of rate rules needs, on a clock of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from holdfast.clock import Clock


class SmallRedis:
    """Keeps hashes. `before_exec` is called with each transaction before it is carried out."""

    def __init__(self, clock: Clock) -> None:
        self.hashes: dict[str, dict[str, int]] = {}
        self.before_exec: Callable[[], None] = lambda: None
        self.url = ""
        self._clock = clock
        self._versions: dict[str, int] = {}

    def touch(self, key: str) -> dict[str, int]:
        """Change a hash as another process would."""
        self._versions[key] = self._versions.get(key, 0) + 1
        return self.hashes.setdefault(key, {})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it ends."""
        watched: dict[str, int] = {}
        queued: list[list[str]] | None = None
        while line := await reader.readline():
            words = [await _bulk(reader) for _ in range(int(line[1:]))]
            name, rest = words[0].upper(), words[1:]
            if name == "WATCH":
                watched = {key: self._versions.get(key, 0) for key in rest}
                answer: object = "OK"
            elif name == "UNWATCH":
                watched, answer = {}, "OK"
            elif name == "MULTI":
                queued, answer = [], "OK"
            elif name == "EXEC" and queued is not None:
                self.before_exec()
                is_same = all(self._versions.get(key, 0) == seen for key, seen in watched.items())
                answer = [self._carry_out(*each) for each in queued] if is_same else None
                watched, queued = {}, None
            elif queued is not None:
                queued.append(words)
                answer = "QUEUED"
            else:
                answer = self._carry_out(name, *rest)
            writer.write(_encoded(answer))
            await writer.drain()
        writer.close()

    def _carry_out(self, name: str, key: str = "", *rest: str) -> object:
        if name == "TIME":
            now = self._clock.now()
            return [str(int(now)), str(int(now % 1 * 1_000_000))]
        if name == "HGETALL":
            return [str(each) for pair in self.hashes.get(key, {}).items() for each in pair]
        if name == "HINCRBY":
            stored = self.touch(key)
            stored[rest[0]] = stored.get(rest[0], 0) + int(rest[1])
            return stored[rest[0]]
        if name == "HDEL":
            stored = self.touch(key)
            return sum(stored.pop(field, None) is not None for field in rest)
        return 1 if name == "PEXPIREAT" else "OK"


@contextlib.asynccontextmanager
async def small_redis(clock: Clock) -> AsyncIterator[SmallRedis]:
    """Serve on a free port of the loopback interface."""
    redis = SmallRedis(clock)
    server = await asyncio.start_server(redis.serve, "127.0.0.1", 0)
    redis.url = f"redis://:hunter2@127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    async with server:
        yield redis


async def _bulk(reader: asyncio.StreamReader) -> str:
    size = int((await reader.readline())[1:])
    return (await reader.readexactly(size + 2))[:-2].decode()


def _encoded(answer: object) -> bytes:
    if isinstance(answer, list):
        return b"*%d\r\n" % len(answer) + b"".join(map(_encoded, answer))
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if answer is None:
        return b"*-1\r\n"
    if answer in ("OK", "QUEUED"):
        return f"+{answer}\r\n".encode()
    text = str(answer).encode()
    return b"$%d\r\n%s\r\n" % (len(text), text)
