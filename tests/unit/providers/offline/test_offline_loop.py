"""The offline model in a loop: plans that name what is there, verdicts that follow from checks."""

from __future__ import annotations

import pytest

from holdfast.providers.offline.conversation import OfflineConversation
from holdfast.providers.offline.listing import Listing
from holdfast.providers.offline.loop import (
    list_key_files,
    plan_workspace_steps,
    render_listing_report,
    review,
)


def told(context: str) -> OfflineConversation:
    goal = f"Review the step 'x'.\n---\n{context}"
    return OfflineConversation(
        goal=goal, goal_id="m", session_id="s", steps=(), rounds=0, calls_before=0
    )


@pytest.mark.parametrize(
    ("checks", "answer", "verdict"),
    [
        ("- [passed] a\n- [passed] b", "There was an error in the log, described.", "accept"),
        ("- [passed] a\n- [failed] b (no)", "All is well.", "retry"),
        ("- [passed] a", "I cannot do this: Fix it", "give_up"),
    ],
)
def test_a_verdict_follows_from_the_checks(checks: str, answer: str, verdict: str) -> None:
    context = f"## Goal\nx\n\n## Checks\n{checks}\n\n## Answer of the executor\n{answer}"
    found = review(told(context))
    assert found is not None
    assert found.verdict == verdict


def test_without_checks_there_is_no_verdict() -> None:
    assert review(told("nothing here")) is None


def test_steps_name_only_files_of_the_listing() -> None:
    listing = Listing(("src/a.py", "README.md"), ("src",), False)
    steps = plan_workspace_steps(listing, ["README.md"])
    assert [step.title for step in steps] == [
        "Look around",
        "Read the key files",
        "Describe the workspace",
    ]
    assert {name for step in steps for name in step.shows} <= set(listing.files)
    assert list_key_files(steps[1].detail) == ("README.md",)
    assert "README.md" in render_listing_report(listing)


def test_an_empty_workspace_is_said_to_be_empty() -> None:
    assert "no file" in render_listing_report(Listing((), (), False))
    assert [step.shows for step in plan_workspace_steps(Listing((), (), False), [])] == [(), ()]
