"""State in prompts: `{state:user/language}` becomes the value, in the agent's own rights."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast.context.steps import format_inside, make_harmless
from holdfast.state import StateManager

STATE_MARK: Final = "{state:"
_NAMED: Final = re.compile(r"\{state:([^{}|\n]+)(?:\|([^{}\n]*))?\}")
_MOST_CHARS: Final = 32_000
_TAG: Final = "untrusted-state"


async def render_state(prompt: str, state: StateManager) -> str:
    """Return a prompt in which every `{state:ADDRESS}` is the value at that address.

    `{state:ADDRESS|TEXT}` is the text where there is no value; without one it is empty. What is
    no text becomes JSON. A value that strangers may have written stands inside a tag that says
    so, and its labels are those of the run from then on.

    Raises:
        UsageError: what stands there is no address.
        PermissionDenied: the agent's rules do not give it.
    """
    pieces: list[str] = []
    end = 0
    for found in _NAMED.finditer(prompt):
        pieces += (
            prompt[end : found.start()],
            await _show_value(found[1].strip(), found[2], state),
        )
        end = found.end()
    return "".join((*pieces, prompt[end:]))


async def _show_value(address: str, default: str | None, state: StateManager) -> str:
    entry = await state.entry(address)
    if entry is None:
        return default or ""
    value = entry.value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = make_harmless(text)
    if len(text) > _MOST_CHARS:
        text = f"{text[:_MOST_CHARS]} (cut after {_MOST_CHARS} characters)"
    if "untrusted" not in entry.labels:
        return text
    return f"<{_TAG}>{format_inside(_TAG, text)}</{_TAG}>"


__all__ = ["STATE_MARK", "render_state"]
