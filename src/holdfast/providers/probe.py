"""Look for model servers on this machine: short, all at once, and sure of what they found."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from holdfast.providers.presets import LOCAL_SERVERS, list_presets

if TYPE_CHECKING:
    import aiohttp

PROBE_TIMEOUT_S = 0.3
_MAX_BODY = 2 * 1024 * 1024
_NOT_CHAT = ("embed", "rerank", "whisper", "tts", "clip", "bge-", "nomic-")


class LocalServer(NamedTuple):
    """A server that was found, and the models that can chat, the first one first."""

    provider: str
    base_url: str
    models: tuple[str, ...]


class Candidate(NamedTuple):
    """Where to look for which kind of server."""

    provider: str
    base_url: str


def list_default_candidates() -> tuple[Candidate, ...]:
    """Return the places where LM Studio, Ollama and llama.cpp listen by default."""
    known = list_presets()
    return tuple(Candidate(name, known[name].base_url) for name in LOCAL_SERVERS)


async def find_local_servers(
    candidates: tuple[Candidate, ...] | None = None, *, timeout_s: float = PROBE_TIMEOUT_S
) -> list[LocalServer]:
    """Return the servers that answer as their kind does, in the order of `candidates`.

    All are asked at once: each must take a connection, and then answer, within `timeout_s`.
    Something else that happens to listen on the same port is not taken for a model server.
    Nothing is kept: the next call looks again.
    """
    places = list_default_candidates() if candidates is None else candidates
    listening = await asyncio.gather(*(_listens(place, timeout_s) for place in places))
    places = tuple(place for place, is_there in zip(places, listening, strict=True) if is_there)
    if not places:
        return []
    import aiohttp  # noqa: PLC0415 - 0.1 s, which most machines need not pay: no server is there

    # Proxies are for the outside: a probe of this machine must not leave it.
    async with aiohttp.ClientSession(trust_env=False) as session:
        found = await asyncio.gather(*(_bound(session, place, timeout_s) for place in places))
    return [server for server in found if server is not None]


async def find_context_window(
    base_url: str, model: str, *, timeout_s: float = 10 * PROBE_TIMEOUT_S
) -> int:
    """Return how many tokens a local server takes for a model; 0 where it does not say.

    llama.cpp, LM Studio and Ollama each say it in a place of their own: what a model was trained
    with matters less than what its server was started with.
    """
    import aiohttp  # noqa: PLC0415 - see above

    root = base_url.rstrip("/").removesuffix("/v1")
    try:
        async with (
            asyncio.timeout(timeout_s),
            aiohttp.ClientSession(trust_env=False) as session,
        ):
            for path in ("/props", "/api/v0/models", "/api/ps"):
                body, _ = await _get(session, root + path)
                found = read_window(body, model)
                if found:
                    return found
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return 0
    return 0


def read_window(body: object, model: str) -> int:
    """Return the window that one of these answers names for a model, or 0."""
    if not isinstance(body, dict):
        return 0
    settings = body.get("default_generation_settings")
    if isinstance(settings, dict):
        return _read_count(settings.get("n_ctx"))
    for entry in [*_list_entries(body.get("data")), *_list_entries(body.get("models"))]:
        if model in (entry.get("id"), entry.get("name"), entry.get("model")):
            loaded = _read_count(entry.get("loaded_context_length"))
            return loaded or _read_count(entry.get("context_length"))
    return 0


def _list_entries(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _read_count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and isinstance(value, int) and value > 0 else 0


def chat_models(names: list[str]) -> tuple[str, ...]:
    """Return the names without models that cannot chat, in order."""
    return tuple(
        name for name in names if name and not any(word in name.lower() for word in _NOT_CHAT)
    )


def fetch_model_names(body: object) -> list[str] | None:
    """Return the ids in an OpenAI list of models, or None if it is no such list."""
    if not isinstance(body, dict) or not isinstance(body.get("data"), list):
        return None
    entries = body["data"]
    if not all(isinstance(entry, dict) and isinstance(entry.get("id"), str) for entry in entries):
        return None
    return [entry["id"] for entry in entries]


async def _listens(place: Candidate, timeout_s: float) -> bool:
    try:
        parts = urlsplit(place.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (TimeoutError, OSError, ValueError):
        return False
    writer.close()
    return True


async def _bound(
    session: aiohttp.ClientSession, place: Candidate, timeout_s: float
) -> LocalServer | None:
    import aiohttp  # noqa: PLC0415 - see above

    try:
        async with asyncio.timeout(timeout_s):
            return await _look(session, place)
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
        return None


async def _look(session: aiohttp.ClientSession, place: Candidate) -> LocalServer | None:
    root = place.base_url.rstrip("/").removesuffix("/v1")
    (body, server), is_sure = await asyncio.gather(
        _get(session, f"{root}/v1/models"), _is_its_kind(session, place.provider, root)
    )
    names = fetch_model_names(body)
    if names is None:
        return None
    if not is_sure and not _is_signed(place.provider, body, server):
        return None
    models = chat_models(names)
    return LocalServer(place.provider, place.base_url, models) if models else None


async def _is_its_kind(session: aiohttp.ClientSession, provider: str, root: str) -> bool:
    """Ask for something that only this kind of server has."""
    if provider == "ollama":
        body, _ = await _get(session, f"{root}/api/version")
        return isinstance(body, dict) and isinstance(body.get("version"), str)
    if provider == "lmstudio":
        body, _ = await _get(session, f"{root}/api/v0/models")
        return fetch_model_names(body) is not None
    return False


def _is_signed(provider: str, body: object, server: str) -> bool:
    """Say whether the list of models itself shows the kind of server."""
    entries: list[Any] = body["data"] if isinstance(body, dict) else []
    owners = {str(entry.get("owned_by", "")) for entry in entries}
    if provider == "llamacpp":
        return "llamacpp" in owners or server.lower().startswith("llama.cpp")
    return provider == "lmstudio" and "organization_owner" in owners


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[object, str]:
    """Return the JSON body (None if it is none) and the server's name for itself."""
    async with session.get(url, allow_redirects=False) as response:
        server = response.headers.get("Server", "")
        if response.status != 200:
            return None, server
        data = await response.content.read(_MAX_BODY)
        while not response.content.at_eof() and len(data) < _MAX_BODY:
            data += await response.content.read(_MAX_BODY - len(data))
        try:
            return msgspec.json.decode(data), server
        except (msgspec.DecodeError, RecursionError):
            return None, server
