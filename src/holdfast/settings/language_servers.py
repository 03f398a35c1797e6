"""What is said about a language server: its program, and the files that it understands."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from holdfast.settings.mcp import Folder, Word


def _check_program(value: str) -> str:
    if "/" in value and not os.path.isabs(value):
        raise ValueError("must be a plain name or an absolute path")
    return value


Program = Annotated[Word, Field(min_length=1), AfterValidator(_check_program)]
Ending = Annotated[str, Field(pattern=r"^\.[A-Za-z0-9_+-]{1,16}$")]
LanguageId = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+#_-]{0,31}$")]


class LanguageServerSetting(BaseModel):
    """One language server, which the `lsp` tool starts in the sandbox when it needs it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )

    command: Program = Field(description="Its program, by a plain name or an absolute path.")
    args: tuple[Word, ...] = Field(default=(), max_length=256, description="Its arguments.")
    endings: dict[Ending, LanguageId] = Field(
        min_length=1,
        max_length=64,
        description='Endings of its files with their language ids, such as `{".rs" = "rust"}`.',
    )
    readable: tuple[Folder, ...] = Field(
        default=(),
        max_length=64,
        description="Directories that it must read besides its program and the workspace.",
    )

    def said(self) -> dict[str, Any]:
        """What was said about it, without what holds anyway."""
        return self.model_dump(mode="json", exclude_defaults=True)


def _parse(value: object) -> object:
    """A variable holds them as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("must be a JSON object of language servers by name") from None


ServerName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,23}$")]
LanguageServerTable = Annotated[
    dict[ServerName, LanguageServerSetting], Field(max_length=64), BeforeValidator(_parse)
]
"""Language servers by name: lower-case letters, digits and hyphens, at most 24."""

__all__ = ["LanguageServerSetting", "LanguageServerTable"]
