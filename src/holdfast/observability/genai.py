"""Names of span attributes: OpenTelemetry's for generative AI, and those that Phoenix reads.

The conventions are still moving; this is the one place that follows them.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
WORKFLOW: Final = "gen_ai.workflow.name"
ERROR: Final = "error.type"

RUN: Final = "holdfast.run.id"
STATUS: Final = "holdfast.run.status"
TENANT: Final = "holdfast.tenant"
COST: Final = "holdfast.cost_usd"
TOOL_VERSION: Final = "holdfast.tool.version"
SOURCE_HASH: Final = "holdfast.tool.source_hash"
STEP: Final = "holdfast.step"

# OpenInference, which Phoenix and others show by.
SPAN_KIND: Final = "openinference.span.kind"
PHOENIX: Final = {
    INPUT_TOKENS: "llm.token_count.prompt",
    OUTPUT_TOKENS: "llm.token_count.completion",
    REQUEST_MODEL: "llm.model_name",
    PROVIDER: "llm.provider",
    COST: "llm.cost.total",
    TOOL: "tool.name",
    CONVERSATION: "session.id",
    TOOL_ARGUMENTS: "input.value",
    TOOL_RESULT: "output.value",
    OUTPUT_MESSAGES: "output.value",
}
