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
        NothingDone            a run's answer says that nothing of what was asked was done
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
        PromotionRefused       what a run did was not merged; it waits in a worktree
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

from holdfast.errors.conflict import (
    ApprovalConflict,
    Conflict,
    FileChanged,
    LeaseLost,
    RequestInDoubt,
    RequestUnderWay,
    StaleWriter,
    StateConflict,
)
from holdfast.errors.damaged import (
    ArtifactDamaged,
    ChainBroken,
    Damaged,
    MemoryIndexDamaged,
    SchemaTooNew,
    StateUnreadable,
    StorageDamaged,
)
from holdfast.errors.error import (
    HoldfastError,
    TellModel,
    list_errors,
    make_error_from_dict,
)
from holdfast.errors.failed import (
    AgentTimeout,
    AuditSinkFailed,
    EmbeddingFailed,
    Failed,
    FileError,
    FileMissing,
    FileUnsuitable,
    GoalNotReached,
    HookFailed,
    McpAuthFailed,
    McpFailed,
    NetworkFailed,
    NothingDone,
    PromotionRefused,
    RateStoreFailed,
    RequestTimeout,
    ResultNotStored,
    RunFailed,
    RunInterrupted,
    SandboxFailed,
    ServerFailed,
    ServerUnreachable,
    StepFailed,
    StorageError,
    StorageFull,
    StorageLocked,
    StorageReadOnly,
    StorageUnavailable,
    ToolError,
    ToolInputInvalid,
    ToolTimeout,
    TraceExportFailed,
)
from holdfast.errors.models import (
    LLMAuthError,
    LLMBadRequest,
    LLMCircuitOpen,
    LLMConnectionError,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMError,
    LLMInputUnsupported,
    LLMNotFound,
    LLMOverloaded,
    LLMProtocolError,
    LLMQuotaExhausted,
    LLMRateLimited,
    LLMTimeout,
    LLMToolCallMissing,
)
from holdfast.errors.refused import (
    ApprovalExpired,
    ArgumentsWithheld,
    ArtifactDenied,
    ArtifactPlaceTaken,
    ArtifactQuotaExceeded,
    BudgetExceeded,
    BundleRefused,
    DelegationRefused,
    EventRejected,
    HookRefused,
    LinkRefused,
    McpHeldBack,
    McpUntrusted,
    NotPermitted,
    PermissionDenied,
    RateLimitError,
    RateRuleTooSmall,
    Refused,
    RunInTheWay,
    ServerDraining,
    SessionBusy,
    StateFull,
    TooManyTenants,
    Unauthenticated,
    WorkflowLimit,
)
from holdfast.errors.usage import (
    AgentToolMissing,
    AlreadyExists,
    ArtifactKeyMissing,
    CannotTravel,
    CassetteMismatch,
    ConfigError,
    DependencyMissing,
    ExpressionInvalid,
    IdempotencyKeyReused,
    InvalidCursor,
    InvalidId,
    InvalidImport,
    InvalidTransition,
    McpToolMissing,
    MissingExtra,
    MissingWeights,
    NotFound,
    PolicyInvalid,
    RequestInvalid,
    RequestTooLarge,
    RunIdReused,
    ScriptExhausted,
    TriggerInvalid,
    UsageError,
    WorkflowInvalid,
    WouldDeadlock,
)

__all__ = [
    "AgentTimeout",
    "AgentToolMissing",
    "AlreadyExists",
    "ApprovalConflict",
    "ApprovalExpired",
    "ArgumentsWithheld",
    "ArtifactDamaged",
    "ArtifactDenied",
    "ArtifactKeyMissing",
    "ArtifactPlaceTaken",
    "ArtifactQuotaExceeded",
    "AuditSinkFailed",
    "BudgetExceeded",
    "BundleRefused",
    "CannotTravel",
    "CassetteMismatch",
    "ChainBroken",
    "ConfigError",
    "Conflict",
    "Damaged",
    "DelegationRefused",
    "DependencyMissing",
    "EmbeddingFailed",
    "EventRejected",
    "ExpressionInvalid",
    "Failed",
    "FileChanged",
    "FileError",
    "FileMissing",
    "FileUnsuitable",
    "GoalNotReached",
    "NothingDone",
    "HoldfastError",
    "HookFailed",
    "HookRefused",
    "IdempotencyKeyReused",
    "InvalidCursor",
    "InvalidId",
    "InvalidImport",
    "InvalidTransition",
    "LLMAuthError",
    "LLMBadRequest",
    "LLMCircuitOpen",
    "LLMConnectionError",
    "LLMContentFiltered",
    "LLMContextTooLong",
    "LLMError",
    "LLMInputUnsupported",
    "LLMNotFound",
    "LLMOverloaded",
    "LLMProtocolError",
    "LLMQuotaExhausted",
    "LLMRateLimited",
    "LLMTimeout",
    "LLMToolCallMissing",
    "LeaseLost",
    "LinkRefused",
    "McpAuthFailed",
    "McpFailed",
    "McpHeldBack",
    "McpToolMissing",
    "McpUntrusted",
    "MemoryIndexDamaged",
    "MissingExtra",
    "MissingWeights",
    "NetworkFailed",
    "NotFound",
    "NotPermitted",
    "PermissionDenied",
    "PolicyInvalid",
    "PromotionRefused",
    "RateLimitError",
    "RateRuleTooSmall",
    "RateStoreFailed",
    "Refused",
    "RequestInDoubt",
    "RequestInvalid",
    "RequestTimeout",
    "RequestTooLarge",
    "RequestUnderWay",
    "ResultNotStored",
    "RunFailed",
    "RunIdReused",
    "RunInTheWay",
    "RunInterrupted",
    "SandboxFailed",
    "SchemaTooNew",
    "ScriptExhausted",
    "ServerDraining",
    "ServerFailed",
    "ServerUnreachable",
    "SessionBusy",
    "StaleWriter",
    "StateConflict",
    "StateFull",
    "StateUnreadable",
    "StepFailed",
    "StorageDamaged",
    "StorageError",
    "StorageFull",
    "StorageLocked",
    "StorageReadOnly",
    "StorageUnavailable",
    "TellModel",
    "TooManyTenants",
    "ToolError",
    "ToolInputInvalid",
    "ToolTimeout",
    "TraceExportFailed",
    "TriggerInvalid",
    "Unauthenticated",
    "UsageError",
    "WorkflowInvalid",
    "WorkflowLimit",
    "WouldDeadlock",
    "list_errors",
    "make_error_from_dict",
]
