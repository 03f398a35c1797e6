"""What the system refuses on purpose: rights, budgets, rates, quotas."""

from __future__ import annotations

from holdfast.errors.error import HoldfastError


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
