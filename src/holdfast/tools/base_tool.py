"""BaseTool: a tool as a class to derive from, with `id`, `description`, `parameters`, `execute`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import AfterValidator, TypeAdapter

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.providers.json_schema import list_faults, list_problems
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.schema import Signature, read_signature


def _do_nothing() -> None:
    """Stand for a function that is not known yet."""


_NO_SIGNATURE = Signature(
    purpose="", parameters={}, output={}, context_parameter="", adapter=TypeAdapter(dict[str, Any])
)


class BaseTool(Tool, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """A tool as a class::

        class Calculator(BaseTool, frozen=True):
            id = "calculator"
            description = "Add two numbers."
            effect = "read"

            async def execute(self, a: float, b: float) -> float:
                return a + b

    `Calculator()` is a tool like any other; `frozen=True` is for type checkers. The schema comes from the types of `execute`. Where
    the class has `parameters` of its own, a JSON Schema or a method that returns one, `execute`
    takes the checked arguments as one dictionary, and the context if it wants it.
    """

    id: ClassVar[str] = ""
    name: str = ""
    function: Callable[..., object] = _do_nothing
    signature: Signature = _NO_SIGNATURE
    description: str = ""

    def __post_init__(self) -> None:
        """Make the tool of the class.

        Raises:
            UsageError: it has no `execute`, or no schema that could be met.
        """
        kind = type(self)
        execute = getattr(self, "execute", None)
        name = kind.id or kind.__name__
        if not callable(execute):
            raise UsageError(detail=f"Tool {name!r} has no `execute`.")
        own = inspect.getattr_static(kind, "parameters")
        if own is inspect.getattr_static(Tool, "parameters"):
            function, signature = execute, read_signature(execute, name)
        else:
            schema = own if isinstance(own, Mapping) else own.__get__(self, kind)
            schema = schema() if callable(schema) else schema
            function, signature = _take_arguments(execute, name, dict(schema))
        set_field = msgspec.structs.force_setattr
        set_field(self, "name", name)
        set_field(self, "function", function)
        set_field(self, "signature", signature)
        described = getattr(kind, "description", "")
        text = described if isinstance(described, str) else ""
        if not text:
            set_field(self, "description", signature.purpose or inspect.getdoc(kind) or name)
        super().__post_init__()


def _take_arguments(
    execute: Callable[..., object], name: str, schema: JsonObject
) -> tuple[Callable[..., object], Signature]:
    """Return a function that hands its arguments on as one dictionary, and its signature."""
    if found := list_faults(schema):
        raise UsageError(detail=f"Tool {name!r} has a wrong schema: {'; '.join(found)}")

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if problems := list_problems(value, schema):
            raise ValueError("; ".join(problems))
        return value

    wants_context = len(inspect.signature(execute).parameters) > 1

    async def call(*, holdfast_context: ToolContext, **arguments: Any) -> object:  # noqa: ANN401
        given = (arguments, holdfast_context) if wants_context else (arguments,)
        if inspect.iscoroutinefunction(execute):
            return await execute(*given)
        return await holdfast_context.threads.run(execute, *given)

    signature = Signature(
        purpose="",
        parameters=schema,
        output={},
        context_parameter="holdfast_context",
        adapter=TypeAdapter(Annotated[dict[str, Any], AfterValidator(check)]),
    )
    return call, signature


__all__ = ["BaseTool"]
