"""An agent: who it is, what it may do, and which model speaks for it."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    get_args,
    overload,
)

import msgspec
import pydantic

from holdfast.agents.instructions import Instructions, WrittenPart, read_instructions
from holdfast.agents.output import OutputT, OutputType
from holdfast.canonical import JsonObject
from holdfast.errors import DependencyMissing, UsageError
from holdfast.hooks import ExecutionContext
from holdfast.policy import FORBIDS_NOTHING, NO_BUDGET, QUESTIONS, Budget, RuleSet, name_matches
from holdfast.providers import Model
from holdfast.sessions import PermissionRule
from holdfast.tools import (
    Approver,
    DepsT,
    Need,
    Tool,
    check_needs,
    stands_for_builtin,
)

if TYPE_CHECKING:
    from holdfast.agents.as_tool import ToTask
    from holdfast.agents.result import AgentResult

_NAME = re.compile(r"(?=.*\S)[^/]{1,64}", re.DOTALL)
Mode: TypeAlias = Literal["primary", "subagent", "all"]
Sandbox: TypeAlias = Literal["read-only", "workspace-write", "filtered", "network"]
"""What an agent's commands may do: look at the workspace, or change it too."""
Rule: TypeAlias = PermissionRule | Mapping[str, str]
_Names: TypeAlias = tuple[str, ...]
Before: TypeAlias = Callable[[str], Any]
"""Takes the message of a run and returns the one to use; plain or `async`."""
After: TypeAlias = "Callable[[AgentResult], Any]"
"""Takes the result of a run and returns the one to give back; plain or `async`."""


class ToolReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a tool that an agent was given: its name, and the digest of its schema.

    One of a toolset is the built-in tool of its name, whatever schema that has.
    """

    name: str
    schema_hash: str
    is_builtin: bool = False


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an agent: everything but code, of which it names the tools.

    `tools` is `None` for an agent that was given none: its rules choose them.
    """

    name: str
    description: str = ""
    mode: Mode = "primary"
    permission: tuple[PermissionRule, ...] = ()
    native: bool = False
    hidden: bool = False
    model: str = ""
    prompt: str = ""
    temperature: float | None = None
    top_p: float | None = None
    steps: int = 50
    options: JsonObject = msgspec.field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()
    sandbox: Sandbox = "workspace-write"
    budget: Budget = NO_BUDGET
    tools: tuple[ToolReference, ...] | None = None
    deps: str = ""
    """The type of what its runs are handed, by its name."""
    is_written: bool = False
    """Whether functions write parts of its prompt; a process that lacks them cannot run it."""


_CODE_FIELDS = ("tools", "deps", "is_written")
_PLAIN_FIELDS = tuple(name for name in AgentRecord.__struct_fields__ if name not in _CODE_FIELDS)


class AgentFields(TypedDict, total=False):
    """What an agent takes besides its name, its output and its dependencies."""

    description: str
    mode: Mode
    permission: Sequence[Rule]
    native: bool
    hidden: bool
    model: str | Model
    prompt: str | Instructions
    temperature: float | None
    top_p: float | None
    steps: int
    options: JsonObject | None
    allowed_tools: Sequence[str]
    denied_tools: Sequence[str]
    sandbox: Sandbox
    tools: Sequence[Tool] | None
    budget: Budget | None
    approve: Approver | None


