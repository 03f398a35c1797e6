"""RunRequest: everything that may be said when a run is asked for.

The caller that wants an agent to work says it with one of these: an application, the command line,
a tool call that delegates, a workflow's step, a loop, a trigger. What has to hold for what
resumes the run is kept with it, as a `KeptRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

import msgspec

from holdfast.agents.definition import Agent
from holdfast.agents.result import AgentResult, ChildPiece, Listener, hear_nothing
from holdfast.canonical import JsonObject, digest, hash_sha256
from holdfast.errors import NotFound, UsageError
from holdfast.messages import FilePart, Message, TextPart, ToolSpec, check_history
from holdfast.policy import NO_BUDGET, ON_ASK, Budget, OnAsk, compile_matcher, name_matches
from holdfast.providers import Model
from holdfast.sessions import ON_BUSY, NewSession, OnBusy
from holdfast.skills import Skill
from holdfast.tools import Approver, Tool

_LONGEST_TITLE = 60


OnOutage: TypeAlias = Literal["fail", "park"]
"""What becomes of a run when its model cannot be reached: it fails, or waits and goes on later."""
WAITING_FOR_MODEL = "waiting_for_model"
WAITING_FOR_MCP = "waiting_for_mcp"
"""How the reason begins for which such a run is parked; executed again, it goes on."""


class Starter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run, and if it was one the call, that started a run.

    `root` is the run at the top of the whole tree; `path` names the agents down to the
    starter.
    """

    session_id: str
    run_id: str = ""
    call_id: str = ""
    root: str = ""
    path: tuple[str, ...] = ()


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the client of a run brings: tools that it executes itself, and wishes for the answer.

    A call of one of its `tools` parks the run (`runs.waiting` shows it) until the client sends the
    result (`runs.answer_calls`). `instructions` stand behind the agent's own. What is `None` or
    empty is left to the agent.
    """

    tools: tuple[ToolSpec, ...] = ()
    instructions: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""
    output_schema: JsonObject | None = None
    output_name: str = "answer"
    tool_choice: str = "auto"
    """For the first step: `auto`, `none`, `required`, or the name of a tool."""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    """The client's own; kept with the run, and given back."""
    previous: str = ""
    """What the client's protocol calls the answer before; kept with the run, and given back."""
    is_background: bool = False
    """Whether the client left after it had begun the run."""


