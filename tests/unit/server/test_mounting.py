"""The application inside of others, middleware around it, routes that will go, reloading."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import signal
import sys
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from served import running, until

from holdfast import Agent
from holdfast.errors import ConfigError
from holdfast.server import create_app
from holdfast.server.factory import MIDDLEWARE_GROUP
from holdfast.settings import load_settings
from holdfast.testing import ModelReply, ScriptedModel


def stamp(name: str) -> Any:
    """Middleware that puts its name on every answer, and refuses what says so."""

    def wrap(app: Any) -> Any:
        async def inner(scope: Any, receive: Any, send: Any) -> None:
            async def sending(message: Any) -> None:
                if message["type"] == "http.response.start":
                    message["headers"] = [*message["headers"], (b"x-seen", name.encode())]
                await send(message)

            await app(scope, receive, sending)

        return inner

    return wrap


async def test_middleware_sees_every_answer_the_first_outermost(tmp_path: Path) -> None:
    async with running(tmp_path, middleware=[stamp("outer"), stamp("inner")]) as server:
        async with server.http.get(f"{server.url}/v1/sessions") as response:
            assert response.headers.getall("x-seen") == ["inner", "outer"]
        async with server.http.get(f"{server.url}/v1/nothing") as response:
            assert (response.status, len(response.headers.getall("x-seen"))) == (404, 2)


async def test_middleware_of_installed_packages_is_loaded_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugin.py").write_text("def wrap(app):\n    return app\nwrong = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "plugin-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
    settings = load_settings(overrides={"storage.state_dir": str(tmp_path / "state")}).settings
    for value, is_good in (("plugin:wrap", True), ("plugin:wrong", False), ("plugin:no", False)):
        (folder / "entry_points.txt").write_text(f"[{MIDDLEWARE_GROUP}]\nmine = {value}\n")
        importlib.invalidate_caches()
        if is_good:
            assert create_app(settings, loads_entry_points=True)
            continue
        assert create_app(settings)
        with pytest.raises(ConfigError, match="mine"):
            create_app(settings, loads_entry_points=True)


async def test_it_is_mounted_in_another_application(tmp_path: Path) -> None:
    overrides = {"storage.state_dir": str(tmp_path / "state"), "workspace": str(tmp_path)}
    app = create_app(load_settings(overrides=overrides).settings)
    await app.open()
    answers: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/agents/health", "raw_path": b"/agents/health",
        "root_path": "/agents", "query_string": b"", "headers": [(b"host", b"localhost")],
        "scheme": "http", "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    try:
        await app(scope, receive, send)
    finally:
        await app.close()
    assert answers[0]["status"] == 200, answers


async def test_a_route_that_will_go_says_since_when_and_until_when(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        endpoint = server.app._router.find("GET", ["v1", "sessions"])
        async with server.http.get(f"{server.url}/v1/sessions") as response:
            assert "deprecation" not in response.headers and "sunset" not in response.headers
        endpoint.route = msgspec.structs.replace(
            endpoint.route, deprecated_at=1_800_000_000.0, sunset_at=1_820_000_000.0
        )
        for path, status in (("/v1/sessions", 200), ("/v1/sessions?limit=x", 400)):
            async with server.http.get(server.url + path) as response:
                assert response.status == status
                assert response.headers["deprecation"] == "@1800000000"
                told = parsedate_to_datetime(response.headers["sunset"])
                assert told.timestamp() == 1_820_000_000


async def test_a_late_subscriber_gets_the_message_so_far(tmp_path: Path) -> None:
    hold = asyncio.Event()
    words = " ".join(f"word{number}" for number in range(40))
    model = ScriptedModel(ModelReply(text=words, hold=hold))
    async with running(tmp_path, agents=[Agent("talker", model=model)]) as server:
        body = {"user_message": "go", "agent_name": "talker"}
        _, run = await server.ask("POST", "/v1/runs", body)
        await until(lambda: model.open_streams == 1)
        async with server.http.get(f"{server.url}/v1/runs/{run['id']}/stream") as response:
            before, after = "", ""
            async with asyncio.timeout(20):
                # The model has said it all, and the message is not stored yet.
                while "word39" not in before:
                    before += (await response.content.readline()).decode()
                assert "event: result" not in before
                hold.set()
                async for line in response.content:
                    after += line.decode()
        said = [
            msgspec.json.decode(line.removeprefix("data: "))["text"]
            for name, line in itertools.pairwise(before.splitlines())
            if name == "event: text"
        ]
        assert "".join(said) == words, before
        assert "event: result" in after and "event: text" not in after


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_reloading_server_starts_again_and_ends_with_its_supervisor(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("from holdfast import Agent\nagents = [Agent('one')]\n")
    told = tmp_path / "told.jsonl"
    env = {**os.environ, "AGENT_STATE_DIR": str(tmp_path / "state")}
    env |= {"AGENT_WORKSPACE": str(tmp_path)}
    words = ["-m", "holdfast", "--stream-json", "serve", "app:agents", "--port", "0", "--reload"]
    with told.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, cwd=tmp_path, env=env, stdout=output,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        await until(lambda: b"url" in told.read_bytes(), timeout_s=60)
        first = msgspec.json.decode(told.read_bytes().splitlines()[0])["pid"]
        (tmp_path / "app.py").write_text("from holdfast import Agent\nagents = Agent('two')\n")
        await until(lambda: not is_alive(first), timeout_s=60)
        assert process.returncode is None
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)
    # Neither it nor a server that it had just begun is left.
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
