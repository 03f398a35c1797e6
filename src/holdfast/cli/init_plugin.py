"""The files of a plugin: a package with a tool, an agent and tests, ready to be installed."""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import UsageError

_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{package}"
version = "0.1.0"
description = "Tools and agents for Holdfast."
requires-python = ">=3.11"
dependencies = ["holdfast"]

# What Holdfast finds here. Groups: holdfast.tools, .agents, .providers, .hooks, .stores,
# .memory_stores, .webhook_sinks, .server_middleware.
[project.entry-points."holdfast.tools"]
{module} = "{module}.tools:TOOLS"

[project.entry-points."holdfast.agents"]
{module} = "{module}.agents:AGENTS"

[project.entry-points."holdfast.hooks"]
{module} = "{module}.hooks:register"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[dependency-groups]
test = ["pytest>=8"]
"""
_TOOLS: Final = """\
\"\"\"Tools: plain functions with types; the docstring is what the model reads.\"\"\"

from holdfast import tool


@tool(effect="read")
def count_words(text: str) -> int:
    \"\"\"Count the words of a text.

    Args:
        text: The text.
    \"\"\"
    return len(text.split())


TOOLS = [count_words]
"""
_AGENTS: Final = """\
\"\"\"Agents, with the tools that they need.\"\"\"

from holdfast import Agent

from {module}.tools import count_words

AGENTS = [
    Agent(
        "editor",
        description="Shortens texts.",
        prompt="You shorten texts. Count words before and after.",
        tools=[count_words],
    )
]
"""
_HOOKS: Final = """\
\"\"\"Hooks: called once with the registry, when the plugin is loaded.\"\"\"

from holdfast.hooks import Hooks


def register(hooks: Hooks) -> None:
    \"\"\"Add hooks here, such as `hooks.on("after_tool_execution", function)`.\"\"\"
"""
_TEST: Final = """\
\"\"\"What the plugin adds works in a run, without a key and without a network.\"\"\"

from pathlib import Path

from holdfast import Agent, Client
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call

from {module}.tools import count_words


def test_words_are_counted() -> None:
    assert count_words.function("one two three") == 3


def test_agent_uses_its_tool(tmp_path: Path) -> None:
    model = ScriptedModel([tool_call("count_words", text="one two")], "Two words.")
    with Client(tmp_path) as client:
        agent = Agent("editor", model=model, tools=[count_words])
        result = client.runs.execute(agent, "", "Count: one two")
    assert result.response == "Two words."


def test_holdfast_finds_the_plugin(tmp_path: Path) -> None:
    chosen = {"plugins.enabled": ["{package}"], "storage.state_dir": str(tmp_path)}
    with Client(settings=load_settings(overrides=chosen).settings) as client:
        assert client.tools.call("count_words", {"text": "a b c"}).part.output == "3"
"""
_README: Final = """\
# {package}

    pip install -e . pytest
    pytest
    holdfast plugins show {package}
    HOLDFAST_PLUGINS__ENABLED={package} holdfast tools run count_words text="one two"

Enable it for good in `~/.config/holdfast/config.toml`:

    [plugins]
    enabled = ["{package}"]
"""


def make_plugin_files(package: str) -> dict[str, str]:
    """Return the files of a plugin by path; raises UsageError for what is no name of a package."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", package) or len(package) > 60:
        raise UsageError(
            detail=f"{package!r} cannot be the name of a package; write words in lower case with "
            "hyphens between them, such as holdfast-weather."
        )
    module = package.replace("-", "_")
    texts = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"src/{module}/__init__.py": '"""A plugin for Holdfast."""\n',
        f"src/{module}/tools.py": _TOOLS,
        f"src/{module}/agents.py": _AGENTS,
        f"src/{module}/hooks.py": _HOOKS,
        "tests/test_plugin.py": _TEST,
        ".gitignore": "__pycache__/\n.venv/\ndist/\n",
    }
    return {
        name: text.replace("{package}", package).replace("{module}", module)
        for name, text in texts.items()
    }


__all__ = ["make_plugin_files"]
