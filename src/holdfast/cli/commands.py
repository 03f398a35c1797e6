"""The table of commands: name, module, and the line that `holdfast --help` shows.

A module named here holds its click command as `command`. It is imported only when the
command is called or its own help is shown, so that `holdfast --help` stays quick; the
line must equal the first line of the command's docstring (a test compares them).
"""

from __future__ import annotations

from typing import Final

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "acp": (
        "holdfast.cli.acp",
        "Be an agent of an editor: the Agent Client Protocol on standard input and output.",
    ),
    "agents": ("holdfast.cli.agents", "List, show, add or remove agents."),
    "approvals": ("holdfast.cli.approvals", "Answer what waits for a person."),
    "artifacts": (
        "holdfast.cli.artifacts",
        "List, show, save, share or remove files that agents left.",
    ),
    "audit": (
        "holdfast.cli.audit",
        "Show what was done and by whom; prove that the records were not changed.",
    ),
    "chat": (
        "holdfast.cli.chat",
        "Talk with an agent: answers as they arrive, calls before and after they run.",
    ),
    "completion": ("holdfast.cli.completion", "Print the script that completes commands."),
    "config": ("holdfast.cli.config", "Show, check or trust the settings."),
    "context": (
        "holdfast.cli.context",
        "Show what a model would see, and what takes how much of it.",
    ),
    "dashboard": ("holdfast.cli.dashboard", "Open the dashboard, logged in."),
    "docs": ("holdfast.cli.docs", "Explain an error by its code, offline."),
    "doctor": (
        "holdfast.cli.doctor",
        "Check what works on this machine, or with `--server URL` on that server.",
    ),
    "hooks": (
        "holdfast.cli.hooks",
        "List or trust programs that are asked when something happens.",
    ),
    "export": ("holdfast.cli.export", "Write a session, a run, or everything to files."),
    "import": ("holdfast.cli.import_", "Bring in what `holdfast export` has written."),
    "init": ("holdfast.cli.init", "Begin a project: config, policies, agents, a skill."),
    "keys": (
        "holdfast.cli.keys",
        "Make, list, rotate or revoke API keys of a server, and log browsers out.",
    ),
    "runs": ("holdfast.cli.runs", "List, show, watch, attend, resume, cancel or report runs."),
    "plugins": (
        "holdfast.cli.plugins",
        "List or show what installed packages add, and what it may do.",
    ),
    "policies": (
        "holdfast.cli.policies",
        "Check, test, explain and replay what the operator allows.",
    ),
    "mcp": ("holdfast.cli.mcp", "List, check, add, call or trust MCP servers; be one yourself."),
    "memory": ("holdfast.cli.memory", "Store, search, show or forget memories."),
    "resume": ("holdfast.cli.resume", "Go on with a run where it stopped, by default the last."),
    "run": ("holdfast.cli.run", "Give an agent a goal and watch it work."),
    "sessions": ("holdfast.cli.sessions", "List, show, export, fork or remove sessions."),
    "serve": ("holdfast.cli.serve", "Serve agents over HTTP."),
    "skills": ("holdfast.cli.skills", "List, show, check or trust skills."),
    "state": ("holdfast.cli.state", "Read, set, list or watch what agents keep between runs."),
    "storage": ("holdfast.cli.storage", "Look after the files in which everything is kept."),
    "templates": ("holdfast.cli.templates", "List, show or run agents for common jobs."),
    "tenants": (
        "holdfast.cli.tenants",
        "Make, suspend, export or delete tenants; erase a user.",
    ),
    "tools": (
        "holdfast.cli.tools",
        "List, show, run, install or verify tools.",
    ),
    "metrics": (
        "holdfast.cli.metrics",
        "Show metrics of the work, counted since the records began.",
    ),
    "usage": ("holdfast.cli.usage", "Show tokens and dollars by agent, run, session or model."),
    "triggers": ("holdfast.cli.triggers", "Start agents and workflows on events or a schedule."),
    "webhooks": ("holdfast.cli.webhooks", "Tell other systems when runs end, wait or fail."),
    "worker": (
        "holdfast.cli.worker",
        "Go on with whatever waits in any session, until stopped.",
    ),
    "workers": ("holdfast.cli.workers", "See who works, and try again what was given up."),
    "workflows": ("holdfast.cli.workflows", "Check, run, draw or list workflows."),
    "providers": ("holdfast.cli.providers", "List, add, test and remove model providers."),
}

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Work": ("init", "doctor", "chat", "run", "resume"),
    "What was done, and what waits": (
        "runs", "approvals", "sessions", "artifacts", "usage", "audit", "context", "docs",
    ),
    "What agents are made of": (
        "agents", "templates", "tools", "skills", "mcp", "memory", "state", "workflows",
        "triggers", "hooks", "plugins", "providers",
    ),
    "What is allowed, and where it is kept": (
        "config", "policies", "storage", "export", "import", "completion",
    ),
    "Behind an address": (
        "serve", "acp", "dashboard", "keys", "tenants", "webhooks", "metrics", "worker", "workers",
    ),
}  # fmt: skip
"""Under which heading `holdfast --help` shows each command; those first that one meets first."""

BELOW: Final[dict[str, str]] = {
    "answer": "approvals answer",
    "approve": "approvals approve",
    "archive": "sessions archive",
    "attach": "runs attach",
    "cancel": "runs cancel",
    "deny": "approvals deny",
    "fork": "sessions fork",
    "help": "--help",
    "history": "sessions list",
    "list": "runs list",
    "login": "keys create",
    "logs": "runs show",
    "ls": "runs list",
    "remember": "memory add",
    "report": "runs report",
    "revert": "sessions revert",
    "search": "memory search",
    "settings": "config view",
    "setup": "init",
    "start": "chat",
    "status": "runs list",
    "stop": "runs cancel",
    "trace": "runs trace",
    "ui": "dashboard",
    "undo": "sessions undo",
    "verify": "audit verify",
    "watch": "runs watch",
    "web": "dashboard",
}
"""What people type at the top, and what they mean by it."""