class Agent(Generic[OutputT, DepsT]):
    """A definition; `AgentRuntime` is what executes it.

    `permission` takes rules as objects or as `{"permission", "pattern", "action"}`; the last
    one that matches wins. `tools` are handed over in code, and are all that it has, also where
    the list is empty: each is thereby allowed, unless it asks by itself or a rule says otherwise.
    Without `tools` it has the registered and built-in tools that an allow or ask rule, or
    `allowed_tools`, matches; without either, none. `allowed_tools` leaves only these and
    `denied_tools` takes these away; neither lifts an ask.
    `budget` limits what each of its runs may spend. `output` is the type of the answer:
    a pydantic model, a dataclass, any type that pydantic can describe, or a JSON schema.
    `approve` answers when one of its calls asks.
    `prompt` is a text, or a function that returns one for each turn. `deps_type` is the type of
    what each run is handed as `deps`: tools and such functions ask for it by type.
    """

    @overload
    def __init__(
        self,
        name: str,
        *,
        output: type[OutputT] | None = None,
        deps_type: type[DepsT] | None = None,
        **fields: Unpack[AgentFields],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        *,
        output: object,
        deps_type: type[DepsT] | None = None,
        **fields: Unpack[AgentFields],
    ) -> None: ...

    def __init__(  # noqa: PLR0913, PLR0915 - the fields of an agent
        self,
        name: str,
        *,
        description: str = "",
        mode: Mode = "primary",
        permission: Sequence[Rule] = (),
        native: bool = False,
        hidden: bool = False,
        model: str | Model = "",
        prompt: str | Instructions = "",
        temperature: float | None = None,
        top_p: float | None = None,
        steps: int = 50,
        options: JsonObject | None = None,
        allowed_tools: Sequence[str] = (),
        denied_tools: Sequence[str] = (),
        sandbox: Sandbox = "workspace-write",
        tools: Sequence[Tool] | None = None,
        budget: Budget | None = None,
        output: object = None,
        approve: Approver | None = None,
        deps_type: type[DepsT] | None = None,
    ) -> None:
        """Check and keep the fields.

        Raises:
            UsageError: a field cannot be meant; the message says which.
        """
        self.name = name
        self.description = description
        self.mode = mode
        self.permission = tuple(_make_rule(rule, name) for rule in permission)
        self.native = native
        self.hidden = hidden
        self.model = model
        self.prompt = "" if callable(prompt) else prompt
        """The part of the prompt that is the same in every run."""
        self.written: tuple[WrittenPart, ...] = ()
        """Functions that write further parts, which stand at the end of the system prompt."""
        self.written_text = ""
        """What they wrote; empty but in the copy that a turn works with."""
        if callable(prompt):
            self.instructions(prompt)
        self.deps_type = deps_type
        self.required_deps = ""
        """The type of `deps` by its name, where the agent comes from its record."""
        self.lacks_instructions = False
        """Whether functions write its prompt that only the process has which registered it."""
        self.temperature = temperature
        self.top_p = top_p
        self.steps = steps
        self.options = _describe_options(options, name)
        self.allowed_tools = _list_names(allowed_tools, name)
        self.denied_tools = _list_names(denied_tools, name)
        self.sandbox = sandbox
        self.tools = _render_tools(tools, name) if tools is not None else ()
        """The tools that were handed to it in code."""
        self.has_tools = tools is not None
        """Whether it was given tools, if only an empty list: then it has no others."""
        self.required_tools: tuple[ToolReference, ...] = ()
        """Tools that it was given in the process that registered it; it needs them here too."""
        self.budget = budget or NO_BUDGET
        self.output = output
        self.approve = approve
        self._ruled: tuple[tuple[object, ...], RuleSet] | None = None
        self._before: tuple[Before, ...] = ()
        self._after: tuple[After, ...] = ()
        self.is_wrapped = False
        """Whether functions change its messages or results."""
        for fault in self._list_faults():
            raise UsageError(detail=f"Agent {name!r} {fault}.")

    def chooses(self, name: str, kind: str = "none") -> bool:
        """Say whether its rules, or `allowed_tools`, choose a tool by its name or its kind."""
        if any(name_matches(listed, name) for listed in self.allowed_tools):
            return True
        return any(
            rule.action != "deny" and name_matches(rule.permission, name, kind)
            for rule in self.permission
        )

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """All rules: the written ones, then those of `allowed_tools` and `denied_tools`."""
        return self.rule_set.every_rule

    @property
    def rule_set(self) -> RuleSet:
        """The same as one set: the same object for all runs, while nothing changes."""
        given = tuple(self.permission), tuple(self.allowed_tools), tuple(self.denied_tools)
        if self._ruled is None or self._ruled[0] != given:
            self._ruled = (given, _make_rule_set(*given))
        return self._ruled[1]

    def names(self, tool: str) -> bool:
        """Say whether a rule names a tool, rather than covering it by a wildcard."""
        return is_named(tool, self.rules)

    # --- what its runs are handed -----------------------------------------------------

    def instructions(self, function: Instructions) -> Instructions:
        """Let a function write a further part of the prompt; usable as a decorator.

        Its parameters are filled by their types: a `RunContext`, what the run was handed as
        `deps`, or a field of that. It is called with each turn; its text stands behind what is
        the same in every run.

        Raises:
            UsageError: a parameter has no type that it could be filled by.
        """
        self.written = (*self.written, read_instructions(function, self.name))
        return function

    def check_deps(
        self, deps: object, needs: Iterable[Need], execution: ExecutionContext | None = None
    ) -> None:
        """Return if a run that is handed `deps` has all that its prompt, and its tools, ask for.

        Raises:
            DependencyMissing: it has not; the error says what to pass.
            UsageError: `deps` has another type, or this process lacks the agent's instructions.
        """
        if self.lacks_instructions:
            raise UsageError(
                detail=f"Functions write the prompt of {self.name!r}, and this process lacks "
                "them: register the agent here too, or run it as an object."
            )
        wanted, kind = self.deps_type, type(deps)
        if deps is None and (wanted is not None or self.required_deps):
            name = self.required_deps or getattr(wanted, "__qualname__", str(wanted))
            raise DependencyMissing(agent=self.name, wanted=name, given="")
        if deps is not None and isinstance(wanted, type) and not isinstance(deps, wanted):
            raise UsageError(
                detail=f"Runs of {self.name!r} are handed a {wanted.__qualname__} as deps, "
                f"not a {kind.__qualname__}."
            )
        asked = [*needs, *(need for part in self.written for need in part.needs)]
        check_needs(self.name, asked, deps, execution)

    # --- composition ------------------------------------------------------------------

    def as_tool(
        self,
        *,
        name: str = "",
        description: str = "",
        input: type[pydantic.BaseModel] | None = None,
        to_task: ToTask | None = None,
    ) -> Tool:
        """Return a tool for other agents whose calls run this one, below the caller.

        Its argument is the `task`, or with an `input` model that model's fields; `to_task`
        makes the task of them, which is their JSON otherwise. Each call has a session of its
        own; after a crash a finished one is not repeated.
        """
        from holdfast.agents.as_tool import make_tool_from  # noqa: PLC0415 - it needs this class

        return make_tool_from(
            self, name=name, description=description, input=input, to_task=to_task
        )

    def wrapped(
        self,
        *,
        before: Before | None = None,
        after: After | None = None,
        **changes: Any,  # noqa: ANN401 - the fields of an agent
    ) -> Self:
        """Return an agent around this one: other fields, and functions before and after it.

        `before` gets the message and returns the one to use, `after` gets the result and
        returns the one to give back. `changes` replace fields, such as `name`, `model`,
        `prompt` or `tools`. Wrappers can be wrapped: the outermost `before` comes first and
        its `after` last.

        Raises:
            UsageError: a field cannot be meant.
        """
        fields = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        code = {name: getattr(self, name) for name in ("model", "output", "approve", "deps_type")}
        code["tools"] = self.tools if self.has_tools else None
        unknown = sorted(set(changes) - set(fields) - set(code))
        if unknown:
            raise UsageError(detail=f"An agent has no {', '.join(unknown)}.")
        made = type(self)(**{**fields, **code, "native": False, **changes})
        made._before = (*((before,) if before is not None else ()), *self._before)
        made._after = (*self._after, *((after,) if after is not None else ()))
        made.is_wrapped = bool(made._before or made._after)
        if "tools" not in changes:
            made.required_tools = self.required_tools
        if "prompt" not in changes:
            made.written = self.written
        made.required_deps, made.lacks_instructions = self.required_deps, self.lacks_instructions
        return made

    async def prepare(self, message: str) -> str:
        """Return a run's message as the wrappers want it."""
        for function in self._before:
            message = await _await_result(function(message))
        return message

    async def finish(self, result: AgentResult[OutputT]) -> AgentResult[OutputT]:
        """Return a run's result as the wrappers leave it."""
        for function in self._after:
            result = await _await_result(function(result))
        return result

    def to_record(self) -> AgentRecord:
        """Return what can be kept; of tools their names and schemas, of other code nothing."""
        kept = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        if not isinstance(self.model, str):
            kept["model"] = ""
        given: tuple[ToolReference, ...] | None = None
        if self.has_tools:
            given = (*self.required_tools, *map(_make_reference, self.tools))
        wanted = getattr(self.deps_type, "__qualname__", "") if self.deps_type else ""
        return AgentRecord(
            **kept,
            tools=given,
            deps=wanted or self.required_deps,
            is_written=bool(self.written) or self.lacks_instructions,
        )

    @classmethod
    def from_record(cls, record: AgentRecord) -> Agent:
        """Make an agent from what was kept; the tools that it was given must be found for it."""
        made = cls(
            **{name: getattr(record, name) for name in _PLAIN_FIELDS},
            tools=None if record.tools is None else (),
        )
        made.required_tools = record.tools or ()
        made.required_deps, made.lacks_instructions = record.deps, record.is_written
        return made

    def __repr__(self) -> str:
        """Name and mode."""
        return f"Agent({self.name!r}, mode={self.mode!r})"

    def _list_faults(self) -> list[str]:
        faults = []
        name: object = self.name
        if not (isinstance(name, str) and _NAME.fullmatch(name) and name.isprintable()):
            # A path of agents is told by its slashes: a name with one could pose as a path.
            faults.append("needs a name of at most 64 characters, none of them a slash")
        if self.mode not in get_args(Mode):
            faults.append(f"has the mode {self.mode!r}; it is one of {', '.join(get_args(Mode))}")
        if self.sandbox not in get_args(Sandbox):
            faults.append(f"has the sandbox {self.sandbox!r}; it is one of {get_args(Sandbox)}")
        for option in ("temperature", "top_p"):
            if not _is_number_or_none(value := getattr(self, option)):
                faults.append(f"has {option}={value!r}; it is a number")
        for option, kind in (("description", str), ("prompt", str), ("budget", Budget)):
            if not isinstance(value := getattr(self, option), kind):
                faults.append(f"has {option}={value!r}; it is a {kind.__name__}")
        if not isinstance(self.model, str) and not hasattr(self.model, "stream"):
            faults.append(f"has model={self.model!r}; it is a name or a Model")
        if self.approve is not None and not hasattr(self.approve, "approve"):
            faults.append(f"has approve={self.approve!r}, which has no method `approve`")
        if self.output is not None:
            OutputType(self.output)
        if type(self.steps) is not int or self.steps < 1:
            faults.append(f"has steps={self.steps!r}; it is a whole number, at least 1")
        given: tuple[object, ...] = self.tools
        faults += [_explain_no_tool(tool) for tool in given if not isinstance(tool, Tool)]
        return faults


