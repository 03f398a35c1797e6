"""The pages: each view asks operations and says which template shows the answers."""

from __future__ import annotations

from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.views import (
    approvals,
    chat,
    costs,
    home,
    live,
    mcp,
    records,
    rules,
    run,
    runs,
    upkeep,
)


def add_views(routes: Routes) -> None:
    """Put every page at its address."""
    for module in (home, live, runs, run, approvals, chat, costs, records, rules, mcp, upkeep):
        module.add_to(routes)


__all__ = ["add_views"]
