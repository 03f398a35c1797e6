"""Make the argument schema of a tool from the signature of its function.

Arguments are checked strictly, as JSON: `false` is no 0, "1" is no 1, an unknown name
is an error. Defaults stay with the function: an argument that is left out is not passed.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Never, NoReturn, NotRequired

import msgspec
import pydantic_core
from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from typing_extensions import TypedDict

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.tools.context import ToolContext
from holdfast.tools.dependencies import Need, is_injected, read_need
from holdfast.tools.docstrings import parse_docstring
from holdfast.tools.result import Parked, ToolResult

_MAX_FAULTS = 10


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """What a function says about itself: purpose, arguments, result."""

    purpose: str
    parameters: JsonObject
    output: JsonObject
    context_parameter: str
    injected: tuple[Need, ...] = ()
    """Parameters that the run fills by their types, and the model does not see."""
    needs: tuple[Need, ...] = ()
    """What the run must have been handed: for these, and for `deps` of the context."""
    adapter: TypeAdapter[dict[str, Any]]


def read_signature(
    function: Callable[..., object], name: str, local_names: Mapping[str, object] | None = None
) -> Signature:
    """Read a function's signature and docstring.

    Raises:
        UsageError: it is no function, a parameter has no type, cannot be passed by name, or
            its type has no JSON form; the message names it.
    """
    _check_function(function, name)
    hints = _read_hints(function, name, local_names or {})
    described = parse_docstring(inspect.getdoc(function)).arguments
    fields: dict[str, object] = {}
    defaults: dict[str, object] = {}
    context_parameter = ""
    injected: list[Need] = []
    needs: list[Need] = []
    for parameter in inspect.signature(function).parameters.values():
        _check_parameter(parameter, hints, name)
        hint = hints[parameter.name]
        if _is_context(hint):
            if context_parameter:
                raise UsageError(detail=f"Tool {name!r} takes two contexts; one is enough.")
            context_parameter = parameter.name
            needs += _list_context_needs(parameter.name, hint)
            continue
        if is_injected(hint):
            has_default = parameter.default is not inspect.Parameter.empty
            need = read_need(parameter.name, hint, has_default=has_default)
            injected.append(need)
            needs.append(need)
            continue
        if parameter.name in described and not _has_description(hint):
            hint = Annotated[hint, Field(description=described[parameter.name])]
        if parameter.default is not inspect.Parameter.empty:
            defaults[parameter.name] = parameter.default
            hint = NotRequired[hint]
        fields[parameter.name] = hint
    adapter = _make_adapter(fields, name)
    return Signature(
        purpose=parse_docstring(inspect.getdoc(function)).purpose,
        parameters=_describe_parameters(adapter, fields, defaults, name),
        output=_describe_output(hints.get("return", Any), name),
        context_parameter=context_parameter,
        injected=tuple(injected),
        needs=tuple(needs),
        adapter=adapter,
    )


def describe_faults(error: ValidationError) -> str:
    """Name what is wrong with the arguments of a call, each with its place."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False)[:_MAX_FAULTS]:
        place = ".".join(str(part) for part in fault["loc"]) or "arguments"
        got = "" if fault["type"] == "missing" else f" (got {_shorten(fault['input'])})"
        lines.append(f"{place}: {fault['msg']}{got}")
    return "; ".join(lines)


def _shorten(value: object) -> str:
    text = pydantic_core.to_json(value, fallback=str).decode(errors="replace")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_hints(
    function: Callable[..., object], name: str, local_names: Mapping[str, object]
) -> dict[str, Any]:
    target = inspect.unwrap(function)
    target = getattr(target, "__func__", target)
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, localns=dict(local_names), include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(
            detail=f"The type hints of tool {name!r} cannot be read: {error}"
        ) from error


def _is_context(hint: object) -> bool:
    """Whether a parameter is passed in rather than asked for; it may have None as its default."""
    hint = _strip_names(hint)
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kinds = [kind for kind in _list_kinds(hint) if kind is not type(None)] or [hint]
    kinds = [typing.get_origin(kind) or kind for kind in kinds]
    return all(isinstance(kind, type) and issubclass(kind, ToolContext) for kind in kinds)


def _list_context_needs(parameter: str, hint: object) -> list[Need]:
    """Return what `ToolContext[Shop]` says of the context's `deps`."""
    for kind in _list_kinds(hint):
        for asked in typing.get_args(kind):
            if asked is not Any and asked is not type(None):
                return [read_need(parameter, asked, has_default=False, is_marked=False)]
    return []


def _strip_names(hint: Any) -> Any:  # noqa: ANN401 - a type hint of any form
    """Return what a `type` statement has given a name to."""
    return getattr(hint, "__value__", hint)


def _list_kinds(hint: object) -> list[Any]:
    """Return what a hint joins with `|`, also where a `type` statement has given it a name."""
    hint = _strip_names(hint)
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return [hint]
    return [_strip_names(kind) for kind in typing.get_args(hint)]


