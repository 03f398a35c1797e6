"""Read the YAML block at the top of a Markdown file, whoever wrote it.

Plain YAML only: no tags, no anchors or aliases (so nothing can unfold into more than it
is), no duplicate keys, bounded in size and depth. Every scalar stays the text that was
written; whoever needs a number says so. Each top-level key keeps its line.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec
import yaml

MAX_FRONTMATTER = 16 * 1024
MAX_DEPTH = 8
_FENCE = re.compile(r"-{3,}[ \t]*")
_PLAIN_LINE = re.compile(r"([A-Za-z][\w-]*):[ \t]+(.*\S)[ \t]*")

FrontmatterValue: TypeAlias = "str | list[FrontmatterValue] | dict[str, FrontmatterValue]"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and its line (from 1; 0 where there is none)."""

    text: str
    line: int = 0

    def __str__(self) -> str:
        """`line 3: text`."""
        return f"line {self.line}: {self.text}" if self.line else self.text


class Frontmatter(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the block with their lines, the text below it, and what is wrong."""

    fields: dict[str, FrontmatterValue] = msgspec.field(default_factory=dict)
    lines: dict[str, int] = msgspec.field(default_factory=dict)
    body: str = ""
    faults: tuple[Fault, ...] = ()
    was_rescued: bool = False
    """The YAML was broken and read line by line instead."""


def read_frontmatter(text: str, *, is_lenient: bool = False) -> Frontmatter:
    """Split a Markdown text into its block and its body; what is wrong is in `faults`.

    With `is_lenient`, a block that is no YAML because of an unquoted colon is read line by
    line, as its author meant it.
    """
    lines = text.removeprefix("\ufeff").split("\n")
    if not _FENCE.fullmatch(lines[0].rstrip("\r")):
        return Frontmatter(body=text, faults=(Fault(text="there is no `---` block", line=1),))
    for end in range(1, len(lines)):
        if _FENCE.fullmatch(lines[end].rstrip("\r")):
            break
    else:
        return Frontmatter(faults=(Fault(text="the `---` block has no end", line=1),))
    block, body = "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
    if len(block) > MAX_FRONTMATTER:
        fault = Fault(text=f"the block is longer than {MAX_FRONTMATTER} characters", line=1)
        return Frontmatter(body=body, faults=(fault,))
    found = _parse(block, body)
    if found.faults and is_lenient:
        rescued = _parse(_quoted(block), body)
        if not rescued.faults:
            return Frontmatter(
                fields=rescued.fields, lines=rescued.lines, body=body, was_rescued=True
            )
    return found


def _parse(block: str, body: str) -> Frontmatter:
    try:
        root = yaml.compose(block, Loader=_PlainLoader)
        if root is None:
            return Frontmatter(body=body)
        if not isinstance(root, yaml.MappingNode):
            raise _UnfitError("the block is no list of `key: value` lines", 2)
        fields = _mapping(root, 0)
    except _UnfitError as error:
        return Frontmatter(body=body, faults=(Fault(text=error.text, line=error.line),))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark is not None else 1
        text = f"this is no YAML: {error.problem or error.context}"
        return Frontmatter(body=body, faults=(Fault(text=text, line=line),))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        kind = type(error).__name__
        return Frontmatter(body=body, faults=(Fault(text=f"this is no YAML ({kind})", line=1),))
    numbers = {key.value: key.start_mark.line + 2 for key, _ in root.value}
    return Frontmatter(fields=fields, lines=numbers, body=body)


class _UnfitError(Exception):
    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


class _PlainLoader(yaml.BaseLoader):
    """Composes nodes, and refuses what a plain file does not need."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases, anchors and tags before anything is made of them."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 2
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _UnfitError("anchors and aliases are not allowed", line)
        tag = getattr(event, "tag", None)
        if tag and tag != "!":
            raise _UnfitError(f"the tag {tag[:40]!r} is not allowed", line)
        if len(self.states) > 4 * MAX_DEPTH:
            raise _UnfitError("it is nested too deeply", line)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


def _mapping(node: yaml.MappingNode, depth: int) -> dict[str, FrontmatterValue]:
    found: dict[str, FrontmatterValue] = {}
    for key, value in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            raise _UnfitError("a key must be a word", line)
        if key.value in found:
            raise _UnfitError(f"{key.value!r} is given twice", line)
        found[key.value] = _value(value, depth + 1)
    return found


def _value(node: yaml.Node, depth: int) -> FrontmatterValue:
    if depth > MAX_DEPTH:
        raise _UnfitError("it is nested too deeply", node.start_mark.line + 2)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, depth)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, depth + 1) for item in node.value]
    return str(node.value)


def _quoted(block: str) -> str:
    """Quote the value of every plain top-level line."""
    lines = []
    for line in block.split("\n"):
        found = _PLAIN_LINE.fullmatch(line.rstrip("\r"))
        if found and found[2][0] not in "\"'|>[{":
            quoted = found[2].replace("'", "''")
            line = f"{found[1]}: '{quoted}'"
        lines.append(line)
    return "\n".join(lines)
