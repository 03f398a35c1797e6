"""The built-in agents and their rights."""

from __future__ import annotations

from holdfast.agents.definition import Agent, Rule
from holdfast.policy import QUESTIONS

_DEFAULTS: tuple[Rule, ...] = (
    {"permission": "*", "pattern": "*", "action": "allow"},
    *({"permission": name, "pattern": "*", "action": "ask"} for name in QUESTIONS),
    {"permission": "external_directory", "pattern": "*", "action": "ask"},
    {"permission": "question", "pattern": "*", "action": "deny"},
    {"permission": "plan_enter", "pattern": "*", "action": "deny"},
    {"permission": "plan_exit", "pattern": "*", "action": "deny"},
    {"permission": "compact", "pattern": "*", "action": "allow"},
    {"permission": "search_history", "pattern": "*", "action": "allow"},
    {"permission": "calculator", "pattern": "*", "action": "allow"},
)
_EXPLORING = ("grep", "glob", "list", "read", "bash", "webfetch", "websearch", "codesearch")


def list_builtin_agents() -> dict[str, Agent]:
    """Return the built-in agents by name."""
    agents = (
        Agent(
            "build",
            description="May read, write and run commands in the workspace without asking; asks "
            "before it leaves it or repeats itself.",
            permission=(
                *_DEFAULTS,
                {"permission": "question", "action": "allow"},
                {"permission": "plan_enter", "action": "allow"},
            ),
            prompt="You may read and write in the workspace and run commands in its sandbox "
            "without asking; a person is asked before you reach beyond it.\n"
            "You are a careful engineer. Use the tools to find out before you act, make "
            "small changes, and say what you did and what you could not do.",
            native=True,
        ),
        Agent(
            "plan",
            description="Thinks before anything is changed.",
            # Its commands could edit as well as its tools could.
            sandbox="read-only",
            permission=(
                *_DEFAULTS,
                *(
                    {"permission": tool, "action": "deny"}
                    for tool in ("edit", "write", "multiedit")
                ),
                *(
                    {"permission": tool, "pattern": ".holdfast/plans/**", "action": "allow"}
                    for tool in ("edit", "write", "multiedit")
                ),
                {"permission": "question", "action": "allow"},
                {"permission": "plan_exit", "action": "allow"},
            ),
            prompt="You plan. Read what you need, change nothing but your plan file below "
            ".holdfast/plans/, and describe the steps and how each can be checked.",
            native=True,
        ),
        Agent(
            "general",
            description="Researches and does multi-step work for another agent.",
            mode="subagent",
            permission=(
                *_DEFAULTS,
                {"permission": "todoread", "action": "deny"},
                {"permission": "todowrite", "action": "deny"},
            ),
            prompt="You do one task for another agent. Report the result, briefly and exactly.",
            native=True,
        ),
        Agent(
            "explore",
            description="Searches and reads, changes nothing.",
            mode="subagent",
            sandbox="read-only",
            permission=(
                {"permission": "*", "action": "deny"},
                *({"permission": name, "action": "ask"} for name in QUESTIONS),
                *({"permission": tool, "action": "allow"} for tool in _EXPLORING),
            ),
            prompt="You explore. Find what was asked for and report where it stands.",
            native=True,
        ),
    )
    return {agent.name: agent for agent in agents}