def _check_function(function: object, name: str) -> None:
    """Refuse what is no function, or one whose body runs only after it has returned."""
    if isinstance(function, type):
        fault = "is a class; make an object of it first, or write a function"
    elif isinstance(function, classmethod):
        fault = "is a classmethod of no class yet; write tool(TheClass.method) below the class"
    elif isinstance(function, functools.partial):
        fault = "is a functools.partial; write a function with types that calls it"
    elif not callable(function):
        fault = f"is made of {function!r}, which is no function; options go by name"
    elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        fault = "yields its results; return a list, and report progress with the context"
    else:
        return
    raise UsageError(detail=f"Tool {name!r} {fault}.")


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, object], name: str) -> None:
    kind = parameter.kind
    if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        stars = "*" if kind is inspect.Parameter.VAR_POSITIONAL else "**"
        fault = f"takes {stars}{parameter.name}; a model can only fill named parameters"
    elif kind is inspect.Parameter.POSITIONAL_ONLY:
        fault = f"takes {parameter.name!r} by position only; a model passes names"
    elif parameter.name == "self" and "self" not in hints:
        fault = "is a method of no object yet; write tool(the_object.method) instead"
    elif parameter.name not in hints:
        fault = f"has no type for {parameter.name!r}; every parameter needs a type hint"
    elif isinstance(parameter.default, FieldInfo):
        fault = f"has Field() as the default of {parameter.name!r}; write Annotated[type, Field()]"
    elif _has_alias(hints[parameter.name]):
        fault = f"has an alias for {parameter.name!r}; a model passes the function's own names"
    else:
        return
    raise UsageError(detail=f"Tool {name!r} {fault}.")


def _has_description(hint: object) -> bool:
    extras = getattr(hint, "__metadata__", ())
    return any(isinstance(extra, FieldInfo) and extra.description for extra in extras)


def _has_alias(hint: object) -> bool:
    extras = getattr(hint, "__metadata__", ())
    return any(isinstance(extra, FieldInfo) and extra.validation_alias for extra in extras)


def _make_adapter(fields: dict[str, object], name: str) -> TypeAdapter[dict[str, Any]]:
    # A typed dictionary rather than a model: any parameter name is possible, and what
    # comes out is what the function is called with.
    make_type: Any = TypedDict
    try:
        arguments = make_type("Arguments", fields)
        arguments.__pydantic_config__ = ConfigDict(
            strict=True, extra="forbid", hide_input_in_errors=False, allow_inf_nan=False
        )
        return TypeAdapter(arguments)
    except (PydanticUserError, TypeError) as error:
        raise _explain_missing_form(name, fields, error) from error


def _explain_missing_form(name: str, hints: Mapping[str, object], error: Exception) -> UsageError:
    """Return the error about a type with no JSON form; it names the first that has none."""
    for parameter, hint in hints.items():
        try:
            make_type: Any = TypedDict
            TypeAdapter(make_type("Arguments", {parameter: hint})).json_schema()
        except (PydanticUserError, TypeError) as fault:
            told = str(fault).partition("\n")[0].partition(" Set `arbitrary_types")[0]
            return UsageError(
                detail=f"Tool {name!r} has a type with no JSON form for {parameter!r}: {told}"
            )
    return UsageError(detail=f"Tool {name!r} has a type with no JSON form: {error}")


class _PlainSchema(GenerateJsonSchema):
    """Leaves out titles that only repeat the name of a field or a class."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 - pydantic's own
        return False

    def get_title_from_name(self, name: str) -> str:
        return name


def _make_plain_schema(adapter: TypeAdapter[Any], mode: JsonSchemaMode) -> JsonObject:
    return _strip_titles(adapter.json_schema(schema_generator=_PlainSchema, mode=mode))


def _strip_titles(schema: JsonObject) -> JsonObject:
    schema.pop("title", None)
    for definition in schema.get("$defs", {}).values():
        definition.pop("title", None)
    return schema


def _describe_parameters(
    adapter: TypeAdapter[dict[str, Any]],
    fields: Mapping[str, object],
    defaults: Mapping[str, object],
    name: str,
) -> JsonObject:
    try:
        schema = _make_plain_schema(adapter, "validation")
    except PydanticUserError as error:
        raise _explain_missing_form(name, fields, error) from error
    schema.setdefault("properties", {})
    for parameter, default in defaults.items():
        try:
            value = pydantic_core.to_jsonable_python(default)
        except ValueError:
            continue  # a default without JSON form is the function's own business
        schema["properties"][parameter]["default"] = value
    return schema


def _describe_output(hint: Any, name: str) -> JsonObject:  # noqa: ANN401 - a type hint of any form
    if hint in (Any, Never, NoReturn):
        return {}
    # What a model reads of a result is its text.
    hint = functools.reduce(
        operator.or_, [str if kind in (ToolResult, Parked) else kind for kind in _list_kinds(hint)]
    )
    try:
        return _make_plain_schema(TypeAdapter(hint), "serialization")
    except PydanticUserError as error:
        try:
            return _strip_titles(msgspec.json.schema(hint))
        except TypeError:
            raise _explain_missing_form(name, {"return": hint}, error) from error