NO_CLIENT = ClientOptions()


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a request that is stored with its run: its limits above all.

    `None` for tools or skills means: all that the agent may use. An empty `model` is the
    agent's, or else the one of the settings; `options` are sent to the provider as they are.
    """

    on_ask: OnAsk = "deny"
    budget: Budget = NO_BUDGET
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    starter: Starter | None = None
    """Who started the run; `None` if a person did."""
    model: str = ""
    options: JsonObject = msgspec.field(default_factory=dict)
    on_outage: OnOutage = "fail"
    message_hash: str = ""
    """Of the message as it was given, where wrappers of the agent changed it."""
    files_hash: str = ""
    """Of the files that came with the message."""
    client: ClientOptions = NO_CLIENT
    queue: str = ""
    """Workers of which queue execute it; empty for all that serve no queue in particular."""
    priority: int = 0
    """What waits with a higher number is taken first."""

    def to_options(self) -> JsonObject:
        """Return it as the options of a queued run; empty if nothing is limited."""
        options: JsonObject = msgspec.to_builtins(self)
        return options

    @classmethod
    def of(cls, options: JsonObject) -> KeptRequest:
        """Read it from the options of a queued run."""
        return msgspec.convert(options, cls) if options else UNLIMITED


UNLIMITED = KeptRequest()
"""No limits but those of agent, session and operator."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run request: one run that is asked for.

    An empty `agent` means the session's own, an empty `session_id` a new session. The same
    `run_id` again returns the finished result, or resumes what was interrupted. `tool_ids`
    and `skill_names` leave nothing else to the run; `None` leaves everything. `starter` is
    the run that asks, and `approver` answers in its name where the agent has none of its own.
    A `new_session` begins together with the run, with `state` in it. `hear_children` is told
    what the runs do that this one starts, directly or through others.
    """

    message: str
    agent: str | Agent = ""
    session_id: str = ""
    run_id: str = ""
    options: JsonObject = msgspec.field(default_factory=dict)
    model: str | Model = ""
    on_ask: OnAsk = "deny"
    on_outage: OnOutage = "fail"
    budget: Budget | None = None
    on_busy: OnBusy | None = None
    """What it does while another turn is under way; `None` as the settings say."""
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    state: JsonObject = msgspec.field(default_factory=dict)
    starter: Starter | None = None
    approver: Approver | None = None
    new_session: NewSession | None = None
    hear_children: Callable[[ChildPiece], None] | None = None
    content: tuple[TextPart | FilePart, ...] = ()
    """The message as parts, in order, where it has more than a text; `message` is their text."""
    history: tuple[Message, ...] = ()
    """What a session begins with that begins together with the run."""
    deps: object = None
    """What tools and instructions ask for by type; never kept."""
    client: ClientOptions = NO_CLIENT
    must_repeat: bool = False
    """Whether a message must be the one with which the run of this `run_id` began."""

    @property
    def place(self) -> str:
        """The id of the session that it is meant for, as far as it is known."""
        return self.new_session.id if self.new_session is not None else self.session_id

    @property
    def files_hash(self) -> str:
        """A digest of the files of the message; empty if there are none."""
        files = [part for part in self.content if isinstance(part, FilePart)]
        if not files:
            return ""
        return digest(
            [
                [file.media_type, file.name, file.url, hash_sha256(file.data or b"")]
                for file in files
            ]
        )

    @property
    def agent_name(self) -> str:
        """The name of the agent, empty for the session's own."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    def check(self) -> None:
        """Refuse what cannot be meant, before anything happens.

        Raises:
            UsageError: a field is of another type, or none of its choices.
        """
        # As a caller without a type checker may have given them.
        message: object = self.message
        agent: object = self.agent
        session_id: object = self.session_id
        budget: object = self.budget
        wrong = ""
        if not isinstance(message, str):
            wrong = f"The message of a run is a text, not {message!r:.80}."
        elif not isinstance(agent, str | Agent):
            wrong = f"{agent!r:.80} is neither an Agent nor a name."
        elif not isinstance(session_id, str):
            wrong = f"A session is named by its id, not {session_id!r:.80}."
        elif not isinstance(self.model, str) and not hasattr(self.model, "stream"):
            wrong = f"{self.model!r:.80} is neither a Model nor the name of one."
        elif self.on_ask not in ON_ASK:
            wrong = f"on_ask is one of {', '.join(ON_ASK)}."
        elif self.on_busy is not None and self.on_busy not in ON_BUSY:
            wrong = f"on_busy is one of {', '.join(ON_BUSY)}."
        elif budget is not None and not isinstance(budget, Budget):
            wrong = f"A budget is a Budget, not {budget!r:.80}."
        elif self.history and self.place:
            wrong = "`history` begins a new session; leave the session out."
        elif self.options and not _is_json_object(self.options):
            wrong = f"Options are an object that JSON can hold, not {self.options!r:.80}."
        if wrong:
            raise UsageError(detail=wrong)
        if self.history:
            check_history(self.history)

    def check_names(self, tools: Iterable[Tool], skills: Iterable[Skill]) -> None:
        """Return if the tools and skills that are left to the run are there.

        Raises:
            NotFound: there is no tool or skill of a name, nor one that a pattern fits.
        """
        known = [(tool.name, tool.target_kind) for tool in tools]
        for wanted in self.tool_ids or ():
            if not any(name_matches(wanted, name, kind) for name, kind in known):
                raise NotFound(kind="tool", value=wanted)
        # What a call hands on was looked up when its own run began, and may be gone since.
        is_inherited = self.starter is not None and bool(self.starter.call_id)
        offered = [skill.name for skill in skills]
        for wanted in () if is_inherited else self.skill_names or ():
            if not any(map(compile_matcher(wanted, "text"), offered)):
                raise NotFound(kind="skill", value=wanted)

    def keep(self, agent: Agent, starter: Starter | None) -> KeptRequest:
        """Return what is stored with the run; `starter` where the request names none."""
        # What is stored is the message that an agent's wrappers made of this one.
        is_other = agent.is_wrapped and self.run_id and self.must_repeat
        return KeptRequest(
            message_hash=hash_sha256(self.message.encode()) if is_other else "",
            budget=self.budget or NO_BUDGET,
            tool_ids=self.tool_ids,
            skill_names=self.skill_names,
            starter=self.starter or starter,
            model=self.model if isinstance(self.model, str) else "",
            options=self.options,
            on_outage=self.on_outage,
            files_hash=self.files_hash if self.content else "",
            client=self.client,
        )


class RunExecutor(Protocol):
    """Executes runs; `runtime.RunService` is one."""

    async def execute(self, request: RunRequest, listener: Listener = hear_nothing) -> AgentResult:
        """Execute a run, or resume it, and return its result, failures included.

        Raises:
            NotFound: there is no such agent or session.
        """
        ...

    async def get_agent(self, name: str) -> Agent | None:
        """Return an agent by name, `None` if there is none."""
        ...


def make_title(message: str) -> str:
    """Return what a session is called that begins with a message."""
    return " ".join(message.split())[:_LONGEST_TITLE] or "A run without words"


def _is_json_object(options: object) -> bool:
    try:
        msgspec.json.encode(options)
    except (TypeError, ValueError):
        return False
    return isinstance(options, dict)


__all__ = [
    "NO_CLIENT",
    "UNLIMITED",
    "WAITING_FOR_MCP",
    "WAITING_FOR_MODEL",
    "ClientOptions",
    "KeptRequest",
    "OnOutage",
    "RunExecutor",
    "RunRequest",
    "Starter",
    "make_title",
]
