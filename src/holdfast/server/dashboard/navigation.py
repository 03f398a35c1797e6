"""The pages by group, with the scope that each one needs; icons are paths in a box of 24."""

from __future__ import annotations

from typing import Final

import msgspec


class NavigationEntry(msgspec.Struct, frozen=True):
    """A page in the navigation."""

    place: str
    title: str
    scope: str
    icon: str


class NavigationGroup(msgspec.Struct, frozen=True):
    """Pages that belong together."""

    title: str
    entries: tuple[NavigationEntry, ...]


NAVIGATION: Final[tuple[NavigationGroup, ...]] = (
    NavigationGroup(
        "Work",
        (
            NavigationEntry("", "Home", "runs:read", "M4 11 12 4l8 7v9h-5v-6H9v6H4z"),
            NavigationEntry("approvals", "Approvals", "approvals:read", "M5 12l5 5L20 7"),
            NavigationEntry("runs", "Runs", "runs:read", "M7 5v14l12-7z"),
            NavigationEntry("chat", "Chat", "sessions:read", "M4 5h16v11H9l-5 4z"),
            NavigationEntry("sessions", "Sessions", "sessions:read", "M4 6h16M4 12h16M4 18h10"),
        ),
    ),
    NavigationGroup(
        "Knowledge",
        (
            NavigationEntry("memory", "Memory", "memory:read", "M6 4h12v16l-6-4-6 4z"),
            NavigationEntry(
                "artifacts", "Artifacts", "artifacts:read", "M6 3h8l5 5v13H6zM14 3v5h5"
            ),
            NavigationEntry(
                "state", "State", "state:read", "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4"
            ),
        ),
    ),
    NavigationGroup(
        "Rules and tools",
        (
            NavigationEntry(
                "policies", "Policies", "policies:read", "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z"
            ),
            NavigationEntry("tools", "Tools", "tools:read", "M14 4a5 5 0 0 0 5 7l-9 9-4-4 9-9z"),
            NavigationEntry(
                "mcp", "MCP", "mcp:read", "M9 3v5M15 3v5M6 8h12v4a6 6 0 0 1-12 0zM12 18v3"
            ),
            NavigationEntry(
                "agents",
                "Agents",
                "agents:read",
                "M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM4 20c1-5 15-5 16 0",
            ),
            NavigationEntry(
                "skills",
                "Skills",
                "skills:read",
                "M12 3l2.7 6 6.3.6-4.8 4.2 1.5 6.2-5.7-3.4L6.3 20l1.5-6.2L3 9.6 9.3 9z",
            ),
            NavigationEntry(
                "workflows", "Workflows", "workflows:read", "M4 4h6v5H4zM14 15h6v5h-6zM7 9v8h7"
            ),
            NavigationEntry(
                "triggers",
                "Triggers",
                "triggers:read",
                "M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16zM12 8v5l3 2",
            ),
        ),
    ),
    NavigationGroup(
        "Operations",
        (
            NavigationEntry("costs", "Costs", "usage:read", "M5 20V10M12 20V4M19 20v-7"),
            NavigationEntry(
                "workers", "Workers", "storage:read", "M4 5h16v6H4zM4 14h16v6H4zM8 8h.01M8 17h.01"
            ),
            NavigationEntry(
                "audit", "Audit", "audit:read", "M11 4a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM16 16l5 5"
            ),
            NavigationEntry(
                "settings", "Settings", "storage:read", "M4 8h16M4 16h16M9 5v6M15 13v6"
            ),
            NavigationEntry(
                "keys", "Keys", "keys:read", "M8 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 12h9v3M17 12v3"
            ),
        ),
    ),
)

__all__ = ["NAVIGATION", "NavigationEntry", "NavigationGroup"]