def _explain_no_tool(given: object) -> str:
    """Say what was handed over in place of a tool, and how it becomes one."""
    if isinstance(given, str):
        advice = "built-in tools come in sets, as in *toolset('files:read')"
        return f"was given the name {given!r}, which is no tool; {advice}"
    if isinstance(given, Agent):
        return f"was given the agent {given.name!r}, which is no tool; hand over its .as_tool()"
    if callable(given):
        name = getattr(given, "__name__", type(given).__name__)
        return f"was given the function {name!r}, which is no tool; decorate it with @tool"
    return f"was given {given!r}, which is no tool; decorate a function with @tool"


class UnlimitedAgent(Agent):
    """What starts agents in a person's name, such as a workflow: it forbids nothing by itself."""

    @property
    def rule_set(self) -> RuleSet:
        """Rules that hold nothing back; those of the session and of agents above still do."""
        return FORBIDS_NOTHING


def is_named(tool: str, rules: Sequence[PermissionRule]) -> bool:
    """Say whether a rule names a tool, rather than covering it by a wildcard."""
    plain = tool.replace("_", "").casefold()
    return any(rule.permission.replace("_", "").casefold() == plain for rule in rules)


def _make_rule_set(
    permission: tuple[PermissionRule, ...], allowed_tools: _Names, denied_tools: _Names
) -> RuleSet:
    denied = [PermissionRule(permission=n, action="deny") for n in denied_tools]
    if not allowed_tools:
        return RuleSet(rules=(*permission, *denied))
    # A question is no tool: a list of tools leaves it, or it could not even be asked.
    left = [PermissionRule(permission=n, action="allow") for n in (*QUESTIONS, *allowed_tools)]
    closed = PermissionRule(permission="*", action="deny")
    only = RuleSet(rules=(closed, *left, *denied), is_filter=True)
    return RuleSet(rules=permission, also=(only,))


