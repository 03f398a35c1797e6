"""A tool: a typed function, and what everybody else must know about it."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, get_args, overload

import msgspec
import pydantic_core
from pydantic import ValidationError

from holdfast.canonical import JsonObject, digest, hash_sha256
from holdfast.errors import HoldfastError, TellModel, ToolError, ToolInputInvalid, UsageError
from holdfast.messages import ToolSpec
from holdfast.sandbox import Workspace
from holdfast.tools.context import ToolContext
from holdfast.tools.dependencies import fill
from holdfast.tools.effects import Effect, Intent, Reconciliation
from holdfast.tools.labels import LABELS, Label
from holdfast.tools.result import Outcome, Parked, ToolResult
from holdfast.tools.schema import Signature, describe_faults, read_signature
from holdfast.tools.target import NO_TARGET, Target, TargetKind, make_text_target

Permission: TypeAlias = Literal["allow", "ask", "deny"]
Prepare: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[JsonObject]]
Preview: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[str]]
Reconcile: TypeAlias = Callable[[Intent, ToolContext], Awaitable[Reconciliation]]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_VERSION = re.compile(r"\d+(\.\d+){0,3}(-[0-9A-Za-z.-]+)?")
DEFAULT_TIMEOUT_S = 120.0
_encode = msgspec.json.Encoder().encode


class ToolOptions(TypedDict, total=False):
    """What `@tool` takes; everything has a default."""

    name: str
    """The function's name unless given."""
    version: str
    description: str
    """The docstring without its argument section unless given."""
    effect: Effect
    """`unsafe` unless you know better."""
    permission: Permission
    """What happens when no rule speaks of the tool: allow (you handed it over), ask, deny."""
    target: str | Target
    """The argument (or more exactly, a Target) that says what the call touches."""
    examples: Sequence[JsonObject]
    tags: Sequence[str]
    deprecated: str
    """What to use instead; empty for a tool in good standing."""
    timeout_s: float
    cacheable: bool
    """Whether a `read` tool's result may be reused for equal arguments."""
    labels: Sequence[Label]
    """What results may hold: `untrusted` if strangers wrote it, `private` if they must not
    learn it."""
    egress: bool
    """Whether arguments leave the machine; asks once both kinds were read."""
    reconcile: Reconcile
    prepare: Prepare
    preview: Preview
    """Says what a call would change, such as a diff, before a person consents to it."""


