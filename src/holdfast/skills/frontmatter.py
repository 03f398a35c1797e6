"""Read the YAML block at the top of a Markdown file of any author.

Plain YAML only: no tags, no anchors or aliases (so nothing can unfold into more than it
is), no duplicate keys, bounded in size and depth. Every scalar stays the text that was
written; the caller that needs a number says so. Each top-level key keeps its line.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import msgspec

from holdfast.policy import parse_yaml

MAX_FRONTMATTER = 16 * 1024
_FENCE = r"-{3,}[ \t]*"
_PLAIN_LINE = r"([A-Za-z][\w-]*):[ \t]+(.*\S)[ \t]*"

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
    if not re.fullmatch(_FENCE, lines[0].rstrip("\r")):
        return Frontmatter(body=text, faults=(Fault(text="there is no `---` block", line=1),))
    for end in range(1, len(lines)):
        if re.fullmatch(_FENCE, lines[end].rstrip("\r")):
            break
    else:
        return Frontmatter(faults=(Fault(text="the `---` block has no end", line=1),))
    block, body = "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
    if len(block) > MAX_FRONTMATTER:
        fault = Fault(text=f"the block is longer than {MAX_FRONTMATTER} characters", line=1)
        return Frontmatter(body=body, faults=(fault,))
    found = _parse_block(block, body)
    if found.faults and is_lenient:
        rescued = _parse_block(_quote(block), body)
        if not rescued.faults:
            return Frontmatter(
                fields=rescued.fields, lines=rescued.lines, body=body, was_rescued=True
            )
    return found


def _parse_block(block: str, body: str) -> Frontmatter:
    data = parse_yaml(block, is_text_kept=True)
    # The block begins below its fence, on the second line of the file.
    faults = tuple(Fault(text=text, line=line + 1) for line, text in data.mistakes)
    if not faults and not isinstance(data.content, dict | None):
        faults = (Fault(text="the block is no list of `key: value` lines", line=2),)
    if faults:
        return Frontmatter(body=body, faults=faults)
    fields: dict[str, FrontmatterValue] = data.content or {}  # type: ignore[assignment] - texts
    lines = {str(place[0]): line + 1 for place, line in data.lines.items() if len(place) == 1}
    return Frontmatter(fields=fields, lines=lines, body=body)


def _quote(block: str) -> str:
    """Quote the value of every plain top-level line."""
    lines = []
    for line in block.split("\n"):
        found = re.fullmatch(_PLAIN_LINE, line.rstrip("\r"))
        if found and found[2][0] not in "\"'|>[{":
            quoted = found[2].replace("'", "''")
            line = f"{found[1]}: '{quoted}'"
        lines.append(line)
    return "\n".join(lines)
