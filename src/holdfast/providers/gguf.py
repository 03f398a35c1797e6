"""Run a GGUF file in this process: llama.cpp's server on loopback, behind a random key.

Needs the extra `local` (the `xllamacpp` wheel), imported when the first model is made.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast import clock
from holdfast.errors import LLMError, MissingExtra, UsageError
from holdfast.ids import make_random_token
from holdfast.providers.gguf_header import MAGIC, read_trained_window
from holdfast.providers.model import Delta, ModelInfo, ModelRequest, OpenedStream
from holdfast.providers.tokens import TokenCounter
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, Timeouts, WireModel

_UNKNOWN_WINDOW = 8_192
_MAX_WINDOW = 16_384
"""More is used only when it is asked for: memory is taken for the whole window at once."""
_LOCAL_TIMEOUTS = Timeouts(connect_s=10, first_token_s=600, idle_s=300, total_s=3_600)


def require_xllamacpp() -> Any:  # noqa: ANN401 - a module without types
    """Return the `xllamacpp` module.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtra(
            what="A GGUF model in this process", package="xllamacpp", extra="local"
        ) from error


def check_gguf(path: Path) -> None:
    """Refuse a file that cannot be a GGUF model, before anything is loaded.

    Raises:
        UsageError: it does not exist, cannot be read, or is not a GGUF file.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except FileNotFoundError:
        raise UsageError(detail=f"There is no model file {path}.") from None
    except OSError as error:
        raise UsageError(detail=f"{path} cannot be read: {error.strerror}") from error
    if start != MAGIC:
        raise UsageError(detail=f"{path} is not a GGUF file.")


class GgufModel:
    """A GGUF file as a model; it is loaded on first use and freed by `close`.

    The server listens on 127.0.0.1 with a port and a key chosen at random, so that no
    other program on this machine can use it by accident, and only its owner on purpose.
    """

    def __init__(
        self,
        path: Path,
        transport: HttpTransport,
        *,
        context_window: int | None = None,
        time: clock.Clock = clock.SYSTEM,
    ) -> None:
        """Check the file and the extra; nothing is loaded yet.

        Without `context_window`, the model gets the window that it was trained with, but no
        more than 16,384 tokens.

        Raises:
            MissingExtra: the extra `local` is not installed.
            UsageError: there is no such file, or it is not a GGUF model.
        """
        require_xllamacpp()
        check_gguf(path)
        self._path = path
        self._transport = transport
        trained = read_trained_window(path) or _UNKNOWN_WINDOW
        self._window = context_window or min(trained, _MAX_WINDOW)
        self._clock = time
        self._info = ModelInfo(
            inputs=("text",),
            provider="gguf",
            model=path.name,
            context_window=self._window,
            max_output_tokens=2_048,
        )
        self._counter = TokenCounter("gguf", path.name)
        self._lock: asyncio.Lock | None = None
        self._server: Any = None
        self._wire: WireModel | None = None
        self._is_closed = False

    @property
    def info(self) -> ModelInfo:
        """What is known about the model; its name is that of the file."""
        return self._info

    def count_tokens(self, request: ModelRequest) -> int:
        """Estimate: the vocabulary is inside the file."""
        return self._counter.request(request).tokens

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask the loaded model over loopback."""
        wire = await self._load()
        async with OpenedStream(wire, request, deltas) as answer:
            async for delta in answer:
                yield delta

    async def close(self) -> None:
        """Stop the server and free the memory."""
        self._is_closed = True
        server, self._server, self._wire = self._server, None, None
        if server is not None:
            # Dropping the last reference ends the server; that blocks for a moment.
            await asyncio.to_thread(_drop, [server])

    async def _load(self) -> WireModel:
        if self._is_closed:
            raise UsageError(detail="This model was closed and cannot be asked any more.")
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._wire is None:
                key = make_random_token(24)
                self._server = await asyncio.to_thread(_serve, self._path, self._window, key)
                endpoint = Endpoint(
                    provider="gguf",
                    base_url=f"{self._server.listening_address}/v1",
                    api="chat",
                    key=Secret(key),
                    timeouts=_LOCAL_TIMEOUTS,
                    max_tokens_field="max_tokens",
                )
                self._wire = WireModel(
                    endpoint, self._path.name, self._transport, info=self._info, clock=self._clock
                )
            return self._wire


def _serve(path: Path, window: int, key: str) -> Any:  # noqa: ANN401 - a class without types
    """Load the file and start the server; this takes a while."""
    library = require_xllamacpp()
    params = library.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.name}
    # The host is named in two ways, by age of the library; one of them must be there.
    if hasattr(params, "hostnames"):
        params.hostnames = ["127.0.0.1"]
    else:
        params.hostname = "127.0.0.1"
    params.port = 0
    params.api_keys = [key]
    params.n_ctx = window
    params.n_parallel = 1
    params.verbosity = -1
    params.warmup = False
    params.offline = True
    for unneeded in ("ui", "webui", "endpoint_slots", "endpoint_props", "endpoint_metrics"):
        if hasattr(params, unneeded):
            setattr(params, unneeded, False)
    # Its threads spin while they wait: on a busy machine more of them are slower.
    params.cpuparams.n_threads = max(1, _count_cores() // 2)
    try:
        return library.Server(params)
    except Exception as error:
        raise LLMError(provider="gguf", detail=f"{path.name} cannot be loaded: {error}") from error


def _count_cores() -> int:
    # Only Linux says which of them this process may use.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def _drop(holders: list[Any]) -> None:
    holders.clear()
