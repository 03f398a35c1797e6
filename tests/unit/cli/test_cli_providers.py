from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.testing.fake_server import FakeServer, Reply, ScriptedCall

KEY = "sk-planted-0123456789"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "AGENT_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MINE_API_KEY", KEY)
    return tmp_path / "state"


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server in a thread of its own: commands run a loop of theirs."""
    seven = Reply(calls=(ScriptedCall(name="report_number", arguments='{"value": 7}'),))
    paris = Reply(calls=(ScriptedCall(name="get_weather", arguments='{"city": "Paris"}'),))
    made = FakeServer([seven, paris], key=KEY, wires=("chat",), models=("fake-model",))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(5)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()


def call(*words: str) -> Result:
    result = CliRunner().invoke(root, ["providers", *words])
    assert KEY not in result.output
    return result


def add(server: FakeServer, *more: str) -> Result:
    return call("add", "mine", "--base-url", server.base_url, "--key-env", "MINE_API_KEY", *more)


def test_list_shows_every_provider_and_which_have_a_key(state: Path) -> None:
    rows = {row["name"]: row for row in json.loads(call("list", "--json").stdout)}
    assert {"openai", "anthropic", "ollama", "offline"} <= set(rows)
    assert rows["offline"]["default"] is True
    assert rows["openai"]["has_key"] is False
    assert "OPENAI_API_KEY not set" in call("list").stdout
    assert not state.exists()


def test_a_provider_is_added_tested_and_removed(state: Path, server: FakeServer) -> None:
    added = add(server, "--model", "fake-model", "--default")
    assert added.exit_code == 0
    assert "holdfast providers test mine" in added.stdout
    listed = {row["name"]: row for row in json.loads(call("list", "--json").stdout)}
    assert (listed["mine"]["default"], listed["mine"]["has_key"]) == (True, True)
    tried = call("test", "mine", "--json")
    assert tried.exit_code == 0
    assert json.loads(tried.stdout)["models"] == ["fake-model"]
    assert KEY not in (state / "providers.json").read_text()
    assert call("remove", "mine").exit_code == 0
    assert call("remove", "mine").exit_code == 2


def test_the_tool_mode_is_found_out_and_remembered(state: Path, server: FakeServer) -> None:
    add(server, "--api", "chat")
    tried = call("test", "mine", "--tools", "--model", "fake-model", "--json")
    assert json.loads(tried.stdout)["tools"]["mode"] == "native"
    kept = json.loads((state / "endpoints.json").read_text())["endpoints"]
    assert [(entry["model"], entry["tool_mode"]) for entry in kept] == [("fake-model", "native")]


def test_a_key_is_refused_wherever_it_is_given(state: Path) -> None:
    for words in (
        ["--base-url", "https://x.example/v1", "--key-env", KEY],
        ["--base-url", f"https://x.example/v1?key={KEY}"],
        ["--base-url", "https://x.example/v1", "--header", f"Authorization={KEY}"],
        ["--base-url", "https://x.example/v1", "--header", KEY],
        ["--base-url", "https://x.example/v1", "--model", KEY],
    ):
        assert call("add", "mine", *words).exit_code == 3
    assert not (state / "providers.json").exists()


def test_exit_codes_tell_a_missing_key_from_a_missing_server(state: Path) -> None:
    missing = call("test", "openai")
    assert missing.exit_code == 4
    assert "OPENAI_API_KEY" in missing.stdout
    add_gone = call("add", "gone", "--base-url", "http://127.0.0.1:1/v1", "--local")
    assert add_gone.exit_code == 0
    gone = call("test", "gone", "--json")
    assert gone.exit_code == 1
    assert json.loads(gone.stdout)["code"] == "llm.connection"
    assert call("test", "nobody").exit_code == 2


def test_built_in_providers_cannot_be_changed(state: Path) -> None:
    assert call("remove", "openai").exit_code == 2
    assert call("add", "openai", "--base-url", "https://x.example/v1").exit_code == 2


def test_plain_http_to_another_machine_is_warned_about(state: Path) -> None:
    added = call("add", "far", "--base-url", "http://192.0.2.7/v1", "--key-env", "MINE_API_KEY")
    assert "without encryption" in added.stderr


def test_an_answer_is_told_from_a_list_of_models(state: Path, server: FakeServer) -> None:
    add(server, "--api", "chat")
    listed = json.loads(call("test", "mine", "--json").stdout)
    assert (listed["checked"], listed["next"]) == (
        "models",
        "holdfast providers test mine --model MODEL",
    )
    asked = json.loads(call("test", "mine", "--model", "fake-model", "--json").stdout)
    assert asked["checked"] == "answer"
    assert "next" not in asked


def test_an_installed_package_is_not_called_an_answer(state: Path) -> None:
    for name in ("gguf", "litellm"):
        shown = call("test", name)
        assert shown.exit_code == 0
        assert "its package is installed" in shown.stdout
        assert f"holdfast providers test {name} --model MODEL" in shown.stdout
        assert "answers" not in shown.stdout
        told = call("test", name, "--json")
        assert (told.exit_code, json.loads(told.stdout)["checked"]) == (0, "package")
    assert json.loads(call("test", "offline", "--json").stdout)["checked"] == "built_in"


def test_a_file_is_looked_at_and_loaded_only_when_it_is_named(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF" + bytes(64))
    named = call("test", "gguf", "--model", str(file), "--json")
    assert named.exit_code == 1
    assert json.loads(named.stdout)["ok"] is False
    missing = call("test", "gguf", "--model", str(tmp_path / "gone.gguf"), "--json")
    assert (missing.exit_code, json.loads(missing.stdout)["ok"]) == (1, False)


def test_tools_that_were_not_tried_are_said_to_be(state: Path) -> None:
    tried = call("test", "offline", "--tools")
    assert tried.exit_code == 0
    assert "Tools were not tried" in tried.stderr
