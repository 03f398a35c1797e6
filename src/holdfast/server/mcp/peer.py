"""The client behind a call, as tools may ask it: by requests, or by a result that asks back.

Up to 2025-11-25 the server sends requests of its own while the call goes on. Since 2026-07-28 the
call ends with `input_required`; the client comes again with the answers and the sealed state, in
which we find the answers of earlier rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types
import pydantic
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.server.mcp.logs import LogLevels
from holdfast.server.mcp.requests import Context
from holdfast.tools import LogLevel, NestedCallWaits, Parked, PeerAbility, PeerRequest

REASON: Final = "client_input"
_ABILITIES: Final[dict[PeerAbility, str]] = {
    "form": "elicitation",
    "model": "sampling",
    "folders": "roots",
}
_ANSWERS: Final[dict[PeerAbility, type[pydantic.BaseModel]]] = {
    "form": types.ElicitResult,
    "model": types.CreateMessageResult,
    "folders": types.ListRootsResult,
}


class McpPeer:
    """One client, for one call."""

    def __init__(
        self, context: Context, levels: LogLevels, answers: Mapping[str, JsonObject] | None = None
    ) -> None:
        """Ask the client of a request; `answers` are what it has said before."""
        self._context = context
        self._levels = levels
        self.answers: dict[str, JsonObject] = dict(answers or {})
        self.wanted: dict[str, PeerRequest] = {}
        """What it is to bring when it comes back."""
        self.lacks: frozenset[PeerAbility] = frozenset()
        """What a tool wanted of it that it cannot do."""

    @property
    def is_modern(self) -> bool:
        """Whether the client comes again with its answers, rather than being asked."""
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def can(self) -> frozenset[PeerAbility]:
        """What the client says it can do."""
        session = self._context.session
        able = session.client_capabilities
        if able is None or not (self.is_modern or session.can_send_request):
            return frozenset()
        found: dict[PeerAbility, object] = {
            "form": able.elicitation,
            "model": able.sampling,
            "folders": able.roots,
        }
        return frozenset(name for name, ability in found.items() if ability is not None)

    def take(self, responses: Mapping[str, Any] | None) -> None:
        """Keep the answers with which the client came back; what is not asked for is not used."""
        for key, said in (responses or {}).items():
            if isinstance(said, pydantic.BaseModel):
                self.answers[key] = _parse(said)

    async def ask(self, requests: Mapping[str, PeerRequest]) -> dict[str, JsonObject]:
        """Return the answers; raises NestedCallWaits where the client has to come back for it."""
        unable = sorted({one.ability for one in requests.values()} - self.can)
        if unable:
            self.lacks = frozenset(unable)
            raise ToolError(tool="", detail=f"the client cannot be asked for: {', '.join(unable)}")
        if not self.is_modern:
            return {key: await self._send(one) for key, one in requests.items()}
        missing = {
            key: one for key, one in requests.items() if not _fits(self.answers.get(key), one)
        }
        if missing:
            self.wanted = missing
            raise NestedCallWaits(Parked(reason=REASON, request={"keys": sorted(missing)}))
        return {key: self.answers[key] for key in requests}

    async def log(self, level: LogLevel, data: Any) -> None:  # noqa: ANN401 - any JSON
        """Send a line, if the client wants lines of this level."""
        await self._levels.send(self._context, level, data)

    def make_input_requests(self) -> types.InputRequests:
        """Return what the client is to bring, in the protocol's form."""
        return {key: _make_request(one) for key, one in self.wanted.items()}

    async def let_go(self) -> None:
        """End the stream of this call: the client comes back for the rest (2025-11-25 only)."""
        if self._context.close_sse_stream is not None:
            await self._context.close_sse_stream()

    def check_abilities(self) -> None:
        """Tell a client of the newer era which of its abilities was needed and not declared.

        Raises:
            MCPError: one was.
        """
        if self.lacks and self.is_modern:
            needed: JsonObject = {_ABILITIES[one]: {} for one in self.lacks}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"This call needs what the client did not declare: {', '.join(sorted(needed))}",
                {"requiredCapabilities": needed},
            )

    async def _send(self, asked: PeerRequest) -> JsonObject:
        result = await self._context.session.send_request(
            request=_make_request(asked),
            result_type=cast("Any", _ANSWERS[asked.ability]),
            metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
        )
        return _parse(cast("pydantic.BaseModel", result))


def _make_request(asked: PeerRequest) -> types.InputRequest:
    if asked.ability == "form":
        form = types.ElicitRequestFormParams.model_validate(asked.params)
        return types.ElicitRequest(params=form)
    if asked.ability == "model":
        params = types.CreateMessageRequestParams.model_validate(asked.params)
        return types.CreateMessageRequest(params=params)
    return types.ListRootsRequest()


def _fits(answer: JsonObject | None, asked: PeerRequest) -> bool:
    """Say whether an answer is one to this question: a client may bring anything."""
    if answer is None:
        return False
    try:
        _ANSWERS[asked.ability].model_validate(answer)
    except pydantic.ValidationError:
        return False
    if asked.ability != "form" or answer.get("action") != "accept":
        return True
    schema, content = asked.params.get("requestedSchema"), answer.get("content")
    required = schema.get("required") if isinstance(schema, dict) else None
    given = content if isinstance(content, dict) else {}
    return all(name in given for name in required or ())


def _parse(model: pydantic.BaseModel) -> JsonObject:
    made: JsonObject = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return made


__all__ = ["REASON", "McpPeer"]
