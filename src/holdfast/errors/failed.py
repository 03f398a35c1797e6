"""What the world refused: runs, tools, servers, files, stores."""

from __future__ import annotations

from holdfast.errors.error import HoldfastError


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


class GoalNotReached(Failed):
    """An autonomous loop ended without reaching its goal; the outcome says how."""

    code = "loop.not_reached"
    message = "The goal was not reached ({outcome}): {reason}"
    next_step = "`holdfast runs report {run_id}` shows what was done, and what is missing."


class PromotionRefused(Failed):
    """What a run did was not merged; it waits in a worktree of its own."""

    code = "promotion.refused"
    message = "Nothing was merged ({outcome}): {reason}"
    next_step = (
        "The work is in {worktree}, branch {branch}. Correct it there and call again with "
        "`--promote --run-id {run_id}`, merge it yourself, or drop it: git worktree remove "
        "--force {worktree} && git branch -D {branch}."
    )


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
    next_step = (
        "Log in with `holdfast mcp login {endpoint}`, or set the token in the variable that its "
        "`auth_token_env` names."
    )


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
    next_step = "Look whether the path is right, and who may read and write there."


class FileMissing(FileError):
    """There is nothing at the path."""

    code = "file.missing"
    message = "There is no file or directory {path!r} in the workspace."
    next_step = "Look at what exists with the `list` or `glob` tool."


class FileUnsuitable(FileError):
    """What is at the path is not what was asked for: a directory, a device, binary, too large."""

    code = "file.unsuitable"
    message = "{path!r} is {found}; {wanted} is needed."
    next_step = ""


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
