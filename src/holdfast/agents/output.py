"""Structured output: the answer as a value of a type."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import re
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Final

import msgspec
import pydantic
from typing_extensions import TypeVar

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.providers.json_schema import iterate_nodes, list_faults, list_problems, resolve

OutputT = TypeVar("OutputT", default=Any)
"""The type of an agent's answer."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NO_NAME: Final = re.compile("[^a-zA-Z0-9_-]+")
_MOST_NAME: Final = 64


class OutputType:
    """A type, or a JSON schema, that an answer must fit.

    Providers take only schemas of objects, so `schema` is one: that of a list, a number or a
    choice stands in it as the field `value`. An answer may have that form, or be the bare value.
    """

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - any type
        """Describe the type as a JSON schema; a mapping is one already.

        Raises:
            UsageError: pydantic cannot describe it, or the schema is none that could be met.
        """
        try:
            if isinstance(kind, Mapping):
                schema = json.loads(json.dumps(dict(kind)))
                if found := list_faults(schema):
                    raise ValueError("; ".join(found))
                self._adapter = _choose_fitting(schema)
            elif isinstance(kind, Hashable):
                self._adapter, schema = _known(kind)
            else:
                self._adapter, schema = _describe(kind)
        except (pydantic.PydanticUserError, TypeError, ValueError, NameError) as error:
            raise UsageError(detail=f"The output type cannot be described: {error}") from error
        self.schema, self._is_wrapped = _as_object(copy.deepcopy(schema))
        # As providers take names: `Page[City]` is none.
        named = _NO_NAME.sub("_", str(getattr(kind, "__name__", ""))).strip("_")
        self.name = named[:_MOST_NAME] or "answer"

    def parse(self, text: str) -> object:
        """Return the value that a text holds; a fence around the JSON is forgiven.

        Raises:
            ValueError: it does not fit; the message says why, for the model.
        """
        stripped = text.strip()
        if stripped.startswith("```"):
            stripped = stripped.split("\n", 1)[-1].rsplit("```", 1)[0]
        value: object = self._adapter.validate_json(self._strip(stripped))
        return value

    def _strip(self, text: str) -> str | bytes:
        """Return the JSON of the value itself."""
        if self._is_wrapped:
            with contextlib.suppress(msgspec.MsgspecError):
                return bytes(msgspec.json.decode(text, type=_Wrapped).value)
        return text


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A value in the form in which providers give what is no object."""

    value: msgspec.Raw


def _as_object(schema: JsonObject) -> tuple[JsonObject, bool]:
    """Return the schema of an object, and whether it is one around the schema that was given."""
    root = resolve(schema, schema)
    if root.get("type") == "object" or "properties" in root:
        return root, False
    kept: JsonObject = {key: schema[key] for key in _DEFINITIONS if key in schema}
    starts = tuple(f"#/{key}/" for key in kept)
    for node in iterate_nodes(schema):
        if isinstance(node.get("$ref"), str) and not node["$ref"].startswith(starts):
            # It would lead elsewhere from one level further down.
            return schema, False
    bare = {key: item for key, item in schema.items() if key not in kept}
    around: JsonObject = {"type": "object", "properties": {"value": bare}, "required": ["value"]}
    return {**around, **kept}, True


def _choose_fitting(schema: JsonObject) -> pydantic.TypeAdapter[Any]:
    """Return what takes a JSON value only if it fits a schema."""

    def check(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if found := list_problems(value, schema):
            raise ValueError("; ".join(found))
        return value

    return pydantic.TypeAdapter(Annotated[Any, pydantic.AfterValidator(check)])


def _describe(kind: Any) -> tuple[pydantic.TypeAdapter[Any], JsonObject]:  # noqa: ANN401 - any type
    adapter = pydantic.TypeAdapter(kind)
    return adapter, adapter.json_schema()


_known = functools.lru_cache(maxsize=128)(_describe)
"""Every run of an agent asks for the same type; describing it costs as much as a model call."""
