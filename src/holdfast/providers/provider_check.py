"""Try a provider for real, and say in words what came of it."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import HoldfastError, LLMConnectionError, LLMNotFound, LLMProtocolError
from holdfast.ids import make_id
from holdfast.messages import Message, TextPart
from holdfast.providers.config import ProviderConfig
from holdfast.providers.model import Model, ModelRequest, OpenedStream
from holdfast.providers.probe import fetch_model_names
from holdfast.providers.wire import Endpoint, HttpTransport
from holdfast.providers.wire.failures import make_refusal

CHECK_TIMEOUT_S = 15.0
_MAX_BODY = 8 * 1024 * 1024
_NO_SUCH_PATH = {404, 405, 501}
_KEY_PATHS = {"openrouter.ai": "/key"}
"""Where a list of models is open to everybody, so that it says nothing about the key."""


Checked: TypeAlias = Literal["", "answer", "models", "file", "package", "built_in"]
"""What a check rests on: a model answered, the server listed its models, the file of the model
has the right form, the package is installed, or there is nothing that could be missing."""


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What trying a provider showed; `reason` and `hint` say why it cannot be used.

    `is_ok` means that nothing wrong was found; `checked` says how far that goes.
    """

    provider: str
    is_ok: bool
    checked: Checked = ""
    reason: str = ""
    hint: str = ""
    code: str = ""
    models: tuple[str, ...] = ()
    latency_s: float = 0.0
    cautions: tuple[str, ...] = ()


def make_failed_check(config: ProviderConfig, error: HoldfastError) -> ProviderCheck:
    """Return the check that an error stands for."""
    hint = error.hint
    if config.base_url and isinstance(error, LLMConnectionError):
        start = "Start it" if config.is_local else "Check the network and any proxy"
        hint = f"{start}, or correct its address, which is {config.base_url}."
    elif config.base_url and isinstance(error, LLMNotFound):
        hint = f"Name a model that it has, or correct its address, which is {config.base_url}."
    return ProviderCheck(
        provider=config.name, is_ok=False, reason=str(error), hint=hint, code=error.code
    )


async def check_endpoint(
    config: ProviderConfig,
    endpoint: Endpoint,
    transport: HttpTransport,
    *,
    ask: Model | None,
    is_named: bool = False,
    clock: Clock = SYSTEM,
) -> ProviderCheck:
    """Ask for the list of models; where there is none, ask `ask` a tiny question.

    A model that a caller named (`is_named`) is asked in any case: being listed is no answer.
    Never raises for what the provider does.
    """
    cautions = tuple(config.cautions(has_key=bool(endpoint.key.reveal())))
    begin = clock.monotonic()
    try:
        own = _KEY_PATHS.get(urlsplit(endpoint.base_url).hostname or "")
        if own is not None:
            await _get(endpoint, transport, own, clock)
        models = await _list_models(endpoint, transport, clock)
        if models is None and ask is None:
            raise LLMNotFound(
                provider=config.name,
                model="",
                detail="it lists no models, and no model is named to ask",
            )
        is_asked = ask is not None and (models is None or is_named)
        if ask is not None and is_asked:
            await ask_briefly(ask)
    except HoldfastError as error:
        return msgspec.structs.replace(make_failed_check(config, error), cautions=cautions)
    return ProviderCheck(
        provider=config.name,
        is_ok=True,
        checked="answer" if is_asked else "models",
        models=tuple(models or ()),
        latency_s=clock.monotonic() - begin,
        cautions=cautions,
    )


async def list_models(
    endpoint: Endpoint, transport: HttpTransport, *, clock: Clock = SYSTEM
) -> tuple[str, ...]:
    """Return the models that a provider lists; empty if it keeps no list.

    Raises:
        LLMError: it cannot be reached, or refuses.
    """
    return tuple(await _list_models(endpoint, transport, clock) or ())


async def _list_models(
    endpoint: Endpoint, transport: HttpTransport, clock: Clock
) -> list[str] | None:
    body = await _get(endpoint, transport, "/models", clock)
    if body is None:
        return None
    try:
        names = fetch_model_names(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        names = None
    if names is None:
        raise LLMProtocolError(provider=endpoint.provider, detail="it is no list of models")
    return names


async def _get(
    endpoint: Endpoint, transport: HttpTransport, path: str, clock: Clock
) -> bytes | None:
    """Return the body of a GET, or None where there is no such path."""
    headers = {**endpoint.make_auth_headers(), **endpoint.headers}
    if endpoint.api == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    try:
        async with (
            asyncio.timeout(CHECK_TIMEOUT_S),
            transport.session().get(
                endpoint.url(path),
                headers=headers,
                allow_redirects=False,
                proxy=transport.proxy(endpoint),
                ssl=transport.tls(endpoint),
            ) as response,
        ):
            body = await _read(response)
            status, answered = response.status, response.headers
    except TimeoutError:
        raise _report_unreachable(endpoint, f"no answer within {CHECK_TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Not chained: the cause holds the request with its headers.
        raise _report_unreachable(endpoint, _explain_reason(error)) from None
    if status in _NO_SUCH_PATH:
        return None
    if status != 200:
        raise make_refusal(endpoint, "", status=status, headers=answered, body=body, clock=clock)
    return body


async def _read(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MAX_BODY:
            break
    return data


async def ask_briefly(model: Model) -> None:
    """Ask a tiny question and wait for the whole answer; raises LLMError if none comes."""
    message = Message(id=make_id("msg"), session_id="", role="user", parts=(TextPart(text="Hi"),))
    request = ModelRequest(messages=(message,), max_output_tokens=16)
    async with OpenedStream(model, request, False) as answer:
        async for _ in answer:
            continue


def _report_unreachable(endpoint: Endpoint, detail: str) -> LLMConnectionError:
    return LLMConnectionError(provider=endpoint.provider, detail=endpoint.scrub(detail))


def _explain_reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return type(error).__name__
