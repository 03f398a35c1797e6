"""Every action of every kind of run becomes one line, once, and the lines answer for it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

from holdfast import AsyncClient
from holdfast.cli.app import root
from holdfast.errors import ConfigError
from holdfast.runtime.audit_sinks import SyslogSink
from holdfast.settings import load_settings

QUESTION = "What is 15 times 23?"


def open_client(place: Path, **more: object) -> AsyncClient:
    chosen = {"storage.state_dir": str(place / "state"), "workspace": str(place), **more}
    return AsyncClient(settings=load_settings(overrides=chosen).settings)


def list_files(place: Path) -> list[Path]:
    return sorted((place / "state" / "audit").glob("audit-*.jsonl"))


def read_lines(place: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in list_files(place) for line in file.read_text().splitlines()
    ]


async def test_read_tools_and_models_are_audited_with_version_and_source(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello private-content\n")
    async with open_client(tmp_path) as client:
        result = await client.runs.execute("build", "", "Read a.txt")
    lines = read_lines(tmp_path)
    [call] = [line for line in lines if line["action"] == "tool.call"]
    assert (call["tool"], call["outcome"], call["agent"]) == ("read", "completed", "build")
    assert (call["actor"], call["tenant"], call["run_id"]) == ("owner", "default", result.run_id)
    assert call["tool_version"] == "1.0.0"
    assert len(call["source_hash"]) == 64
    answers = [line["outcome"] for line in lines if line["action"] == "model.call"]
    assert answers == ["tool_calls", "stop"]
    assert "policy.loaded" in {line["action"] for line in lines}
    assert "private-content" not in json.dumps(lines)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "state" / "audit").iterdir()}
    assert modes == {0o600}


async def test_every_line_is_written_once_however_many_processes_write(tmp_path: Path) -> None:
    async with open_client(tmp_path) as one, open_client(tmp_path) as two:
        for client in (one, two, one):
            await client.runs.execute("build", "", QUESTION)
            await asyncio.gather(one.audit.list(), two.audit.list())
    lines = read_lines(tmp_path)
    assert len([line for line in lines if line["action"] == "tool.call"]) == 3
    numbers = [line["seq"] for line in lines]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("kept", [-1, 2])
async def test_lines_lost_in_a_crash_are_written_again(tmp_path: Path, kept: int) -> None:
    async with open_client(tmp_path) as client:
        await client.runs.execute("build", "", QUESTION)
    [file] = list_files(tmp_path)
    before = file.read_bytes()
    whole = before.splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:kept]) + whole[kept][:40])
    (tmp_path / "state" / "audit" / "position.json").unlink()
    async with open_client(tmp_path) as client:
        assert await client.audit.verify_trail() == []
    assert file.read_bytes() == before


CHANGES: dict[str, Callable[[list[str]], list[str]]] = {
    "edit": lambda lines: [line.replace('"calculator"', '"bash"') for line in lines],
    "remove": lambda lines: [lines[0], *lines[2:]],
    "repeat": lambda lines: [lines[0], *lines],
    "swap": lambda lines: [lines[1], lines[0], *lines[2:]],
    "invent": lambda lines: [*lines, lines[-1].replace('"seq":', '"seq":9')],
    "garble": lambda lines: [lines[0], "no line\n", *lines[1:]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_trail_is_found(
    tmp_path: Path, change: Callable[[list[str]], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(root, ["run", QUESTION]).exit_code == 0
    assert CliRunner().invoke(root, ["audit", "verify"]).exit_code == 0
    [file] = list_files(tmp_path)
    file.write_text("".join(change(file.read_text().splitlines(keepends=True))))
    told = CliRunner().invoke(root, ["audit", "verify"])
    assert told.exit_code == 1, told.output


async def test_redacted_and_deleted_sessions_leave_a_sound_trail(tmp_path: Path) -> None:
    async with open_client(tmp_path) as client:
        first = await client.runs.execute("build", "", QUESTION)
        second = await client.runs.execute("build", "", QUESTION)
        await client.audit.list()
        journal = await client.storage.journal()
        numbers = [
            event.session_seq
            for event in await journal.read_all(first.session_id)
            if event.decode().has_content
        ]
        await journal.redact(first.session_id, numbers, reason="test")
        await client.sessions.delete(second.session_id)
        assert await client.audit.verify_trail() == []
        assert "session.deleted" in {one.action for one in await client.audit.list(limit=1000)}


async def test_files_are_rotated_and_read_as_one(tmp_path: Path) -> None:
    async with open_client(tmp_path) as client:
        client._runtime.audit.trail._max_bytes = 1500
        await client.runs.execute("build", "", QUESTION)
        await client.runs.execute("build", "", QUESTION)
        entries = await client.audit.list()
        assert len(list_files(tmp_path)) > 2
        assert [one.seq for one in entries] == sorted({one.seq for one in entries})
        assert await client.audit.list(after=entries[3].seq) == entries[4:]
        assert await client.audit.verify_trail() == []


CHILD = """
import asyncio, os, signal, sys
from holdfast import AsyncClient
from holdfast.settings import load_settings
async def main():
    chosen = {"storage.state_dir": sys.argv[1] + "/state", "workspace": sys.argv[1]}
    client = AsyncClient(settings=load_settings(overrides=chosen).settings)
    await client.runs.execute("build", "", "What is 15 times 23?")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def test_killed_process_leaves_its_lines_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], check=False, capture_output=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(root, ["audit", "list", "--action", "tool.call", "--json"])
    assert told.exit_code == 0, told.output
    assert [row["tool"] for row in json.loads(told.stdout)] == ["calculator"]
    target = tmp_path / "out.jsonl"
    assert CliRunner().invoke(root, ["audit", "export", "--to", str(target)]).exit_code == 0
    assert [json.loads(line) for line in target.read_text().splitlines()] == read_lines(tmp_path)
    told = CliRunner().invoke(root, ["audit", "tail", "-n", "1", "--json"])
    assert json.loads(told.stdout)[-1]["seq"] == read_lines(tmp_path)[-1]["seq"]


