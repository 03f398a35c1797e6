"""Structured output: the answer as a value of a type."""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable
from typing import Any

import pydantic

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError


class OutputType:
    """A type that an answer must fit."""

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - any type
        """Describe the type as a JSON schema.

        Raises:
            UsageError: pydantic cannot describe it.
        """
        try:
            self._adapter, schema = _known(kind) if isinstance(kind, Hashable) else _described(kind)
        except (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError) as error:
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


def _described(kind: Any) -> tuple[pydantic.TypeAdapter[Any], JsonObject]:  # noqa: ANN401 - any type
    adapter = pydantic.TypeAdapter(kind)
    return adapter, adapter.json_schema()


_known = functools.lru_cache(maxsize=128)(_described)
"""Every run of an agent asks for the same type; describing it costs as much as a model call."""
