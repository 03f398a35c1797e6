"""Write what the tools have answered as Markdown; nothing that no tool has said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.providers.offline.conversation import OfflineConversation, OfflineStep, make_harmless
from holdfast.providers.offline.facts import WorkspaceFacts, quote, read_facts, strip_lines
from holdfast.providers.offline.intent import GoalIntent
from holdfast.providers.offline.listing import Listing
from holdfast.providers.offline.toolbox import Toolbox

_LANGUAGES = {
    "py": "Python",
    "pyi": "Python",
    "js": "JavaScript",
    "mjs": "JavaScript",
    "jsx": "JavaScript",
    "ts": "TypeScript",
    "tsx": "TypeScript",
    "rs": "Rust",
    "go": "Go",
    "java": "Java",
    "kt": "Kotlin",
    "c": "C",
    "h": "C",
    "cc": "C++",
    "cpp": "C++",
    "hpp": "C++",
    "cs": "C#",
    "rb": "Ruby",
    "php": "PHP",
    "swift": "Swift",
    "sh": "Shell",
    "sql": "SQL",
    "html": "HTML",
    "css": "CSS",
    "md": "Markdown",
    "rst": "reStructuredText",
    "toml": "TOML",
    "yaml": "YAML",
    "yml": "YAML",
    "json": "JSON",
    "ipynb": "Jupyter",
}
_NOTABLE = (
    "license", "licence", "contributing", "changelog", "security", "dockerfile", "compose.y",
    "docker-compose", "agents.md", ".github/workflows", "requirements", "tsconfig", ".env.example",
)  # fmt: skip
_NO_HITS = ("found ", "no match", "no line matches", "no files", "no results", "(")
_PROSE = (".md", ".rst", ".txt", ".html", ".json")
_MAX_LISTED = 25
_MAX_HITS = 40
_MAX_SHOWN = 60
_MAX_LINE = 200

NO_CHANGE = (
    "The goal also asks for a change or a command. I follow fixed rules and only look; "
    "nothing was changed. Configure a language model for that part."
)


def render_workspace_report(
    intent: GoalIntent, conversation: OfflineConversation, box: Toolbox, listing: Listing
) -> str:
    """Describe the workspace from the listing, the files that were read and the hits."""
    reads = [step for step in conversation.steps if box.find_role(step.tool) == "read"]
    facts = [
        (find_path(step), read_facts(find_path(step), step.output))
        for step in reads
        if not step.failure
    ]
    lines = ["# This workspace", ""]
    if not listing.files and not listing.directories and not facts:
        lines += ["No tool showed me any file here, so there is nothing I can describe.", ""]
    lines += _describe_project(facts)
    lines += _list_layout(listing)
    lines += _list_languages(listing)
    lines += _list_commands(facts)
    lines += _list_entry_points(conversation, box)
    lines += _list_notable(listing, facts)
    lines += _list_not_looked_at(conversation, listing, facts, box)
    if intent.also_asks_for_change:
        lines += [NO_CHANGE, ""]
    return "\n".join(lines).rstrip() + "\n"


def search_report(intent: GoalIntent, done: Sequence[OfflineStep]) -> str:
    """List the hits of a search, or say why there are none."""
    subject = quote(intent.subject, 100)
    hits = [line for step in done if not step.failure for line in list_hit_lines(step.output)]
    lines = [f"# Search for `{_format_code(subject)}`", ""]
    if not done:
        lines += ["I have no tool that searches file contents (such as `grep`), so I cannot look."]
    elif hits:
        lines += [f"- `{_format_code(hit)}`" for hit in hits[:_MAX_HITS]]
        if len(hits) > _MAX_HITS:
            lines += [f"- … and {len(hits) - _MAX_HITS} more lines in the tool's answer"]
    elif all(step.failure for step in done):
        lines += ["The search failed."]
    else:
        lines += ["Nothing was found."]
    lines += ["", *_list_failures(done)]
    if intent.also_asks_for_change:
        lines += [NO_CHANGE]
    return "\n".join(lines).rstrip() + "\n"


def render_file_report(intent: GoalIntent, done: Sequence[OfflineStep]) -> str:
    """Show what the asked files say: their facts, then their beginning."""
    good = [step for step in done if not step.failure]
    subject = _format_code(quote(find_path(good[0]) if len(good) > 1 else intent.subject, 100))
    lines = [f"# `{subject}`", ""]
    if not done:
        return f"I have no tool that reads files, so I cannot open `{subject}`.\n"
    for step in good:
        if len(good) > 1 and step is not good[0]:
            lines += [f"# `{_format_code(find_path(step))}`", ""]
        lines += _list_file_lines(step, _MAX_SHOWN // len(good))
    if not good:
        lines += ["The file could not be read.", ""]
    lines += _list_failures(done)
    if intent.also_asks_for_change:
        lines += [NO_CHANGE]
    return "\n".join(lines).rstrip() + "\n"


def _list_file_lines(step: OfflineStep, most: int) -> list[str]:
    text = strip_lines(step.output).splitlines()
    about = read_facts(find_path(step), step.output).about
    lines = [f"> {about}", ""] if about else []
    shown = text[:most]
    if not any(line.strip() for line in text):
        return [*lines, "It is empty.", ""]
    begins = "It begins:" if len(text) > len(shown) else "It says:"
    lines += [begins, "", *(f"    {line[:_MAX_LINE]}" for line in shown), ""]
    if len(text) > len(shown):
        lines += [f"… and {len(text) - len(shown)} more lines were read.", ""]
    return lines


def list_hit_lines(output: str) -> list[str]:
    """Return the lines of a search result that name a hit."""
    found = []
    for line in make_harmless(output).splitlines():
        stripped = line.strip()
        lowered = stripped.lower()
        if stripped and not lowered.startswith(_NO_HITS):
            found.append(stripped[:_MAX_LINE])
    return found


def find_path(step: OfflineStep) -> str:
    """Return the path that a read was asked for."""
    texts = [value for value in step.input.values() if isinstance(value, str)]
    return make_harmless(texts[0]) if texts else "file"


def _describe_project(facts: Sequence[tuple[str, WorkspaceFacts]]) -> list[str]:
    lines: list[str] = []
    name = next((fact.name for _, fact in facts if fact.name), "")
    if name:
        lines += [f"**{name}**", ""]
    told = [(path, fact.about) for path, fact in facts if fact.about]
    for path, about in told[:2]:
        lines += [f"`{_format_code(path)}` says:", "", f"> {about}", ""]
    parts = [part for _, fact in facts for part in fact.parts if "section" not in part]
    if parts:
        lines += [f"- {part}" for part in parts[:6]] + [""]
    return lines


def _list_layout(listing: Listing) -> list[str]:
    if not listing.files and not listing.directories:
        return []
    tops: Counter[str] = Counter()
    for path in listing.files:
        if "/" in path:
            tops[path.split("/", 1)[0]] += 1
    for path in listing.directories:
        tops.setdefault(path.split("/", 1)[0], 0)
    alone = sorted(path for path in listing.files if "/" not in path)
    lines = ["## Layout", ""]
    lines += [
        f"- `{_format_code(name)}/` ({_count(count, 'file')} seen)"
        for name, count in sorted(tops.items())[:_MAX_LISTED]
    ]
    shown = ", ".join(f"`{_format_code(name)}`" for name in alone[:_MAX_LISTED])
    if shown:
        lines += [f"- at the top: {shown}" + (", …" if len(alone) > _MAX_LISTED else "")]
    return [*lines, ""]


def _list_languages(listing: Listing) -> list[str]:
    counted = Counter(
        _LANGUAGES[path.rsplit(".", 1)[-1].lower()]
        for path in listing.files
        if "." in path.rsplit("/", 1)[-1] and path.rsplit(".", 1)[-1].lower() in _LANGUAGES
    )
    if not counted:
        return []
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{name} ({count})" for name, count in ranked[:10])
    return ["## Languages, by number of files listed", "", told, ""]


def _list_commands(facts: Sequence[tuple[str, WorkspaceFacts]]) -> list[str]:
    rows = [
        f"- {purpose}: `{_format_code(command)}` (from `{_format_code(path)}`)"
        for path, fact in facts
        for purpose, command in fact.commands
    ]
    return ["## Build, test, run", "", *rows[:16], ""] if rows else []


def _list_entry_points(conversation: OfflineConversation, box: Toolbox) -> list[str]:
    steps = [step for step in conversation.steps if box.find_role(step.tool) == "grep"]
    found = [line for step in steps if not step.failure for line in list_hit_lines(step.output)]
    # An example in a page of the docs is no entry point.
    hits = [line for line in found if not line.partition(":")[0].endswith(_PROSE)]
    if not hits:
        return []
    more = [f"- … and {len(hits) - 12} more lines"] if len(hits) > 12 else []
    return [
        "## Entry points found by search",
        "",
        *(f"- `{_format_code(hit)}`" for hit in hits[:12]),
        *more,
        "",
    ]


def _list_notable(listing: Listing, facts: Sequence[tuple[str, WorkspaceFacts]]) -> list[str]:
    read = {path for path, _ in facts}
    found = [
        path
        for path in listing.files
        if path not in read and any(word in path.lower() for word in _NOTABLE)
    ]
    found.sort(key=lambda path: (path.count("/"), path))
    if not found:
        return []
    return ["## Notable files", "", ", ".join(f"`{_format_code(path)}`" for path in found[:12]), ""]


def _list_not_looked_at(
    conversation: OfflineConversation,
    listing: Listing,
    facts: Sequence[tuple[str, WorkspaceFacts]],
    box: Toolbox,
) -> list[str]:
    lines = ["## What I did not look at", ""]
    left = len(set(listing.files) - {path for path, _ in facts})
    if listing.files:
        opened = _count(len(facts), "file")
        lines += [f"- I opened {opened}; {_count(left, 'listed file')} stayed closed."]
    if listing.is_cut:
        lines += ["- The listing was cut, so there are more files than I counted."]
    if not (box.has("list") or box.has("glob")):
        lines += ["- I have no tool that lists files."]
    if not box.has("read"):
        lines += ["- I have no tool that reads files."]
    lines += _list_failures(conversation.steps)
    lines += ["- I follow fixed rules: I can quote and count, not judge what the code does.", ""]
    return lines


def _list_failures(steps: Sequence[OfflineStep]) -> list[str]:
    return [
        f"- `{_format_code(step.tool)}` on `{_format_code(find_path(step))}` failed: "
        f"{quote(step.failure, 200)}"
        for step in steps
        if step.failure
    ]


def _format_code(text: str) -> str:
    """Text that cannot leave its code span."""
    return " ".join(text.replace("`", "'").split())[:_MAX_LINE]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
