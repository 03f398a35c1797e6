"""Look around a workspace step by step: list, read what describes it, search, summarise."""

from __future__ import annotations

import re
from typing import TypeAlias

from holdfast.canonical import encode_canonical_json
from holdfast.providers.offline.conversation import OfflineConversation, OfflineStep
from holdfast.providers.offline.facts import quote
from holdfast.providers.offline.intent import GoalIntent
from holdfast.providers.offline.listing import Listing, read_listing
from holdfast.providers.offline.loop import (
    list_key_files,
    render_listing_report,
    render_reading_report,
)
from holdfast.providers.offline.summary import (
    list_hit_lines,
    render_file_report,
    render_workspace_report,
    search_report,
)
from holdfast.providers.offline.toolbox import OfflineCall, Role, Toolbox

Move: TypeAlias = list[OfflineCall] | str
"""What to do next: calls to make, or the text of the answer."""

_TELLING = (
    r"readme(\.\w+)?",
    r"pyproject\.toml",
    r"package\.json",
    r"cargo\.toml",
    r"go\.mod",
    r"makefile|justfile",
    r"cmakelists\.txt|pom\.xml|build\.gradle(\.kts)?",
    r"tox\.ini|noxfile\.py",
)
_MAX_READS = 6
_READ_LINES = 200
ENTRY_POINTS = (
    r"if __name__ == .__main__.|^\s*(async )?def main\(|^func main\(|^(pub )?fn main\(|"
    r"public static void main"
)


def choose_next_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    """Return the next calls for a goal about the workspace, or the answer.

    Each kind of call is made in one round at most (a search in two), so that the number
    of rounds is bounded whatever the tools answer.
    """
    if intent.kind == "search":
        return _search_move(intent, conversation, box)
    if intent.kind == "read":
        return _read_move(intent, conversation, box)
    if intent.kind == "list":
        return _list_move(intent, conversation, box)
    if intent.kind == "read_all":
        return _read_all_move(intent, conversation, box)
    return _describe_move(intent, conversation, box)


def _describe_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    looks = _list_steps(conversation, box, "list") or _list_steps(conversation, box, "glob")
    if not looks:
        first = box.list_call() or box.glob_call("**/*")
        if first is not None:
            return [first]
        if not _list_steps(conversation, box, "read"):
            guess = box.read_call("README.md", _READ_LINES)
            if guess is not None:
                return [guess]
    elif all(step.failure for step in looks) and not _list_steps(conversation, box, "glob"):
        other = box.glob_call("**/*")
        if other is not None:
            return [other]
    listing = merge_listings(conversation, box)
    if not _list_steps(conversation, box, "read"):
        reads = [box.read_call(path, _READ_LINES) for path in select_telling_files(listing)]
        calls = [call for call in reads if call is not None]
        if calls:
            return calls
    if listing.files and not _list_steps(conversation, box, "grep"):
        search = box.grep_call(ENTRY_POINTS)
        if search is not None:
            return [search]
    return render_workspace_report(intent, conversation, box, listing)


def _list_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    looks = [*_list_steps(conversation, box, "list"), *_list_steps(conversation, box, "glob")]
    if not looks:
        below = f"{intent.subject}/**/*" if intent.subject else "**/*"
        first = box.list_call(intent.subject or ".") or box.glob_call(below)
        if first is not None:
            return [first]
    failed = [step.failure for step in looks if step.failure]
    if failed and len(failed) == len(looks):
        return f"The listing failed: {quote(failed[0], 300)}"
    return render_listing_report(merge_listings(conversation, box))


def _read_all_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    done = _list_steps(conversation, box, "read")
    if not done:
        calls = [box.read_call(path, _READ_LINES) for path in list_key_files(intent.subject)]
        wanted = [call for call in calls if call is not None]
        if wanted:
            return wanted
    return render_reading_report(done)


def _search_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    done = _list_steps(conversation, box, "grep")
    if not done:
        first = box.grep_call(intent.pattern)
        if first is not None:
            return [first]
    elif len(done) == 1 and intent.fallback and _is_empty(done[0]):
        wider = box.grep_call(intent.fallback)
        if wider is not None and not _was_made(conversation, wider):
            return [wider]
    return search_report(intent, done)


def _read_move(intent: GoalIntent, conversation: OfflineConversation, box: Toolbox) -> Move:
    done = _list_steps(conversation, box, "read")
    if not done:
        calls = [box.read_call(path) for path in intent.files or (intent.subject,)]
        wanted = [call for call in calls if call is not None]
        if wanted:
            return wanted
    elif len(done) == 1 and done[0].failure and "/" not in intent.subject:
        # The name alone may stand for a file further down.
        found = _list_steps(conversation, box, "glob")
        look = box.glob_call(f"**/{intent.subject}")
        if not found and look is not None:
            return [look]
        paths = [path for step in found for path in read_listing(step.output).files]
        again = box.read_call(paths[0]) if paths else None
        if again is not None and not _was_made(conversation, again):
            return [again]
    return render_file_report(intent, done)


def merge_listings(conversation: OfflineConversation, box: Toolbox) -> Listing:
    """Return everything that listings since the goal have named."""
    files: dict[str, None] = {}
    directories: dict[str, None] = {}
    is_cut = False
    whole = Listing((), (), False)
    looks = [*_list_steps(conversation, box, "list"), *_list_steps(conversation, box, "glob")]
    for step in looks:
        if not step.failure:
            path = step.input.get("path")
            found = read_listing(step.output).move_below(path if isinstance(path, str) else "")
            whole = found if found.total and not is_below(path) else whole
            files.update(dict.fromkeys(found.files))
            directories.update(dict.fromkeys(found.directories))
            is_cut = is_cut or found.is_cut
    return whole._replace(files=tuple(files), directories=tuple(directories), is_cut=is_cut)


def is_below(path: object) -> bool:
    """Say whether a listing was one of a directory inside of the workspace."""
    return isinstance(path, str) and bool(path.strip("./"))


def select_telling_files(listing: Listing) -> list[str]:
    """Choose the files that say most about a project: the shallowest of each kind."""
    chosen: list[str] = []
    for pattern in _TELLING:
        fitting = [
            path
            for path in listing.files
            if re.fullmatch(pattern, path.rsplit("/", 1)[-1], re.IGNORECASE)
        ]
        fitting.sort(key=lambda path: (path.count("/"), path))
        if fitting and fitting[0].count("/") <= 2:
            chosen.append(fitting[0])
    return chosen[:_MAX_READS]


def _list_steps(conversation: OfflineConversation, box: Toolbox, role: Role) -> list[OfflineStep]:
    return [step for step in conversation.steps if box.find_role(step.tool) == role]


def _was_made(conversation: OfflineConversation, call: OfflineCall) -> bool:
    wanted = encode_canonical_json(call.arguments)
    return any(
        step.tool == call.tool and encode_canonical_json(step.input) == wanted
        for step in conversation.steps
    )


def _is_empty(step: OfflineStep) -> bool:
    return bool(step.failure) or not list_hit_lines(step.output)
