"""Templates: agents for common jobs, to be filled in and run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Protocol

import pydantic
from pydantic import ConfigDict, Field

from holdfast.agents.definition import Agent
from holdfast.agents.factory import describe_faults
from holdfast.agents.output import OutputT
from holdfast.agents.result import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, UsageError
from holdfast.messages import TokenUsage
from holdfast.providers import PriceList

_LOOKING = ("read", "grep", "glob", "list", "ast_grep_search", "lsp")
_WEB = ("webfetch", "websearch", "codesearch")
Text = Annotated[str, Field(min_length=1, max_length=20_000)]
Paths = Annotated[list[str], Field(min_length=1, max_length=100)]


class Parameters(pydantic.BaseModel):
    """What a template wants to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """What a job of this kind usually takes: model calls and tokens of each."""

    calls: int
    input_tokens: int
    """Of the first call; each later one has what was added since."""
    added_tokens: int
    output_tokens: int


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """A rough guess before anything is spent; `cost_usd` is None where no price is known."""

    model: str
    calls: int
    usage: TokenUsage
    cost_usd: float | None


class ExecutesAgents(Protocol):
    """What a template works with; `AsyncClient` is one."""

    @property
    def execute_agent(self) -> Callable[..., Coroutine[Any, Any, AgentResult[Any]]]:
        """Run an agent on a message in a session and return its result."""
        ...


