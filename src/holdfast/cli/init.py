"""`holdfast init`: the files that a project begins with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.errors import UsageError

_CONFIG: Final = """\
# Settings of this project. `holdfast config view` shows what is in force, and why.

default_agent = "{agent}"        # build, careful (asks before writes and commands) or sandboxed

[model]
# name = "openai:gpt-5.2"      # or AGENT_MODEL; without one, what is found on this machine

[network]
allow_net = false              # policies/network.yaml says which hosts, once this is true

[budget]
# max_cost_usd = 5.0           # for everything that this state directory ever spends
"""
_ENV: Final = """\
# Copy to .env and fill in; .env is never committed.
# AGENT_MODEL=openai:gpt-5.2
# OPENAI_API_KEY=
# ANTHROPIC_API_KEY=
# OPENAI_BASE_URL=http://127.0.0.1:1234/v1
# AGENT_STATE_DIR=.holdfast/state
ALLOW_NET=false
"""
_TOOLS: Final = """\
# A ceiling: it grants nothing, it only holds back. `holdfast policies test` runs the tests below.
budgets:
  max_tool_calls: 500
rules:
  - {permission: external_directory, action: deny}
tests:
  - {tool: read, path: README.md, expect: allow}
"""
_NETWORK: Final = """\
allow_net: false
allowed_hosts: []
"""
_PATHS: Final = """\
blocked_globs: [".env"]
tests:
  - {tool: read, path: .env, expect: deny}
"""
_AGENT: Final = """\
---
description: Reviews a change and reports faults.
tools: [read, grep, glob, list]
---

You review. Read what changed, check it against the rest of the project, and report only what you
have verified, each with its file and line.
"""
_CAREFUL: Final = """\
---
description: May read without asking; asks before every write, every command and everything else.
permission:
  - {permission: "*", pattern: "*", action: ask}
  - {permission: read, pattern: "*", action: allow}
  - {permission: grep, pattern: "*", action: allow}
  - {permission: glob, pattern: "*", action: allow}
  - {permission: list, pattern: "*", action: allow}
  - {permission: ast_grep_search, pattern: "*", action: allow}
  - {permission: lsp, pattern: "*", action: allow}
  - {permission: calculator, pattern: "*", action: allow}
  - {permission: todoread, pattern: "*", action: allow}
  - {permission: todowrite, pattern: "*", action: allow}
  - {permission: skill, pattern: "*", action: allow}
  - {permission: question, pattern: "*", action: allow}
  - {permission: batch, pattern: "*", action: allow}
---

You may read without asking; a person is asked before you write, run a command or do anything else.
Say in one sentence what you are about to do and why, before you do it. Make small changes.
"""
_SANDBOXED: Final = """\
---
description: Works alone in the workspace and its sandbox; never asks, and is refused all else.
permission:
  - {permission: "*", pattern: "*", action: allow}
  - {permission: external_directory, pattern: "*", action: deny}
  - {permission: network, pattern: "*", action: deny}
  - {permission: egress, pattern: "*", action: deny}
  - {permission: doom_loop, pattern: "*", action: deny}
  - {permission: question, pattern: "*", action: deny}
  - {permission: plan_enter, pattern: "*", action: deny}
  - {permission: plan_exit, pattern: "*", action: deny}
---

You may read and write in the workspace and run any script in its sandbox; no question is asked, and
whatever lies outside is refused. Check your work by yourself, and say what you could not do.
"""
_SKILL: Final = """\
---
name: release-notes
description: Write release notes. Use it when a person asks what changed since the last release.
---

