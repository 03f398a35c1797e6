"""A prompt of an application, written for a client; it may ask the client before."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from holdfast.errors import HoldfastError, UsageError
from holdfast.operations import Caller
from holdfast.runtime import Runtime
from holdfast.server.mcp.content import McpPrompt, call
from holdfast.server.mcp.logs import LogLevels
from holdfast.server.mcp.peer import McpPeer
from holdfast.server.mcp.requests import Context
from holdfast.server.mcp.seal import StateSeal
from holdfast.tools import NestedCallWaits

_KIND: Final = "prompt:"


async def write_prompt(
    prompt: McpPrompt,
    context: Context,
    params: types.GetPromptRequestParams,
    who: tuple[Runtime, Caller],
    levels: LogLevels,
) -> types.GetPromptResult | types.InputRequiredResult:
    """Return a prompt, or what the client has to say first.

    Raises:
        MCPError: an argument is missing, the state is none of this client's, or writing failed.
    """
    runtime, caller = who
    given = params.arguments or {}
    known = {*prompt.required, *prompt.optional}
    missing = [name for name in prompt.required if name not in given]
    if missing or not set(given) <= known:
        wrong = missing or sorted(set(given) - known)
        raise MCPError(types.INVALID_PARAMS, f"Missing or unknown arguments: {', '.join(wrong)}")
    peer = McpPeer(context, levels)
    seal = await asyncio.to_thread(StateSeal, runtime)
    key = _KIND + prompt.name
    try:
        if params.request_state:
            _, peer.answers = seal.open(params.request_state, caller, key)
            peer.take(params.input_responses)
        found = await call(prompt.write, caller, given, peer)
    except NestedCallWaits:
        state = seal.close("", caller, key, peer.answers)
        return types.InputRequiredResult(
            input_requests=peer.make_input_requests(), request_state=state
        )
    except UsageError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from error
    except HoldfastError as error:
        raise MCPError(types.INTERNAL_ERROR, str(error)) from error
    return types.GetPromptResult(description=prompt.description, messages=_to_messages(found))


def _to_messages(found: Any) -> list[types.PromptMessage]:  # noqa: ANN401 - what an application gives
    if isinstance(found, str):
        said = types.TextContent(type="text", text=found)
        return [types.PromptMessage(role="user", content=said)]
    return [types.PromptMessage.model_validate(one) for one in found]


__all__ = ["write_prompt"]
