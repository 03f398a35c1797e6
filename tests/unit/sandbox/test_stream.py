"""A program that stays is confined like a command, speaks line by line, and ends when told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace

_ECHO = ("/bin/sh", "-c", 'while read line; do echo "got $line"; done')


@pytest.fixture(params=["landlock", "bubblewrap"])
def level(request, bubblewrap):
    return request.param


@asynccontextmanager
async def opened(tmp_path, argv, level="landlock", *, line_bytes=4096, **options):
    root = tmp_path / "ws"
    root.mkdir(exist_ok=True)
    given = SandboxOptions(level=level, environment={"GIVEN": "yes"}, **options)
    runner = SandboxRunner(Workspace(root), given)
    try:
        stream = await runner.open_program(argv, line_bytes=line_bytes)
        try:
            yield stream
        finally:
            await stream.aclose()
    finally:
        await runner.aclose()


async def test_lines_go_in_and_out_while_the_program_runs(tmp_path, level):
    async with opened(tmp_path, _ECHO, level) as stream:
        for word in (b"one", b"two"):
            await stream.write(word + b"\n")
            assert await stream.read_line() == b"got " + word + b"\n"
        assert stream.level_name == f"{stream.level_name.split('/')[0]}/workspace-write"
        assert not stream.ended.is_set()


async def test_read_only_profile_holds_for_a_program_that_stays(tmp_path, level):
    script = 'touch made && echo made || echo refused; read line; echo "$GIVEN"'
    argv = ("/bin/sh", "-c", script)
    async with opened(tmp_path, argv, level, profile="read-only") as stream:
        assert await stream.read_line() == b"refused\n"
        await stream.write(b"\n")
        assert await stream.read_line() == b"yes\n"
    assert not (tmp_path / "ws" / "made").exists()


async def test_bytes_are_read_by_their_number_and_fewer_only_at_the_end(tmp_path):
    argv = ("/bin/sh", "-c", "printf 'a\\nbcdef'")
    async with opened(tmp_path, argv) as stream:
        assert await stream.read_exactly(3) == b"a\nb"
        assert await stream.read_exactly(30) == b"cdef"
        assert await stream.read_exactly(1) == b""


async def test_closing_ends_a_program_that_does_not_want_to(tmp_path, level):
    argv = ("/bin/sh", "-c", "trap '' TERM HUP INT; echo up; while true; do sleep 1000; done")
    async with opened(tmp_path, argv, level) as stream:
        assert await stream.read_line() == b"up\n"
        await stream.aclose()
        assert stream.ended.is_set()
        assert await stream.read_line() == b""


async def test_end_of_the_program_is_noticed_with_its_complaints(tmp_path):
    argv = ("/bin/sh", "-c", "echo broken >&2; exit 3")
    async with opened(tmp_path, argv) as stream:
        assert await stream.read_line() == b""
        async with asyncio.timeout(20):
            await stream.ended.wait()
        assert await stream.read_complaints() == "broken\n"


async def test_program_that_is_not_there_says_so(tmp_path):
    async with opened(tmp_path, ("no-such-program",)) as stream:
        assert await stream.read_line() == b""
        async with asyncio.timeout(20):
            await stream.ended.wait()
        assert "not found" in await stream.read_complaints()


async def test_line_that_is_too_long_is_an_error_and_not_kept(tmp_path):
    argv = ("/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo")
    async with opened(tmp_path, argv, line_bytes=1000) as stream:
        with pytest.raises(ValueError, match="limit"):
            await stream.read_line()


async def test_closed_stream_takes_nothing_more(tmp_path):
    async with opened(tmp_path, _ECHO) as stream:
        await stream.aclose(grace_s=20)
        with pytest.raises(ConnectionError):
            await stream.write(b"x\n")
        await stream.aclose()
