"""Answers that only say that a tool was used.

Small models often write "I used the calculator, and it gave 7" without calling anything. What was
made up looks like a result; so a claim without a call behind it is noticed, and asked about.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from holdfast.messages import Message, ToolPart, ToolSpec

_DONE = r"(?:used|called|ran|run|executed|invoked|consulted|queried|applied)"
_SAID = r"(?:returned|returns|gave|gives|said|says|shows?|showed|reported|responded|outputs?)"


def find_claimed_tool(
    text: str, tools: Sequence[ToolSpec], messages: Sequence[Message]
) -> str | None:
    """Return the offered tool that a text says was used, though it was not; `None` if none.

    What was called since the last message of the user may be spoken of.
    """
    if not text or len(text) > 20_000:
        return None
    called = _list_called(messages)
    for tool in tools:
        if tool.name not in called and _compile_claim(tool.name).search(text):
            return tool.name
    return None


def _list_called(messages: Sequence[Message]) -> set[str]:
    called: set[str] = set()
    for message in reversed(messages):
        called.update(part.tool for part in message.parts if isinstance(part, ToolPart))
        if message.role == "user" and not all(
            getattr(part, "is_synthetic", False) for part in message.parts
        ):
            break
    return called


@functools.lru_cache(maxsize=256)
def _compile_claim(name: str) -> re.Pattern[str]:
    spelled = r"[\s_-]?".join(re.escape(word) for word in re.split(r"[_-]+", name) if word)
    tool = rf"[`'\"*]{{0,2}}{spelled or re.escape(name)}[`'\"*]{{0,2}}"
    who = r"\b(?:I|we)(?:'ve| have)?(?: (?:just|already|then|also))?"
    return re.compile(
        rf"{who} {_DONE} (?:the |a |an )?(?:tool |function )?{tool}\b"
        rf"|\b(?:[Aa]fter|[Bb]y) (?:using|calling|running|executing) (?:the )?{tool}\b"
        rf"|\b[Tt]he {tool}(?: tool| function)? (?:has )?{_SAID}\b"
        rf"|\b(?:[Tt]he )?(?:result|output) (?:of|from) (?:the )?{tool}(?: tool| function)?\b"
        rf"|\b{tool} tool was {_DONE}\b"
    )


__all__ = ["find_claimed_tool"]
