"""What the offline model does inside an autonomous loop: plan, look, read, judge.

It stays with what it can see. A plan is made from a listing, so that its checks name files that
are really there; a verdict follows from the checks that it is shown, not from an opinion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.conversation import OfflineConversation, OfflineStep
from holdfast.providers.offline.facts import quote, strip_lines
from holdfast.providers.offline.instance import PlanStep
from holdfast.providers.offline.listing import Listing
from holdfast.providers.offline.summary import find_path

LOOK_AROUND = "Look around: list the files of this workspace."
READ_KEY_FILES = "Read the key files:"
DESCRIBE = "Describe this workspace: what it is, how it is laid out, and how to use it."
_MOST_NAMED = 3
_MOST_LISTED = 60
_MOST_LINES = 8
_CHECKS = compile_on_use(r"^## Checks\n(?P<lines>(?:- .*\n?)+)", re.MULTILINE)
_ANSWER = compile_on_use(r"^## Answer of the executor\n(?P<text>.*)\Z", re.MULTILINE | re.DOTALL)


class Review(NamedTuple):
    """What a fixed rule says about a step."""

    verdict: str
    reason: str


def plan_workspace_steps(listing: Listing, telling: Sequence[str]) -> tuple[PlanStep, ...]:
    """Return the steps that describe a workspace; each names files that the listing showed."""
    shallow = sorted(listing.files, key=lambda path: (path.count("/"), path))
    named = tuple(dict.fromkeys([*telling, *shallow]))[:_MOST_NAMED]
    steps = [PlanStep("Look around", LOOK_AROUND, "list", named)]
    if telling:
        reads = f"{READ_KEY_FILES} {', '.join(telling)}."
        steps.append(PlanStep("Read the key files", reads, "read", tuple(telling[:_MOST_NAMED])))
    # The description names what it read; without that, at least a file of the listing.
    shown = tuple(telling[:_MOST_NAMED])
    steps.append(PlanStep("Describe the workspace", DESCRIBE, "read", shown))
    return tuple(steps)


def render_listing_report(listing: Listing) -> str:
    """Say which files there are, the shallow ones first."""
    if not listing.files and not listing.directories:
        return "The listing shows no file here."
    shallow = sorted(listing.files, key=lambda path: (path.count("/"), path))
    lines = [
        f"{_count(listing.files, 'file', 'files')} and "
        f"{_count(listing.directories, 'directory', 'directories')} listed"
        + (" (the listing is cut)" if listing.is_cut else "")
        + "."
    ]
    lines += [f"- `{quote(path, 200)}`" for path in shallow[:_MOST_LISTED]]
    if len(shallow) > _MOST_LISTED:
        lines.append(f"- and {len(shallow) - _MOST_LISTED} more")
    return "\n".join(lines)


def _count(names: Sequence[str], one: str, more: str) -> str:
    return f"{len(names)} {one if len(names) == 1 else more}"


def render_reading_report(reads: Sequence[OfflineStep]) -> str:
    """Quote the beginning of each file that was read."""
    if not reads:
        return "No file could be read."
    parts = []
    for step in reads:
        if step.failure:
            parts.append(f"`{find_path(step)}` could not be read: {quote(step.failure, 200)}")
            continue
        lines = [line for line in strip_lines(step.output).splitlines() if line.strip()]
        told = "\n".join(f"> {quote(line, 160)}" for line in lines[:_MOST_LINES])
        parts.append(f"`{find_path(step)}` begins:\n{told or '> (nothing)'}")
    return "\n\n".join(parts)


def list_key_files(asked: str) -> tuple[str, ...]:
    """Return the files that a step tells to read."""
    if not asked.startswith(READ_KEY_FILES):
        return ()
    names = asked.removeprefix(READ_KEY_FILES).strip().removesuffix(".")
    return tuple(name.strip() for name in names.split(",") if name.strip())[:10]


def review(conversation: OfflineConversation) -> Review | None:
    """Return the verdict that follows from the checks of a step; `None` if none are shown."""
    found = _CHECKS.search(conversation.context)
    if found is None:
        return None
    lines = found["lines"].splitlines()
    failed = [line for line in lines if not line.startswith("- [passed]")]
    answer = _ANSWER.search(conversation.context)
    said = answer["text"].strip() if answer is not None else ""
    rule = "A fixed rule of the offline model; the content itself was not judged."
    if failed:
        return Review("retry", f"Not every check passed: {quote(failed[0], 200)}. {rule}")
    if said.startswith("I cannot"):
        return Review(
            "give_up",
            "The offline model cannot do this step: it follows fixed rules and is no language "
            "model. Configure one and try again.",
        )
    return Review("accept", f"All {len(lines)} checks passed. {rule}")
