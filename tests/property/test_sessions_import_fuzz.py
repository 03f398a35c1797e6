"""A changed export is refused before anything happens, whatever was changed."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidImport
from holdfast.journal import Journal, MemoryStore
from holdfast.messages import TextPart
from holdfast.sessions import (
    SESSION_PROJECTIONS,
    RetentionPolicy,
    SessionManager,
    clean_up,
    export_lines,
    parse_export,
)
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper


@functools.cache
def exported() -> bytes:
    """A small export with redactions, parts, reverts and a large payload in it."""

    async def make() -> bytes:
        clock = FakeClock()
        journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS, clock=clock), clock=clock)
        keeper = LeaseKeeper(journal)
        manager = SessionManager(journal, keeper)
        session = await manager.create_session(
            "Fuzz me", directory="/srv", session_id="ses_fuzz", metadata={"a": [1, 2.5, None]}
        )
        await manager.add_message(session.id, "user", "old")
        clock.advance(10)
        await clean_up(manager, RetentionPolicy(message_ttl_s=5))
        message = await manager.add_message(session.id, "assistant", "ä🙂" * 20)
        await manager.update_part(session.id, message.id, TextPart(id="p", text="more"))
        await manager.revert_session(session.id, to=4)
        await manager.add_message(session.id, "user", "last")
        keeper.close()
        return b"".join([line async for line in export_lines(journal, session.id)])

    return asyncio.run(make())


def refused(data: bytes) -> None:
    """Importing changes nothing, because parsing already refuses; and only in one way."""
    with pytest.raises(InvalidImport):
        parse_export(io.BytesIO(data))


def test_the_unchanged_file_is_taken() -> None:
    assert len(parse_export(io.BytesIO(exported()))) == exported().count(b"\n") - 1


@given(st.integers(0, 8 * 10**6))
def test_no_bit_can_be_flipped(place: int) -> None:
    data = bytearray(exported())
    place %= 8 * len(data)
    data[place // 8] ^= 1 << place % 8
    refused(bytes(data))


def test_every_byte_counts() -> None:
    """One change at each byte of the file, systematically."""
    data = exported()
    chosen = random.Random(7)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] = chosen.choice([c for c in b'0a"{}\\ \xff' if c != data[place]])
        refused(bytes(changed))


def test_a_file_cut_anywhere_is_refused() -> None:
    data = exported()
    for length in range(len(data)):
        refused(data[:length])


@given(st.permutations(range(8)))
def test_lines_in_another_order_are_refused(order: list[int]) -> None:
    lines = exported().splitlines(keepends=True)
    assert len(lines) >= 8
    if list(order) == list(range(8)):
        return
    refused(b"".join([lines[n] for n in order] + lines[8:]))


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_line_that_comes_twice_is_refused(which: int, where: int) -> None:
    lines = exported().splitlines(keepends=True)
    lines.insert(where % (len(lines) + 1), lines[which % len(lines)])
    refused(b"".join(lines))


@given(st.binary(max_size=300))
@example(b"")
@example(b"\x00" * 100)
@example(b"SQLite format 3\x00")
@example(b"\n\n\n")
def test_any_other_file_is_refused(data: bytes) -> None:
    refused(data)
    refused(exported() + data if data else b"")


@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=20))
def test_nothing_can_be_put_in_between(place: int, more: bytes) -> None:
    data = exported()
    place %= len(data)
    changed = data[:place] + more + data[place:]
    if changed != data:
        refused(changed)


WORDS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["../../etc/passwd", "\x00", "system", "e" * 5000, 10**400, -1, 2**63]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.integers(0, 20), st.integers(0, 20), WORDS)
def test_fields_of_other_types_are_refused(line: int, field: int, value: object) -> None:
    lines = exported().splitlines()
    chosen = line % len(lines)
    parsed = json.loads(lines[chosen])
    names = sorted(parsed)
    name = names[field % len(names)]
    if parsed[name] == value and type(parsed[name]) is type(value):
        return
    parsed[name] = value
    # The way Python writes it: NaN, Infinity, huge numbers, lone surrogates and all.
    lines[chosen] = json.dumps(parsed, separators=(",", ":")).encode()
    refused(b"\n".join([*lines, b""]))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data + b"\n",
        lambda data: data + b" ",
        lambda data: data.decode().encode("utf-16"),
        lambda data: data * 2,
        lambda data: data.replace(b'"payload":{', b'"payload":' + b'{"x":' * 100_000, 1),
        lambda data: data.replace(b'"payload":{', b'"payload":{"x":' + b"[" * 200_000, 1),
        lambda data: data.replace(b'"time":', b'"time":NaN,"x":', 1),
        lambda data: data.replace(b'"time":', b'"time":1e999,"x":', 1),
        lambda data: data.replace(b'"n":1,', b'"n":1' + b"0" * 5000 + b",", 1),
        lambda data: data.replace(b"ses_fuzz", b"../../up"),
    ],
)
def test_known_tricks_are_refused(change: object) -> None:
    assert callable(change)
    changed = change(exported())
    assert changed != exported()
    refused(changed)
