"""`holdfast doctor --server URL` says what is wrong, and sends no key to strangers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from served import Running, running

from holdfast.cli.doctor_server import read_metric


async def ask_doctor(url: str, home: Path, **environ: str) -> tuple[int, dict[str, Any]]:
    """Run the command as a person does; returns its exit code, and the checks by name."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "doctor", "--server", url, "--json"),
        cwd=home,
        env={**os.environ, "HOME": str(home), **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert b"Traceback" not in err
    found = {one["name"]: one for one in json.loads(out)["checks"]}
    assert process.returncode is not None
    return process.returncode, found


async def test_healthy_server_is_told_in_all_respects(server: Running, tmp_path: Path) -> None:
    code, found = await ask_doctor(server.url, tmp_path, HOLDFAST_API_KEY=server.token)
    assert code == 0
    assert set(found) == {
        *("python", "settings", "server", "ready", "version"),
        *("time", "key", "policies", "load"),
    }
    assert {one["status"] for one in found.values()} == {"ok"}
    assert "0 runs wait" in found["load"]["found"]


async def test_wrong_key_is_named_as_the_cause(server: Running, tmp_path: Path) -> None:
    code, found = await ask_doctor(server.url, tmp_path, HOLDFAST_API_KEY="hf_wrong")
    assert code == 1
    assert (found["server"]["status"], found["key"]["status"]) == ("ok", "fail")
    assert "HOLDFAST_API_KEY" in found["key"]["fix"]
    assert "hf_wrong" not in json.dumps(found)


async def test_refused_policies_are_named(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        folder = server.app.settings.workspace / "policies"
        folder.mkdir()
        (folder / "tools.yaml").write_text("defaults: {nonsense: 1}\n", encoding="utf-8")
        code, found = await ask_doctor(server.url, tmp_path, HOLDFAST_API_KEY=server.token)
        assert (code, found["policies"]["status"]) == (1, "fail")
        (folder / "tools.yaml").write_text("defaults: {max_tool_calls: 9}\n", encoding="utf-8")
        await server.ask("POST", "/v1/policies/reload", {})
        (folder / "tools.yaml").write_text("defaults: {nonsense: 2}\n", encoding="utf-8")
        await server.ask("POST", "/v1/policies/reload", {})
        code, found = await ask_doctor(server.url, tmp_path, HOLDFAST_API_KEY=server.token)
    assert (code, found["policies"]["status"]) == (0, "warn")
    assert "nonsense" in found["policies"]["found"]


async def test_server_that_stops_is_not_ready(server: Running, tmp_path: Path) -> None:
    server.app.drain()
    code, found = await ask_doctor(server.url, tmp_path, HOLDFAST_API_KEY=server.token)
    assert code == 1
    assert (found["ready"]["status"], found["ready"]["found"]) == ("fail", "draining")


async def test_dead_server_another_program_and_plain_http_are_told_apart(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
    _, found = await ask_doctor(url, tmp_path)
    assert "not as Holdfast does" in found["server"]["found"]
    other.close()
    await other.wait_closed()
    code, found = await ask_doctor(url, tmp_path)
    assert code == 1
    assert "does not answer" in found["server"]["found"]
    _, found = await ask_doctor("http://example.com", tmp_path, HOLDFAST_API_KEY="hf_secret")
    assert "could read the key" in found["server"]["found"]


def test_metric_is_found_with_its_labels() -> None:
    text = 'a{s="x"} 3\na{s="y"} 4\nab 9\nb 2.5\nc x\n'
    assert (read_metric(text, 'a{s="y"}'), read_metric(text, "b")) == (4.0, 2.5)
    assert read_metric(text, "c") == read_metric(text, "none") == 0.0
