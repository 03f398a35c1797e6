"""What is said after something was done; an address names one, so that no text can be planted."""

from __future__ import annotations

from typing import Final

NOTES: Final[dict[str, str]] = {
    "cancelled": "The run was asked to end.",
    "cancelled-many": "The chosen runs were asked to end.",
    "nothing-chosen": "Nothing was chosen.",
    "steered": "Said; the run reads it before its next step.",
    "resumed": "The run goes on.",
    "approved": "Approved. The run goes on.",
    "approved-always": "Approved, and the rule was written. The run goes on.",
    "denied": "Denied. The agent was told why.",
    "answered": "Answered. The run goes on.",
    "forked": "Forked. This is the copy; the original is untouched.",
    "reloaded": "The policy files were read again.",
    "revoked": "The key opens nothing any more.",
    "forgotten": "Forgotten, bytes included.",
    "superseded": "The newer truth stands in its place; the older one is kept in its history.",
    "archived": "The session was put away.",
    "restored": "The session is active again.",
    "removed": "Removed.",
    "retried": "Woken again, with no failure counted.",
    "accepted": "Accepted, as the server offers it now.",
    "saved": "Saved.",
    "trusted": "Vouched for, as it is now.",
}

__all__ = ["NOTES"]
