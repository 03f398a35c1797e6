"""A skill: instructions in a folder, as the open Agent Skills format has it."""

from __future__ import annotations

import functools
import re
from typing import Literal, TypeAlias

import msgspec

from holdfast.errors import UsageError
from holdfast.skills.frontmatter import Fault, Frontmatter, FrontmatterValue, read_frontmatter

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 256 * 1024
MAX_NAME = 64
MAX_DESCRIPTION = 1_024
MAX_COMPATIBILITY = 500

Source: TypeAlias = Literal["project", "user", "code"]

_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# What other programs read besides; it is obeyed, and no fault.
_FURTHER = ("disable-model-invocation", "user-invocable", "argument-hint", "model")


@functools.cache
def _name() -> re.Pattern[str]:
    return re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@functools.cache
def _compile_control() -> re.Pattern[str]:
    return re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions that an agent may load; `content` is the text below the frontmatter.

    `is_trusted` says whether it may be offered: skills of a project need a person's word
    for exactly this content (`digest`).
    """

    name: str
    description: str
    content: str = ""
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    is_for_people: bool = False
    """`disable-model-invocation`: only a person may use it; no model sees or loads it."""
    argument_hint: str = ""
    """What to say after its name."""
    model: str = ""
    """The model that its author wants it to be used with; one of the same provider is used."""
    source: Source = "code"
    directory: str = ""
    """The folder on the machine of the runtime; empty for one that is code."""
    files: tuple[str, ...] = ()
    """What else is in the folder, relative to it."""
    digest: str = ""
    is_trusted: bool = True
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a skill that no caller could call."""
        if not self.name.strip() or not self.description.strip():
            raise UsageError(detail="A skill needs a name and a description.")


def fill_in(skill: Skill, arguments: str = "") -> str:
    """Return the text of a skill with what it was called with.

    `$ARGUMENTS` and `$1` … `$9` stand for the arguments, `${CLAUDE_SKILL_DIR}` for its folder;
    where no place is marked for them, arguments stand at the end. Nothing is executed.
    """
    words = arguments.split()
    is_marked = _compile_argument().search(skill.content) is not None

    def replaced(found: re.Match[str]) -> str:
        number = found[1] or found[2]
        if not number:
            return arguments
        return words[int(number) - 1] if int(number) <= len(words) else ""

    # The folder first: arguments are foreign text, of which nothing is filled in again.
    text = skill.content.replace("${CLAUDE_SKILL_DIR}", skill.directory)
    if is_marked:
        return _compile_argument().sub(replaced, text)
    return f"{text}\n\nARGUMENTS: {arguments}" if arguments else text


@functools.cache
def _compile_argument() -> re.Pattern[str]:
    return re.compile(r"\$(?:ARGUMENTS(?:\[([1-9])\]|(?!\w))|([1-9])(?!\w))")


def check_skill(text: str, folder: str) -> tuple[Fault, ...]:
    """Return everything that the format forbids about a SKILL.md; () means that it is valid."""
    found = read_frontmatter(text)
    if found.faults:
        return found.faults
    return (*_list_field_faults(found, folder), *_list_body_faults(found.body))


