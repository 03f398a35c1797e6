"""Structured output: the answer as a value of a type."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Hashable, Mapping
from typing import Annotated, Any

import pydantic

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.providers.json_schema import problems


class OutputType:
    """A type, or a JSON schema, that an answer must fit."""

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - any type
        """Describe the type as a JSON schema; a mapping is one already.

        Raises:
            UsageError: pydantic cannot describe it, or the schema has no JSON form.
        """
        try:
            if isinstance(kind, Mapping):
                schema = json.loads(json.dumps(dict(kind)))
                self._adapter = _fitting(schema)
            elif isinstance(kind, Hashable):
                self._adapter, schema = _known(kind)
            else:
                self._adapter, schema = _described(kind)
        except (pydantic.PydanticUserError, TypeError, ValueError, NameError) as error:
            raise UsageError(detail=f"The output type cannot be described: {error}") from error
        self.schema: JsonObject = copy.deepcopy(schema)
        self.name = getattr(kind, "__name__", "answer")

    def parse(self, text: str) -> object:
        """Return the value that a text holds; a fence around the JSON is forgiven.

        Raises:
            ValueError: it does not fit; the message says why, for the model.
        """
        stripped = text.strip()
        if stripped.startswith("```"):
            stripped = stripped.split("\n", 1)[-1].rsplit("```", 1)[0]
        value: object = self._adapter.validate_json(stripped)
        return value


def _fitting(schema: JsonObject) -> pydantic.TypeAdapter[Any]:
    """Return what takes a JSON value only if it fits a schema."""

    def check(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if found := problems(value, schema):
            raise ValueError("; ".join(found))
        return value

    return pydantic.TypeAdapter(Annotated[Any, pydantic.AfterValidator(check)])


def _described(kind: Any) -> tuple[pydantic.TypeAdapter[Any], JsonObject]:  # noqa: ANN401 - any type
    adapter = pydantic.TypeAdapter(kind)
    return adapter, adapter.json_schema()


_known = functools.lru_cache(maxsize=128)(_described)
"""Every run of an agent asks for the same type; describing it costs as much as a model call."""