1. Read the changelog and the list of commits.
2. Group what a user notices: new, changed, fixed. Leave out what they do not.
3. One sentence each, in the present tense, with the name of the thing first.
"""
_IGNORE: Final = """\
.env
.holdfast/state/
.holdfast/secrets.env
"""

_CHOICES: Final = ("build", "careful", "sandboxed")

FILES: Final[dict[str, str]] = {
    "holdfast.toml": _CONFIG,
    ".env.example": _ENV,
    "policies/tools.yaml": _TOOLS,
    "policies/network.yaml": _NETWORK,
    "policies/paths.yaml": _PATHS,
    ".holdfast/agents/reviewer.md": _AGENT,
    ".holdfast/agents/careful.md": _CAREFUL,
    ".holdfast/agents/sandboxed.md": _SANDBOXED,
    ".holdfast/skills/release-notes/SKILL.md": _SKILL,
    ".gitignore": _IGNORE,
}
"""What a project begins with, by path."""


@click.command("init", cls=CliCommand)
@click.argument("directory", default=".", metavar="DIR")
@click.option(
    "--agent",
    type=click.Choice(_CHOICES),
    default="build",
    show_default=True,
    help="Who works by default: build (writes and runs commands in the sandbox, asks beyond it), "
    "careful (asks before writes and commands) or sandboxed (never asks, never leaves it).",
)
@click.option(
    "--plugin",
    default="",
    metavar="NAME",
    help="Begin a package that adds tools and agents instead, with tests.",
)
@pass_invocation
def command(invocation: Invocation, directory: str, agent: str, plugin: str) -> None:
    """Begin a project: config, policies, agents, a skill.

    Files that are there already are left as they are. The agents careful and sandboxed are
    trusted as they are made here; a change to their files is not, before you say so.
    """
    root = Path(directory)
    if plugin:
        _begin_plugin(invocation, root, plugin)
        return
    files = {name: text.replace("{agent}", agent) for name, text in FILES.items()}
    made = [name for name, text in files.items() if _write(root, name, text)]
    _trust_made(invocation, root, made)
    rows = [{"file": name, "is_new": name in made} for name in FILES]
    if not invocation.is_text:
        emit({"directory": str(root.absolute()), "files": rows})
        return
    for name in FILES:
        say(f"{'made ' if name in made else 'kept '} {name}")
    say("")
    if "holdfast.toml" in made:
        say(f"The agent {agent} works here by default; --agent or default_agent chooses another.")
    elif agent != "build":
        say(f'holdfast.toml was kept: set default_agent = "{agent}" in it, or use --agent {agent}.')
    say("Next: holdfast policies validate, then holdfast doctor,")
    say('then holdfast "Describe this workspace".')


def _begin_plugin(invocation: Invocation, root: Path, package: str) -> None:
    from holdfast.cli.init_plugin import make_plugin_files  # noqa: PLC0415 - rarely asked

    files = make_plugin_files(package)
    made = [name for name, text in files.items() if _write(root, name, text)]
    if not invocation.is_text:
        rows = [{"file": name, "is_new": name in made} for name in files]
        emit({"directory": str(root.absolute()), "files": rows})
        return
    for name in files:
        say(f"{'made ' if name in made else 'kept '} {name}")
    say(f"\nNext: pip install -e {root} pytest, pytest, then holdfast plugins list.")


def _trust_made(invocation: Invocation, root: Path, made: list[str]) -> None:
    """Vouch for the agents that were made a moment ago, as they are: the user asked for them."""
    from holdfast.agents import AgentFiles  # noqa: PLC0415 - first use
    from holdfast.skills import TrustStore  # noqa: PLC0415 - first use

    names = [name for name in _CHOICES if f".holdfast/agents/{name}.md" in made]
    if names:
        settings = invocation.settings
        files = AgentFiles(
            root.resolve(),
            user_folder=settings.user_dir / "agents",
            trust=TrustStore(settings.storage_path),
        )
        for name in names:
            files.trust(name)


def _write(root: Path, name: str, text: str) -> bool:
    """Write a file that is not there; says whether it was written."""
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # O_EXCL: an existing file, and a link to anywhere, stays untouched.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(detail=f"{path} cannot be written: {error.strerror}") from error
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return True