async def test_sinks_get_every_line_in_order_also_after_an_outage(tmp_path: Path) -> None:
    got: list[dict[str, Any]] = []
    is_up = False

    async def take(request: web.Request) -> web.Response:
        if not is_up:
            return web.Response(status=503)
        got.extend(json.loads(line) for line in (await request.text()).splitlines())
        return web.Response()

    app = web.Application()
    app.router.add_post("/audit", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    heard.bind(("127.0.0.1", 0))
    heard.settimeout(10)
    sinks = {
        "audit.webhook": f"http://127.0.0.1:{port}/audit",
        "audit.webhook_networks": ["127.0.0.0/8"],
        "audit.syslog": f"udp://127.0.0.1:{heard.getsockname()[1]}",
    }
    try:
        async with open_client(tmp_path, **sinks) as client:
            await client.runs.execute("build", "", QUESTION)
            await client.audit.list()
            assert client._runtime.audit.error.startswith("audit.sink_failed")
            assert got == []
            is_up = True
            await client.runs.execute("build", "", QUESTION)
        assert got == read_lines(tmp_path)
        messages = [await asyncio.to_thread(heard.recv, 65536) for _ in got]
    finally:
        heard.close()
        await runner.cleanup()
    assert all(one.startswith((b"<110>1 ", b"<108>1 ")) for one in messages)
    assert [json.loads(one[one.index(b"{") :]) for one in messages] == got


async def test_syslog_over_tcp_counts_octets_and_bad_addresses_are_refused(tmp_path: Path) -> None:
    received = bytearray()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read())
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, open_client(tmp_path, **{"audit.syslog": f"tcp://127.0.0.1:{port}"}) as one:
        await one.runs.execute("build", "", QUESTION)
        await one.audit.list()
    length, _, rest = bytes(received).partition(b" ")
    assert rest[: int(length)].startswith(b"<110>1 ")
    assert rest[: int(length)].endswith(b"}")
    with pytest.raises(ConfigError):
        SyslogSink("here")


async def test_use_of_a_key_is_a_line(tmp_path: Path) -> None:
    async with open_client(tmp_path) as client:
        made = await client.keys.create("ci", roles=["viewer"])
        control = client._runtime.control
        assert await control.keys.verify(made.secret) is not None
        assert await control.keys.verify(made.secret) is not None
        used = await client.audit.list(action="identity.key_used")
        assert [one.detail["key_id"] for one in used] == [made.key.id]
        assert made.secret not in json.dumps(read_lines(tmp_path))


async def test_trail_can_be_switched_off_and_is_not_kept_for_records_that_are_not(
    tmp_path: Path,
) -> None:
    async with open_client(tmp_path, **{"audit.enabled": False}) as client:
        await client.runs.execute("build", "", QUESTION)
    async with open_client(tmp_path, **{"storage.url": "memory://"}) as client:
        await client.runs.execute("build", "", QUESTION)
    assert not (tmp_path / "state" / "audit").exists()