@dataclass(frozen=True, kw_only=True)
class Template(Generic[OutputT]):
    """An agent for a kind of job, and the words with which the job is given."""

    name: str
    title: str
    description: str
    category: str
    parameters: type[Parameters]
    prompt: str
    task: Callable[[Any], str]
    tools: tuple[str, ...] = ()
    steps: int = 50
    effort: Effort
    version: str = "1.0.0"

    output: type[OutputT] | None = None
    """The type of the answer; text unless given."""

    async def execute(
        self,
        client: ExecutesAgents,
        values: Mapping[str, object],
        *,
        model: str = "",
        session_id: str = "",
        run_id: str = "",
    ) -> AgentResult[OutputT]:
        """Do the job: check the parameters, run the agent of this template, return its result.

        Raises:
            UsageError: the parameters do not fit the schema; nothing was executed.
        """
        message = self.message(values)
        agent = self.agent(model=model)
        return await client.execute_agent(agent, session_id, message, run_id=run_id)

    @property
    def schema(self) -> JsonObject:
        """The JSON Schema of the parameters."""
        return self.parameters.model_json_schema()

    def check(self, values: Mapping[str, object]) -> Parameters:
        """Return checked parameters.

        Raises:
            UsageError: they do not fit the schema; every mistake is named.
        """
        try:
            return self.parameters.model_validate(dict(values))
        except pydantic.ValidationError as error:
            detail = f"The template {self.name!r} cannot be run: {describe_faults(error)}"
            raise UsageError(detail=detail) from error

    def agent(self, *, model: str = "") -> Agent[OutputT, Any]:
        """Return the agent of this template."""
        return Agent(
            self.name,
            description=self.description,
            prompt=self.prompt,
            model=model,
            steps=self.steps,
            output=self.output,
            permission=[{"permission": name, "action": "allow"} for name in self.tools],
            allowed_tools=self.tools,
        )

    def message(self, values: Mapping[str, object]) -> str:
        """Return the job as the agent gets it; raises UsageError."""
        return self.task(self.check(values))

    def estimate(self, model: str, values: Mapping[str, object] | None = None) -> CostEstimate:
        """Return what a run would roughly use and cost; asks no model."""
        words = len(self.message(values)) // 4 if values is not None else 0
        effort, calls = self.effort, self.effort.calls
        later = effort.added_tokens * (calls * (calls - 1) // 2)
        usage = TokenUsage(
            input=calls * (effort.input_tokens + words) + later,
            output=calls * effort.output_tokens,
        )
        provider, _, name = model.rpartition(":")
        cost = PriceList().cost_usd(usage, provider=provider, model=name)
        return CostEstimate(model=model, calls=calls, usage=usage, cost_usd=cost)


class ChatParameters(Parameters):
    """For `chat`."""

    message: Text = Field(description="What you want to say")
    language: str = Field(default="", max_length=40, description="Language of the answer")


class ResearchParameters(Parameters):
    """For `research`."""

    question: Text = Field(description="What is to be found out")
    depth: Literal["quick", "normal", "thorough"] = "normal"


class CodeParameters(Parameters):
    """For `code`."""

    task: Text = Field(description="What is to be changed or written")
    check: str = Field(default="", max_length=500, description="Command that must pass afterwards")


class ReviewParameters(Parameters):
    """For `code-review`."""

    target: Text = Field(description="What to review: files, a folder, a change")
    focus: str = Field(default="", max_length=500, description="What matters most")


class DataParameters(Parameters):
    """For `data-analysis`."""

    files: Paths = Field(description="Data files in the workspace")
    question: Text = Field(description="What the data shall answer")


class DocumentParameters(Parameters):
    """For `documents`."""

    files: Paths = Field(description="Documents in the workspace")
    task: Text = Field(description="Summarise, compare, extract, …")
    output: str = Field(default="", max_length=500, description="File for the result")


class OrchestratorParameters(Parameters):
    """For `orchestrator`."""

    goal: Text = Field(description="What shall be reached in the end")
    agents: list[str] = Field(
        default_factory=lambda: ["general", "explore"], description="Agents to hand work to"
    )


def _chat(given: ChatParameters) -> str:
    return given.message + (f"\n\nAnswer in {given.language}." if given.language else "")


def _format_research(given: ResearchParameters) -> str:
    how = {"quick": "One or two sources are enough.", "normal": "Compare several sources."}
    return f"Research: {given.question}\n\n{how.get(given.depth, 'Leave no source unread.')}"


def _format_code(given: CodeParameters) -> str:
    check = f"\n\nAfterwards this must pass: {given.check}" if given.check else ""
    return f"{given.task}{check}"


def _review(given: ReviewParameters) -> str:
    return f"Review {given.target}." + (f"\n\nMost important: {given.focus}" if given.focus else "")


def _format_data(given: DataParameters) -> str:
    return f"Files: {', '.join(given.files)}\n\nQuestion: {given.question}"


def _format_documents(given: DocumentParameters) -> str:
    target = f"\n\nWrite the result to {given.output}." if given.output else ""
    return f"Documents: {', '.join(given.files)}\n\n{given.task}{target}"


def _orchestrate(given: OrchestratorParameters) -> str:
    return f"Goal: {given.goal}\n\nAgents that you can hand work to: {', '.join(given.agents)}."


_TEMPLATES = (
    Template(
        name="chat",
        title="Chat",
        description="Talks; uses no tools.",
        category="conversation",
        parameters=ChatParameters,
        prompt="Answer helpfully and briefly. Say so when you do not know something.",
        task=_chat,
        effort=Effort(calls=1, input_tokens=300, added_tokens=0, output_tokens=400),
    ),
    Template(
        name="research",
        title="Research",
        description="Answers a question from sources and names them.",
        category="knowledge",
        parameters=ResearchParameters,
        prompt="You research. Look at several independent sources, keep apart what they say and "
        "what you conclude, name the source of every claim, and say what stays open.",
        task=_format_research,
        tools=(*_LOOKING, *_WEB, "todoread", "todowrite"),
        effort=Effort(calls=12, input_tokens=3_000, added_tokens=2_500, output_tokens=400),
    ),
    Template(
        name="code",
        title="Code",
        description="Changes code and checks the result.",
        category="software",
        parameters=CodeParameters,
        prompt="You write code. Read before you change, follow the style that is there, keep "
        "changes small, run the checks, and report what you changed and what you could not check.",
        task=_format_code,
        tools=(*_LOOKING, "edit", "multiedit", "write", "bash", "todoread", "todowrite"),
        effort=Effort(calls=20, input_tokens=4_000, added_tokens=1_800, output_tokens=500),
    ),
    Template(
        name="code-review",
        title="Code review",
        description="Reads code and reports faults; changes nothing.",
        category="software",
        parameters=ReviewParameters,
        prompt="You review code and change nothing. Report only what you have verified in the "
        "code: the place, what goes wrong and when, and how to mend it; worst first. Say what "
        "you did not look at.",
        task=_review,
        tools=_LOOKING,
        effort=Effort(calls=12, input_tokens=3_500, added_tokens=2_500, output_tokens=400),
    ),
    Template(
        name="data-analysis",
        title="Data analysis",
        description="Answers questions about data files.",
        category="data",
        parameters=DataParameters,
        prompt="You analyse data. Look at form and quality first, compute rather than guess, "
        "show how each figure came about, and name what the data cannot say.",
        task=_format_data,
        tools=("read", "grep", "glob", "list", "calculator", "bash"),
        effort=Effort(calls=10, input_tokens=3_000, added_tokens=2_000, output_tokens=400),
    ),
    Template(
        name="documents",
        title="Documents",
        description="Summarises, compares or extracts from documents.",
        category="knowledge",
        parameters=DocumentParameters,
        prompt="You work with documents. Stay with what they say, quote exactly where words "
        "matter, and name document and place of everything you report.",
        task=_format_documents,
        tools=("read", "grep", "glob", "list", "write"),
        effort=Effort(calls=8, input_tokens=2_500, added_tokens=3_000, output_tokens=500),
    ),
    Template(
        name="orchestrator",
        title="Orchestrator",
        description="Parts a goal into tasks and hands them to other agents.",
        category="coordination",
        parameters=OrchestratorParameters,
        prompt="You coordinate. Part the goal into tasks that can be checked, hand each to the "
        "agent that fits, check every result before you build on it, and report what was reached.",
        task=_orchestrate,
        tools=(*_LOOKING, "task", "todoread", "todowrite"),
        effort=Effort(calls=15, input_tokens=3_000, added_tokens=1_500, output_tokens=500),
    ),
)


def list_builtin_templates() -> dict[str, Template]:
    """Return the templates by name."""
    return {template.name: template for template in _TEMPLATES}


def find_template(name: str) -> Template:
    """Return a template by name; raises NotFound."""
    found = list_builtin_templates().get(name.casefold().replace("_", "-"))
    if found is None:
        raise NotFound(kind="template", value=name)
    return found
