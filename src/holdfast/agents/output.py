"""Structured output: the answer as a value of a type."""

from __future__ import annotations

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
            self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
            self.schema: JsonObject = self._adapter.json_schema()
        except (pydantic.PydanticUserError, pydantic.errors.PydanticSchemaGenerationError) as error:
            raise UsageError(detail=f"The output type cannot be described: {error}") from error
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