def parse_skill(text: str, folder: str) -> tuple[Skill | None, tuple[Fault, ...]]:
    """Return a skill as well as it can be read, and what is wrong with it.

    Only what cannot be read at all gives no skill: broken YAML, or no description.
    """
    found = read_frontmatter(text, is_lenient=True)
    if found.faults:
        return None, found.faults
    faults = (*_list_field_faults(found, folder), *_list_body_faults(found.body))
    if found.was_rescued:
        faults = (Fault(text="the block is no YAML; it was read line by line", line=2), *faults)
    description = _format_line(found.fields.get("description"))
    if not description:
        return None, faults
    metadata = found.fields.get("metadata")
    skill = Skill(
        name=_find_usable_name(found.fields.get("name"), folder),
        description=description[:MAX_DESCRIPTION],
        content=_compile_control().sub("", found.body.replace("\r\n", "\n")).strip(),
        license=_format_line(found.fields.get("license")),
        compatibility=_format_line(found.fields.get("compatibility"))[:MAX_COMPATIBILITY],
        metadata={k: _format_line(v) for k, v in metadata.items()}
        if isinstance(metadata, dict)
        else {},
        allowed_tools=_render_tools(found.fields.get("allowed-tools")),
        # Whatever is not plainly "no" keeps it from models.
        is_for_people=_format_line(found.fields.get("disable-model-invocation")).lower()
        not in ("", "false", "no", "off", "0"),
        argument_hint=_format_line(found.fields.get("argument-hint"))[:200],
        model=_format_line(found.fields.get("model"))[:200],
        warnings=tuple(str(fault) for fault in faults),
    )
    return skill, faults


def _list_field_faults(found: Frontmatter, folder: str) -> list[Fault]:
    faults: list[Fault] = []

    def fault(key: str, text: str) -> None:
        faults.append(Fault(text=text, line=found.lines.get(key, 2)))

    for key in found.fields:
        if key not in _FIELDS + _FURTHER:
            fault(key, f"{key[:40]!r} is no field of the format; put it below `metadata`")
    for text, key in _name_faults(found.fields.get("name"), folder):
        fault(key, text)
    for text in _list_description_faults(found.fields.get("description")):
        fault("description", text)
    compatibility = found.fields.get("compatibility", "-")
    if not isinstance(compatibility, str) or not 1 <= len(compatibility) <= MAX_COMPATIBILITY:
        fault("compatibility", f"`compatibility` is a text of 1 to {MAX_COMPATIBILITY} characters")
    for key in ("license", "allowed-tools"):
        if not isinstance(found.fields.get(key, ""), str):
            fault(key, f"`{key}` is a text, not a list")
    metadata = found.fields.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        fault("metadata", "`metadata` maps names to texts")
    for key, value in found.fields.items():
        if isinstance(value, str) and _compile_control().search(value):
            fault(key, f"`{key}` holds control characters")
    return faults


def _name_faults(name: FrontmatterValue | None, folder: str) -> list[tuple[str, str]]:
    if not isinstance(name, str) or not name:
        return [("`name` is missing", "name")]
    faults = []
    if len(name) > MAX_NAME or not _name().fullmatch(name):
        text = f"`name` has 1 to {MAX_NAME} small letters and digits, with single hyphens between"
        faults.append((text, "name"))
    if name != folder:
        faults.append((f"`name` is {name[:70]!r}, but the folder is {folder[:70]!r}", "name"))
    return faults


def _list_description_faults(description: FrontmatterValue | None) -> list[str]:
    if not isinstance(description, str) or not description.strip():
        return ["`description` is missing: what the skill does and when to use it"]
    if len(description) > MAX_DESCRIPTION:
        return [f"`description` has more than {MAX_DESCRIPTION} characters"]
    return []


def _list_body_faults(body: str) -> list[Fault]:
    faults = []
    if not body.strip():
        faults.append(Fault(text="there are no instructions below the block"))
    if _compile_control().search(body):
        faults.append(Fault(text="the instructions hold control characters"))
    return faults


def _find_usable_name(name: FrontmatterValue | None, folder: str) -> str:
    """The written name if it can be one, else one made of the folder's."""
    for given in (name, folder):
        if isinstance(given, str):
            plain = re.sub(r"[^a-z0-9]+", "-", given.lower()).strip("-")[:MAX_NAME].strip("-")
            if plain:
                return plain
    return "skill"


def _format_line(value: FrontmatterValue | None) -> str:
    """A value as one harmless line."""
    return _compile_control().sub("", " ".join(value.split())) if isinstance(value, str) else ""


def _render_tools(value: FrontmatterValue | None) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(one for one in value if isinstance(one, str))
    return tuple(value.split()) if isinstance(value, str) else ()
