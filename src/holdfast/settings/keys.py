"""The flat list of settings: dotted key, variable, type, default, meaning."""

from __future__ import annotations

import typing
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from pydantic import BaseModel, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from holdfast.settings.definition import Settings

CONFIG_VARIABLE: Final = "HOLDFAST_CONFIG"
PREFIX: Final = "HOLDFAST_"
FILE_SUFFIX: Final = "_FILE"
"""Added to a variable, it names the file that holds the value: `OPENAI_API_KEY_FILE`."""

# Chosen before any file is read, so a file cannot set it.
_NOT_IN_FILES: Final = frozenset({"env"})


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as the loader, the views and the reference page see it."""

    name: str
    variable: str
    info: FieldInfo
    is_secret: bool
    is_path: bool

    @property
    def is_allowed_in_files(self) -> bool:
        """Whether a TOML file may set it: not keys, and not what chooses the files."""
        return not self.is_secret and self.name not in _NOT_IN_FILES

    @property
    def description(self) -> str:
        """The meaning, in one sentence."""
        return self.info.description or ""

    def validate(self, value: object) -> object:
        """The value as the setting's type; raises pydantic's ValidationError."""
        return self._make_adapter().validate_python(value)

    def _make_adapter(self) -> TypeAdapter[Any]:
        kind: Any = self.info.annotation
        for mark in self.info.metadata:
            kind = Annotated[kind, mark]
        return TypeAdapter(kind)


def _mentions(annotation: object, wanted: type) -> bool:
    if annotation is wanted:
        return True
    return any(_mentions(part, wanted) for part in typing.get_args(annotation))


@cache
def list_keys() -> dict[str, Key]:
    """Every setting by dotted key, in the order of the definition."""
    found: dict[str, Key] = {}

    def walk(model: type[BaseModel], path: tuple[str, ...]) -> None:
        for name, info in model.model_fields.items():
            here = (*path, name)
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                walk(info.annotation, here)
                continue
            extra = info.json_schema_extra
            named = extra.get("variable") if isinstance(extra, dict) else None
            found[".".join(here)] = Key(
                name=".".join(here),
                variable=str(named) if named else PREFIX + "__".join(here).upper(),
                info=info,
                is_secret=_mentions(info.annotation, SecretStr),
                is_path=_mentions(info.annotation, Path),
            )

    walk(Settings, ())
    return found


@cache
def list_sections() -> dict[str, type[BaseModel]]:
    """Every section by dotted name, in the order of the definition."""
    found: dict[str, type[BaseModel]] = {}

    def walk(model: type[BaseModel], path: tuple[str, ...]) -> None:
        for name, info in model.model_fields.items():
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                found[".".join((*path, name))] = info.annotation
                walk(info.annotation, (*path, name))

    walk(Settings, ())
    return found


@cache
def list_keys_by_variable() -> dict[str, Key]:
    """Every setting by its variable."""
    return {key.variable: key for key in list_keys().values()}


def find_key_of_file(variable: str) -> Key | None:
    """Return the setting whose value stands in the file that this variable names."""
    known = list_keys_by_variable()
    if variable in known or not variable.endswith(FILE_SUFFIX):
        return None
    key = known.get(variable.removesuffix(FILE_SUFFIX))
    return key if key is not None and key.is_secret else None
