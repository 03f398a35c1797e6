"""Failed model calls, by what went wrong."""

from __future__ import annotations

from holdfast.errors.failed import Failed


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
