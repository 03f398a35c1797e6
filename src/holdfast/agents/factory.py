"""Make agents from checked configuration, with what their tools need put in.

A tool of an application often needs something: a database, a client, a clock. The factory
holds such services by type and the makers of tools by name, so that a configuration, which
is only data, can name tools that are code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, cast, get_type_hints

import pydantic
from pydantic import ConfigDict, Field

from holdfast.agents.definition import Agent, Mode, Rule
from holdfast.errors import AlreadyExists, NotFound, UsageError
from holdfast.providers import Model
from holdfast.sessions import PermissionRule
from holdfast.tools import Approver, Tool

T = TypeVar("T")
ToolMaker: TypeAlias = Callable[..., Tool]
"""Makes a tool; each parameter is a service, found by its type."""


class RuleConfig(pydantic.BaseModel):
    """One permission rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    permission: str = Field(min_length=1, max_length=200)
    pattern: str = Field(default="*", min_length=1, max_length=1_000)
    action: str = Field(default="ask", pattern="^(allow|ask|deny)$")


class AgentConfig(pydantic.BaseModel):
    """An agent as data; everything is checked before anything is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    description: str = Field(default="", max_length=2_000)
    mode: Mode = "primary"
    prompt: str = Field(default="", max_length=200_000)
    model: str = ""
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    steps: int = Field(default=50, ge=1, le=10_000)
    hidden: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    permission: tuple[RuleConfig, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    denied_tools: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = Field(
        default=None, description="Names of tools that the factory knows how to make."
    )


class AgentFactory:
    """Makes agents; knows services by type and makers of tools by name."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._services: dict[type, object] = {}
        self._makers: dict[str, ToolMaker] = {}

    def provide(self, kind: type[T], service: T) -> AgentFactory:
        """Put a service in, to be found by its type; returns the factory.

        Raises:
            UsageError: it is no instance of the type.
        """
        if not isinstance(service, kind):
            raise UsageError(detail=f"{service!r} is no {kind.__name__}.")
        self._services[kind] = service
        return self

    def service(self, kind: type[T]) -> T:
        """Return a service; raises NotFound."""
        if kind not in self._services:
            raise NotFound(kind="service", value=kind.__name__)
        return cast("T", self._services[kind])

    def offer(self, name: str, maker: Tool | ToolMaker) -> AgentFactory:
        """Make a tool, or the maker of one, available by name; returns the factory.

        Raises:
            AlreadyExists: the name is taken.
        """
        if name in self._makers:
            raise AlreadyExists(kind="tool", value=name)
        self._makers[name] = (lambda: maker) if isinstance(maker, Tool) else maker
        return self

    def create(self, config: AgentConfig | Mapping[str, object]) -> Agent:
        """Return the agent that a configuration describes.

        Raises:
            UsageError: the configuration is wrong; every mistake is named.
            NotFound: it names a tool or a maker needs a service that no caller put in.
        """
        checked = check_config(config)
        fields = checked.model_dump(exclude={"tools", "permission"})
        return Agent(
            **fields,
            permission=[PermissionRule(**rule.model_dump()) for rule in checked.permission],
            tools=None if checked.tools is None else [self._make(name) for name in checked.tools],
        )

    def builder(self, name: str) -> AgentBuilder:
        """Return a builder that makes its agent here."""
        return AgentBuilder(name, factory=self)

    def _make(self, name: str) -> Tool:
        maker = self._makers.get(name)
        if maker is None:
            raise NotFound(kind="tool", value=name)
        needed = [p for p in inspect.signature(maker).parameters.values() if p.default is p.empty]
        hints = get_type_hints(maker) if needed else {}
        missing = [p.name for p in needed if p.name not in hints]
        if missing:
            raise UsageError(
                detail=f"The maker of {name!r} must say the types of: {', '.join(missing)}."
            )
        made = maker(**{p.name: self.service(hints[p.name]) for p in needed})
        if not isinstance(made, Tool):
            raise UsageError(detail=f"The maker of {name!r} made {made!r}, which is no tool.")
        return made


class AgentBuilder:
    """Puts an agent together step by step; `build` checks everything at once."""

    def __init__(self, name: str, *, factory: AgentFactory | None = None) -> None:
        """Begin with a name."""
        self._config: dict[str, object] = {"name": name}
        self._rules: list[Rule] = []
        self._tools: list[Tool] = []
        self._code: dict[str, Any] = {}
        self._factory = factory or AgentFactory()

    def configure(self, **fields: object) -> AgentBuilder:
        """Set fields of `AgentConfig`."""
        self._config |= fields
        return self

    def model(self, model: str | Model) -> AgentBuilder:
        """Choose the model, by name or as an object."""
        if isinstance(model, str):
            return self.configure(model=model)
        self._code["model"] = model
        return self

    def rule(self, permission: str, action: str, pattern: str = "*") -> AgentBuilder:
        """Add a permission rule; the last that matches wins."""
        self._rules.append({"permission": permission, "pattern": pattern, "action": action})
        return self

    def tool(self, *tools: Tool | str) -> AgentBuilder:
        """Hand tools over, or name those that the factory makes."""
        self._tools += [one for one in tools if isinstance(one, Tool)]
        named = [one for one in tools if isinstance(one, str)]
        known = cast("tuple[str, ...] | None", self._config.get("tools")) or ()
        return self.configure(tools=(*known, *named))

    def output(self, kind: object) -> AgentBuilder:
        """Want the answer as a value of a type."""
        self._code["output"] = kind
        return self

    def approve(self, approver: Approver) -> AgentBuilder:
        """Say who answers when a call asks."""
        self._code["approve"] = approver
        return self

    def build(self) -> Agent:
        """Return the agent.

        Raises:
            UsageError: the configuration is wrong; every mistake is named.
            NotFound: a tool or a service is missing.
        """
        config = {**self._config, "permission": [dict(cast("Any", rule)) for rule in self._rules]}
        made = self._factory.create(config)
        tools = (*made.tools, *self._tools) if made.has_tools or self._tools else None
        return made.wrapped(**self._code, tools=tools)


def check_config(config: AgentConfig | Mapping[str, object]) -> AgentConfig:
    """Return a checked configuration.

    Raises:
        UsageError: it is wrong; every mistake is named.
    """
    if isinstance(config, AgentConfig):
        return config
    try:
        return AgentConfig.model_validate(dict(config))
    except pydantic.ValidationError as error:
        raise UsageError(detail=f"The agent cannot be made: {describe_faults(error)}") from error


def describe_faults(error: pydantic.ValidationError) -> str:
    """Return every mistake in one line, without the values that were given."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in one['loc']) or 'it'}: {one['msg']}" for one in found
    )
