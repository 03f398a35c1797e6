"""Answer a person who asks for a plan: look at the workspace, then write the plan.

The steps are those of `outline`; here they become Markdown. Where a form is asked for, the
same steps fill it in.
"""

from __future__ import annotations

import re

from holdfast.providers.offline.conversation import OfflineConversation, OfflineStep
from holdfast.providers.offline.facts import quote, read_facts
from holdfast.providers.offline.instance import PlanStep
from holdfast.providers.offline.outline import Seen, list_names_in, needs_look, outline
from holdfast.providers.offline.summary import find_path, list_hit_lines
from holdfast.providers.offline.toolbox import OfflineCall, Role, Toolbox
from holdfast.providers.offline.workspace import merge_listings, select_telling_files

_READ_LINES = 200
_CHECKING = ("test", "check", "lint", "types")
_MOST_COMMANDS = 3
_EXAMPLE = """A plan for what? Say it in the same sentence, for example: `Make a plan to add a \
README`. I am Holdfast's built-in offline model: I follow fixed rules and am no language model."""


def choose_next_look(
    goal: str, conversation: OfflineConversation, box: Toolbox
) -> list[OfflineCall]:
    """Return the calls that show what the plan must know; none when all has been seen.

    List, read what tells about the project, search for the names of the goal: each in one
    round at most.
    """
    if not needs_look(goal):
        return []
    if not _make_made(conversation, box, "list") and not _make_made(conversation, box, "glob"):
        first = box.list_call() or box.glob_call("**/*")
        if first is not None:
            return [first]
    listing = merge_listings(conversation, box)
    if not _make_made(conversation, box, "read"):
        calls = [box.read_call(path, _READ_LINES) for path in select_telling_files(listing)]
        wanted = [call for call in calls if call is not None]
        if wanted:
            return wanted
    names = list_names_in(goal)
    if names and listing.files and not _make_made(conversation, box, "grep"):
        search = box.grep_call("|".join(rf"\b{re.escape(name)}\b" for name in names))
        if search is not None:
            return [search]
    return []


def plan_steps(goal: str, conversation: OfflineConversation, box: Toolbox) -> tuple[PlanStep, ...]:
    """Return the steps towards a goal, from what the tools have shown since it was given."""
    return outline(goal, _read_seen(conversation, box))


def plan_text(goal: str, conversation: OfflineConversation, box: Toolbox) -> str:
    """Return the plan for a goal as Markdown; it says what was looked at, and by whom."""
    if not goal:
        return _EXAMPLE
    lines = [f"# Plan: {quote(goal, 200)}", ""]
    lines += [_describe_seen(conversation, box), ""]
    for number, step in enumerate(plan_steps(goal, conversation, box), start=1):
        lines += [
            f"{number}. **{step.title}.** {step.detail}",
            f"    - makes: {step.makes}",
            f"    - checked by: {step.check}",
        ]
    lines += [
        "",
        "Each step builds on the one before. The built-in offline model made this plan: it "
        "follows fixed rules, is no language model, and does not judge whether the goal is a "
        "good one. It cannot carry out the steps that change something; with a language model, "
        "`holdfast run --plan` makes a plan of its own, works on it and checks each step.",
    ]
    return "\n".join(lines) + "\n"


def _describe_seen(conversation: OfflineConversation, box: Toolbox) -> str:
    listing = merge_listings(conversation, box)
    read = [find_path(step) for step in _make_made(conversation, box, "read") if not step.failure]
    failed = [
        f"`{step.tool}` failed: {quote(step.failure, 200)}"
        for step in conversation.steps
        if step.failure
    ]
    if listing.files:
        cut = " (the listing is cut)" if listing.is_cut else ""
        told = f"Made from your words and {len(listing.files)} listed files{cut}"
        told += f", of which I read {', '.join(f'`{path}`' for path in read)}." if read else "."
    else:
        told = "Made from your words alone: no file was looked at, so the steps name none of them."
    return " ".join([told, *failed])


def _read_seen(conversation: OfflineConversation, box: Toolbox) -> Seen:
    reads = [step for step in _make_made(conversation, box, "read") if not step.failure]
    commands: dict[str, tuple[str, str]] = {}
    for step in reads:
        path = find_path(step)
        for purpose, command in read_facts(path, step.output).commands:
            if purpose in _CHECKING:
                commands.setdefault(purpose, (command, path))
    chosen = [commands[purpose] for purpose in _CHECKING if purpose in commands]
    searches = [step for step in _make_made(conversation, box, "grep") if not step.failure]
    hits = [line.partition(":")[0] for step in searches for line in list_hit_lines(step.output)]
    return Seen(
        listing=merge_listings(conversation, box),
        commands=tuple(chosen[:_MOST_COMMANDS]),
        hits=tuple(dict.fromkeys(hits)),
    )


def _make_made(conversation: OfflineConversation, box: Toolbox, role: Role) -> list[OfflineStep]:
    return [step for step in conversation.steps if box.find_role(step.tool) == role]