def _make_reference(tool: Tool) -> ToolReference:
    return ToolReference(
        name=tool.name, schema_hash=tool.schema_hash, is_builtin=stands_for_builtin(tool)
    )


def _is_number_or_none(value: object) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(cast(float, value)))


def _list_names(given: Sequence[str], agent: str) -> tuple[str, ...]:
    names: object = given
    is_list = isinstance(names, Sequence) and not isinstance(names, str)
    if not is_list or not all(isinstance(name, str) for name in given):
        raise UsageError(detail=f"Agent {agent!r} has {given!r} where a list of tools belongs.")
    return tuple(given)


def _render_tools(given: Sequence[Tool], agent: str) -> tuple[Tool, ...]:
    try:
        return tuple(given)
    except TypeError as error:
        detail = f"Agent {agent!r} has tools={given!r}; it is a list of tools."
        raise UsageError(detail=detail) from error


def _describe_options(given: JsonObject | None, agent: str) -> JsonObject:
    options: object = given or {}
    if not isinstance(options, Mapping):
        raise UsageError(detail=f"Agent {agent!r} has options={given!r}; it is an object.")
    return dict(options)


async def _await_result(value: Any) -> Any:  # noqa: ANN401 - whatever a wrapper returns
    return await value if inspect.isawaitable(value) else value


def _make_rule(rule: Rule, agent: str) -> PermissionRule:
    if isinstance(rule, PermissionRule):
        return rule
    try:
        return msgspec.convert(dict(rule), PermissionRule)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise UsageError(detail=f"Agent {agent!r} has a wrong permission rule: {error}") from error
