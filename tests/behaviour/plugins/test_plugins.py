"""Installed packages add tools, agents, providers, hooks and sinks, once they are enabled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import AsyncClient
from holdfast.cli.app import root
from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.runtime import list_plugins
from holdfast.settings import Settings, load_settings

CODE = """
from holdfast import Agent, tool
from holdfast.providers import ProviderConfig
from holdfast.testing import ScriptedModel
TOLD = []
SUNK = []

@tool(effect="read")
def shout(text: str) -> str:
    "Shout a text."
    return text.upper()

AGENTS = [Agent("shouter", description="Shouts.", model="parrot:loud", tools=[shout])]
HOUSE = ProviderConfig(name="house", base_url="http://127.0.0.1:9/v1", api="chat")

def make_model(name):
    return ScriptedModel(f"I am {name}")

def register(hooks):
    TOLD.append(hooks)

async def sink(url, body, headers):
    SUNK.append((url, body, headers))
    if len(SUNK) == 1:
        raise OSError("not yet")
"""
POINTS = """
[holdfast.tools]
shout = plugged:shout
[holdfast.agents]
agents = plugged:AGENTS
[holdfast.providers]
house = plugged:HOUSE
parrot = plugged:make_model
[holdfast.hooks]
told = plugged:register
[holdfast.webhook_sinks]
pager = plugged:sink
"""


def install(folder: Path, package: str, code: str, points: str, module: str = "plugged") -> None:
    """Put a package where Python finds it, as an installer does."""
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points, encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    install(folder, "holdfast-plugged", CODE, POINTS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield folder
    for name in ("plugged", "broken"):
        sys.modules.pop(name, None)


def make_settings(tmp_path: Path, *enabled: str) -> Settings:
    chosen = {
        "storage.state_dir": str(tmp_path / "state"),
        "workspace": str(tmp_path),
        "plugins.enabled": list(enabled),
    }
    return load_settings(overrides=chosen).settings


def test_listing_imports_nothing_and_says_what_each_may_do(installed: Path) -> None:
    found = [one for one in list_plugins() if one.package == "holdfast-plugged"]
    assert [one.kind for one in found] == [
        *("agents", "hooks", "providers", "providers", "tools", "webhook_sinks")
    ]
    assert all(one.may and one.version == "1.2" and not one.is_enabled for one in found)
    assert "plugged" not in sys.modules


async def test_package_that_is_not_enabled_takes_no_part(installed: Path, tmp_path: Path) -> None:
    async with AsyncClient(settings=make_settings(tmp_path)) as client:
        with pytest.raises(NotFound):
            await client.tools.call("shout", {"text": "a"})
    assert "plugged" not in sys.modules


@pytest.mark.parametrize("name", ["holdfast-plugged", "Holdfast_Plugged", "*"])
async def test_enabled_package_adds_tool_agent_models_and_hooks(
    installed: Path, tmp_path: Path, name: str
) -> None:
    async with AsyncClient(settings=make_settings(tmp_path, name)) as client:
        called = await client.tools.call("shout", {"text": "hello"})
        assert called.part.output == "HELLO"
        result = await client.runs.execute("shouter", "", "who are you?")
        assert result.response == "I am loud"
        assert "house" in [one.name for one in await client.providers.list()]
    assert len(sys.modules["plugged"].TOLD) == 1


async def test_webhook_of_a_sinks_scheme_is_handed_over_and_tried_again(
    installed: Path, tmp_path: Path
) -> None:
    async with AsyncClient(settings=make_settings(tmp_path, "holdfast-plugged")) as client:
        await client.webhooks.add("pager://team", ["run.ended"])
        with pytest.raises(UsageError):
            await client.webhooks.add("gopher://team")
        await client.runs.execute("shouter", "", "hello")
        service = client._runtime.webhooks
        await service.deliver()
        [first] = await service.list_deliveries()
        assert (first.status, first.error) == ("pending", "OSError: not yet")
        await service.redeliver(first.id)
        await service.deliver()
        [again] = await service.list_deliveries()
    assert again.status == "delivered"
    url, body, headers = sys.modules["plugged"].SUNK[-1]
    assert url == "pager://team"
    assert json.loads(body)["type"] == "run.ended"
    assert {"webhook-id", "webhook-signature"} <= {name.lower() for name in headers}


async def test_what_cannot_be_loaded_is_refused_before_any_work(
    installed: Path, tmp_path: Path
) -> None:
    install(installed, "broken-one", "1/0", "[holdfast.tools]\nx = broken:x\n", module="broken")
    for name in ("broken-one", "not-installed"):
        client = AsyncClient(settings=make_settings(tmp_path, name))
        with pytest.raises(UsageError):
            await client.sessions.create("never")
        await client.close()
    assert not (tmp_path / "state" / "journal.db").exists()


def test_project_cannot_enable_plugins(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('[plugins]\nenabled = ["*"]\n', encoding="utf-8")
    with pytest.raises(ConfigError):
        load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)})


def ask(*words: str) -> Any:
    return CliRunner().invoke(root, [*words], catch_exceptions=False)


def test_command_line_lists_shows_and_runs(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    rows = json.loads(ask("plugins", "list", "--json").stdout)
    assert {"holdfast-plugged"} <= {row["package"] for row in rows}
    shown = ask("plugins", "show", "holdfast-plugged").stdout
    assert "tool: shout, effect: read" in shown
    assert "not enabled" in shown
    assert ask("tools", "run", "shout", "text=hey", "--plugins").stdout == "HEY\n"


def test_template_of_a_plugin_passes_its_own_tests(tmp_path: Path) -> None:
    made = tmp_path / "made"
    ended = CliRunner().invoke(root, ["init", str(made), "--plugin", "holdfast-words"])
    assert ended.exit_code == 0, ended.output
    assert CliRunner().invoke(root, ["init", str(made), "--plugin", "No Name"]).exit_code != 0
    # Installed as an installer would: the module on the path, with its entry points.
    points = (made / "pyproject.toml").read_text("utf-8")
    info = made / "src" / "holdfast_words-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: holdfast-words\nVersion: 0.1.0\n")
    lines = []
    for line in points.splitlines():
        if line.startswith("[project.entry-points."):
            lines.append(f"[{line.split(chr(34))[1]}]")
        elif lines and "holdfast_words" in line and "=" in line and "packages" not in line:
            lines.append(line.replace(chr(34), ""))
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ended_tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made / "tests")],
        cwd=made,
        env={**os.environ, "PYTHONPATH": str(made / "src"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended_tests.returncode == 0, ended_tests.stdout
    assert "3 passed" in ended_tests.stdout