class Tool(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """A frozen definition; the execution manager is what calls it.

    Calling the tool itself calls the plain function, for your own tests and code.
    """

    name: str
    function: Callable[..., object]
    signature: Signature
    description: str
    version: str = "1.0.0"
    effect: Effect = "unsafe"
    permission: Permission = "allow"
    target: Target = NO_TARGET
    examples: tuple[JsonObject, ...] = ()
    tags: tuple[str, ...] = ()
    deprecated: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    cacheable: bool = False
    labels: tuple[Label, ...] = ()
    egress: bool = False
    reconcile: Reconcile | None = None
    prepare: Prepare | None = None
    preview: Preview | None = None

    def __post_init__(self) -> None:
        """Refuse a definition that cannot work, before any caller calls it."""
        for fault in self._list_faults():
            raise UsageError(detail=f"Tool {self.name!r} {fault}.")

    @classmethod
    def from_function(
        cls,
        function: Callable[..., object],
        *,
        local_names: Mapping[str, object] | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """Make a tool of a function, a bound method or an object with `__call__`.

        `local_names` helps to find types that are defined inside a function.

        Raises:
            UsageError: the signature or an option cannot work; the message says why.
        """
        if isinstance(function, Tool):
            raise UsageError(detail=f"Tool {function.name!r} is a tool already.")
        name = options.get("name") or _choose_default_name(function)
        signature = read_signature(function, name, local_names)
        description = options.get("description") or signature.purpose
        if not description:
            description = name.replace("_", " ")
            warnings.warn(
                f"The tool {name!r} has no docstring: a model knows it by its name alone.",
                stacklevel=_count_caller_depth(),
            )
        target = options.get("target", NO_TARGET)
        if isinstance(target, str):
            if target not in signature.parameters["properties"]:
                raise UsageError(detail=f"Tool {name!r} has no argument {target!r} as its target.")
            target = make_text_target(target)
        others: dict[str, Any] = {
            key: value
            for key, value in options.items()
            if key not in ("name", "description", "target")
        }
        for key in ("examples", "tags", "labels"):
            if isinstance(value := others.get(key, ()), str) or not isinstance(value, Iterable):
                raise UsageError(detail=f"Tool {name!r} has {key}={value!r}; it is a list.")
            others[key] = tuple(value)
        if unknown := sorted(set(options) - set(ToolOptions.__annotations__)):
            known = ", ".join(ToolOptions.__annotations__)
            raise UsageError(detail=f"Tool {name!r} has no option {unknown[0]!r}; it has {known}.")
        return cls(
            name=name,
            function=function,
            signature=signature,
            description=description,
            target=target,
            **others,
        )

    # --- for the model, rules and people --------------------------------------------

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        text = self.description
        if self.deprecated:
            text += f"\n\nDeprecated: {self.deprecated}"
        parameters = dict(self.signature.parameters)
        if self.examples:
            parameters["examples"] = list(self.examples)
        return ToolSpec(name=self.name, description=text, parameters=parameters)

    @property
    def parameters(self) -> JsonObject:
        """The JSON Schema of the arguments."""
        return self.spec.parameters

    @property
    def output_schema(self) -> JsonObject:
        """The JSON Schema of the result; empty when the function does not say."""
        return self.signature.output

    @property
    def target_kind(self) -> TargetKind:
        """What kind of thing the tool touches."""
        return self.target.kind

    def targets(self, arguments: Mapping[str, Any], workspace: Workspace) -> tuple[str, ...]:
        """What a call with these arguments touches; permission patterns match this."""
        try:
            return self.target.of(arguments, workspace)
        except (TellModel, HoldfastError):
            raise
        except Exception as error:
            detail = f"it cannot say what it touches ({type(error).__name__})"
            raise ToolError(tool=self.name, detail=detail) from error

    @functools.cached_property
    def source_hash(self) -> str:
        """A hash of the function's source and of the definition, for provenance."""
        declared = [self.name, self.version, self.effect, self.spec.parameters, self.description]
        return digest([hash_sha256(_render_source(self.function)), declared])

    @functools.cached_property
    def schema_hash(self) -> str:
        """A digest of the arguments' schema: what an agent that was given the tool relies on."""
        return digest(self.signature.parameters)

    @functools.cached_property
    def provenance(self) -> JsonObject:
        """What every result of the tool says about where it comes from."""
        said: JsonObject = {"tool_version": self.version, "source_hash": self.source_hash}
        return {**said, "labels": list(self.labels)} if self.labels else said

    # --- for the execution manager --------------------------------------------------

    def validate(self, arguments: JsonObject) -> dict[str, Any]:
        """Return typed keyword arguments; nothing has happened yet.

        Raises:
            ToolInputInvalid: they do not fit the schema; every fault is named.
        """
        try:
            data = _encode(arguments)
            # The adapter's own method first looks whether its types are known; here they are.
            values: dict[str, Any] = self.signature.adapter.validator.validate_json(
                data, strict=True
            )
        except ValidationError as error:
            raise ToolInputInvalid(tool=self.name, detail=describe_faults(error)) from error
        except (TypeError, ValueError, RecursionError) as error:
            raise ToolInputInvalid(tool=self.name, detail="they are no JSON object") from error
        return values

    async def call(self, values: Mapping[str, Any], context: ToolContext) -> Outcome:
        """Call the function with validated values: on the loop, or in a thread if it is `def`.

        Neither permission nor time is checked here; that is the manager's part.

        Raises:
            TellModel, ToolError, or whatever the function raises.
        """
        signature = self.signature
        parameter = signature.context_parameter
        passed = {**values, parameter: context} if parameter else values
        if signature.injected:
            passed = {**passed, **fill(signature.injected, context.deps, context.execution)}
        returned: Any
        if self.is_async:
            returned = await cast("Awaitable[object]", self.function(**passed))
        else:
            returned = await context.threads.run(self.function, **passed)
            # A decorator may hide an `async def`.
            if self._wraps_async and inspect.isawaitable(returned):
                returned = await returned
        return to_outcome(returned, self.name)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function runs on the loop."""
        return _is_async(self.function)

    @functools.cached_property
    def _wraps_async(self) -> bool:
        """Whether a decorator hides an `async def`, so that a call may return a coroutine."""
        return inspect.iscoroutinefunction(inspect.unwrap(self.function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
        """Call the plain function."""
        return self.function(*args, **kwargs)

    def _list_faults(self) -> list[str]:
        return self._list_type_faults() or self._list_value_faults()

    def _list_type_faults(self) -> list[str]:
        """Say what a type checker would have said, to those who use none."""
        faults = []
        for option in ("name", "version", "description", "deprecated"):
            if not isinstance(value := getattr(self, option), str):
                faults.append(f"has {option}={value!r}; it is a text")
        for option, words in (("effect", get_args(Effect)), ("permission", get_args(Permission))):
            if (value := getattr(self, option)) not in words:
                faults.append(f"has {option}={value!r}; there are {', '.join(words)}")
        for label in self.labels:
            if label not in LABELS:
                faults.append(f"has the label {label!r}; there are {', '.join(LABELS)}")
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float):
            faults.append(f"has timeout_s={self.timeout_s!r}; it is a number of seconds")
        for option in ("reconcile", "prepare", "preview"):
            function = getattr(self, option)
            if function is not None and not _is_async(function):
                faults.append(f"needs an `async def` as its {option} function")
        return faults

    def _list_value_faults(self) -> list[str]:
        faults = []
        if not _NAME.fullmatch(self.name):
            faults.append("needs a name of letters, digits, `_` and `-`, at most 64")
        if not _VERSION.fullmatch(self.version):
            faults.append(f"has the version {self.version!r}; write it as in 1.2.0")
        if (self.effect == "reconcile") != (self.reconcile is not None):
            faults.append("needs effect='reconcile' and a reconcile function together")
        if self.cacheable and self.effect != "read":
            faults.append("can only be cacheable if its effect is 'read'")
        if not 0 < self.timeout_s < math.inf:
            faults.append("needs a timeout above 0 s")
        for example in self.examples:
            try:
                self.validate(example)
            except ToolInputInvalid as error:
                faults.append(f"has an example that does not fit: {error.context['detail']}")
        return faults


@overload
def tool(function: Callable[..., object], /) -> Tool: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., object]], Tool]: ...


def tool(
    function: Callable[..., object] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., object]], Tool]:
    """Make a tool of a typed function: `@tool` or `@tool(effect="read", …)`.

    The schema comes from the type hints and the docstring. `def` runs in a thread,
    `async def` on the loop. See `ToolOptions` for what it takes.

    Raises:
        UsageError: a parameter has no type, or an option cannot work.
    """
    local_names = dict(sys._getframe(1).f_locals)

    def make(function: Callable[..., object]) -> Tool:
        return Tool.from_function(function, local_names=local_names, **options)

    return make(function) if function is not None else make


def to_outcome(value: object, tool: str) -> Outcome:
    """Turn whatever a tool function returned into an outcome.

    Text stays text, None becomes empty, everything else becomes JSON: pydantic models,
    dataclasses, msgspec structs, enums, dates, lists and dictionaries.

    Raises:
        ToolError: the value has no JSON form.
    """
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, ToolResult | Parked):
        return value
    if value is None:
        return ToolResult("")
    try:
        return ToolResult(
            pydantic_core.to_json(value, fallback=_convert_struct, bytes_mode="base64").decode()
        )
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolError(
            tool=tool, detail=f"it returned a {type(value).__name__}, which has no JSON form"
        ) from error


def _convert_struct(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _is_async(function: object) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - it is known to be callable
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _count_caller_depth() -> int:
    """How far above the function that warns the code stands that defines the tool."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame, depth = frame.f_back, depth + 1
    return depth


def _choose_default_name(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", "") or type(function).__name__
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return name if hasattr(function, "__name__") else snake.removesuffix("_tool")


def _render_source(function: Callable[..., object]) -> bytes:
    target = function if inspect.isroutine(function) else type(function)
    try:
        return inspect.getsource(target).encode()
    except (OSError, TypeError):
        code = getattr(target, "__code__", None)
        return code.co_code + repr(code.co_consts).encode() if code else repr(target).encode()
