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
_NEAR = ("", "docs", "docker", "deploy", ".github")
_NO_HITS = ("found ", "no match", "no line matches", "no files", "no results", "(")
_PROSE = (".md", ".rst", ".txt", ".html", ".json")
_BESIDE = {
    "tests", "test", "benchmarks", "bench", "examples", "scripts", "tools", "docs", "docs_src",
}  # fmt: skip
_MAX_LISTED = 25
_MAX_INNER = 6
_MAX_ENTRIES = 8
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
    told: dict[str, str] = {}
    for path, fact in facts:
        if fact.about:
            told.setdefault(fact.about, path)
    for about, path in list(told.items())[:2]:
        lines += [f"`{_format_code(path)}` says:", "", f"> {about}", ""]
    parts = [part for _, fact in facts for part in fact.parts if "section" not in part]
    if parts:
        lines += [f"- {part}" for part in parts[:6]] + [""]
    return lines


def _list_layout(listing: Listing) -> list[str]:
    """Draw the tree of the upper two storeys, with how many files each directory holds."""
    if not listing.files and not listing.directories:
        return []
    counted: Counter[str] = Counter()
    for path in listing.files:
        if "/" in path:
            counted[path.split("/", 1)[0]] += 1
    if listing.tops:
        counted = Counter({name.rstrip("/"): count for name, count in listing.tops})
    tops = sorted({path.split("/", 1)[0] for path in listing.directories})
    inner: dict[str, list[str]] = {}
    for path in listing.directories:
        parts = path.split("/")
        if len(parts) == 2:
            inner.setdefault(parts[0], []).append(parts[1])
    alone = sorted(path for path in listing.files if "/" not in path)
    rows: list[str] = []
    for name in tops[:_MAX_LISTED]:
        told = _count(counted[name], "file") if name in counted else ""
        rows.append(f"├── {f'{name}/':<24}{told}".rstrip())
        below = sorted(inner.get(name, []))
        shown = [f"{one}/" for one in below[:_MAX_INNER]]
        if len(below) > _MAX_INNER:
            shown.append(f"… {len(below) - _MAX_INNER} more")
        rows += [f"│   {'└' if one is shown[-1] else '├'}── {one}" for one in shown]
    rows += [f"├── {name}" for name in alone[:_MAX_LISTED]]
    if len(alone) > _MAX_LISTED:
        rows.append(f"├── … {len(alone) - _MAX_LISTED} more files")
    rows = [_format_code_line(row) for row in rows]
    rows[-1] = rows[-1].replace("├", "└", 1)
    total = listing.total or len(listing.files)
    more = "at least " if listing.is_cut and not listing.total else ""
    return [
        "## Layout",
        "",
        f"{more}{_count(total, 'file')}.".capitalize(),
        "",
        "```text",
        *rows,
        "```",
        "",
    ]


def _list_languages(listing: Listing) -> list[str]:
    counted: Counter[str] = Counter()
    endings = listing.endings or [
        (f".{path.rsplit('.', 1)[-1].lower()}", 1)
        for path in listing.files
        if "." in path.rsplit("/", 1)[-1]
    ]
    for ending, count in endings:
        if ending.removeprefix(".") in _LANGUAGES:
            counted[_LANGUAGES[ending.removeprefix(".")]] += count
    if not counted:
        return []
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{name} ({count})" for name, count in ranked[:10])
    return ["## Languages, by number of files", "", told, ""]


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
    # An example in a page of the docs is no entry point; one place per file is enough.
    files: dict[str, str] = {}
    for line in found:
        path = line.partition(":")[0]
        if not path.endswith(_PROSE):
            files.setdefault(path, line)
    if not files:
        return []
    ranked = sorted(files, key=lambda path: (_is_beside(path), _measure_depth(path), path))
    left = len(ranked) - _MAX_ENTRIES
    more = [f"- … and in {_count(left, 'more file')}"] if left > 0 else []
    return [
        "## Entry points found by search",
        "",
        *(f"- `{_format_code(files[path])}`" for path in ranked[:_MAX_ENTRIES]),
        *more,
        "",
    ]


def _is_beside(path: str) -> bool:
    """Say whether a file belongs to what stands beside the program: tests, examples, tools."""
    folders = path.lower().split("/")[:-1]
    return bool(_BESIDE & set(folders)) or any("test" in folder for folder in folders)


def _measure_depth(path: str) -> int:
    """Return how deep a file lies; `src` is no level, but where the program begins."""
    return path.removeprefix("src/").count("/")


def _list_notable(listing: Listing, facts: Sequence[tuple[str, WorkspaceFacts]]) -> list[str]:
    read = {path for path, _ in facts}
    found = [path for path in listing.files if path not in read and _is_notable(path.lower())]
    found.sort(key=lambda path: (path.count("/"), path))
    if not found:
        return []
    return ["## Notable files", "", ", ".join(f"`{_format_code(path)}`" for path in found[:12]), ""]


def _is_notable(path: str) -> bool:
    name = path.rpartition("/")[2]
    folder = path.rpartition("/")[0]
    is_near = folder in _NEAR and any(name.startswith(word) for word in _NOTABLE)
    return is_near or path.startswith(".github/workflows/")


def _list_not_looked_at(
    conversation: OfflineConversation,
    listing: Listing,
    facts: Sequence[tuple[str, WorkspaceFacts]],
    box: Toolbox,
) -> list[str]:
    lines = ["## What I did not look at", ""]
    left = len(set(listing.files) - {path for path, _ in facts})
    left = max(left, listing.total - len(facts))
    if listing.files:
        opened = _count(len(facts), "file")
        lines += [f"- I opened {opened}; {_count(left, 'other file')} stayed closed."]
    if listing.is_cut and not listing.total:
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


def _format_code_line(text: str) -> str:
    """A line that cannot leave its code block."""
    return text.replace("`", "'").replace("\n", " ")[:_MAX_LINE]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
