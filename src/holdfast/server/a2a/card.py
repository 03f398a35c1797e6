"""The card of an agent: what it is, where it answers, how to sign in; signed by this server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm

from holdfast.canonical import JsonObject, hash_sha256
from holdfast.private_files import PrivateJsonFile
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.problems import ProblemRaised

if TYPE_CHECKING:
    from holdfast.agents import AgentRecord
    from holdfast.server.app import HttpApplication

CARD: Final = "/.well-known/agent-card.json"
KEYS: Final = "/.well-known/agent-card-keys.json"
VERSION: Final = "1.0"
_KEY_FILE: Final = "a2a-card-key.json"
_ALGORITHM: Final = "ES256"
_KEPT_S: Final = 300
_MODES: Final = ["text/plain", "application/json"]
_SCOPES: Final = ["agents:read", "runs:read", "runs:write", "sessions:read", "sessions:write"]
"""What a key needs. Nothing in a card is empty: implementations differ in what that means."""
_FILES: Final = ["image/png", "image/jpeg", "application/pdf", "application/octet-stream"]


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    pem: str = ""


class CardSigner:
    """Signs cards with a key of this server, which is made with the first card and kept, 0600."""

    def __init__(self, base_dir: Path) -> None:
        """Keep the key in this directory."""
        self._file = PrivateJsonFile(base_dir / _KEY_FILE, _Kept, empty=_Kept)
        self._key: ec.EllipticCurvePrivateKey | None = None

    async def sign(self, card: JsonObject, address: str) -> JsonObject:
        """Return a card with its signature; `address` is that of the server."""
        key = await self._open()
        header = {"typ": "JOSE", "kid": _name(key), "jku": f"{address}{KEYS}"}
        made = jwt.api_jws.encode(
            encode_canonical_card(card), key, algorithm=_ALGORITHM, headers=header
        )
        protected, _, signature = made.split(".")
        return card | {"signatures": [{"protected": protected, "signature": signature}]}

    async def list_keys(self) -> JsonObject:
        """Return the public key, as a set of JSON web keys."""
        key = await self._open()
        told = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return {"keys": [{**told, "kid": _name(key), "alg": _ALGORITHM, "use": "sig"}]}

    async def _open(self) -> ec.EllipticCurvePrivateKey:
        if self._key is None:
            kept = await asyncio.to_thread(self._file.read)
            if not kept.pem:
                kept = await asyncio.to_thread(self._file.change, _make_key)
            found = load_pem_private_key(kept.pem.encode(), None)
            assert isinstance(found, ec.EllipticCurvePrivateKey)
            self._key = found
        return self._key


def _make_key(kept: _Kept) -> None:
    if kept.pem:
        return  # another process was first
    made = ec.generate_private_key(ec.SECP256R1())
    kept.pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _name(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the id of a key: it follows from its public part."""
    told = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return hash_sha256(
        encode_canonical_card({name: told[name] for name in ("crv", "kty", "x", "y")})
    )[:32]


def encode_canonical_card(value: JsonObject) -> bytes:
    """Return a card as RFC 8785 writes it: a card has texts, truths, lists and objects only."""
    # Names of fields are ASCII, for which the order of Python is that of the standard.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def find_address(asked: FaceRequest) -> str:
    """Return the address at which the client reaches this server."""
    return f"{asked.request.head.scheme}://{asked.headers.get('host', '')}"


def make_card(
    address: str, record: AgentRecord | None = None, *, skills: list[AgentRecord] | None = None
) -> JsonObject:
    """Return the card of an agent, or without one that of the server.

    What is open to all names no agent; `skills` are those that a caller may see.
    """
    name = record.name if record is not None else "Holdfast"
    about = (record.description if record is not None else "") or "Agents that keep every step."
    told = skills if skills is not None else [record] if record is not None else []
    return {
        "name": name,
        "description": about,
        "version": VERSION,
        "supportedInterfaces": [
            {
                "url": f"{address}/a2a/{record.name}" if record is not None else f"{address}/a2a",
                "protocolBinding": "JSONRPC",
                "protocolVersion": VERSION,
            }
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": True},
        "securitySchemes": {
            "bearer": {
                "httpAuthSecurityScheme": {
                    "scheme": "Bearer",
                    "description": "A key of this server, or a token of its identity provider",
                }
            }
        },
        "securityRequirements": [{"schemes": {"bearer": {"list": _SCOPES}}}],
        "defaultInputModes": _MODES + _FILES,
        "defaultOutputModes": _MODES,
        "skills": [_make_skill(one) for one in told]
        or [_describe("converse", "Converse", "Does what a message asks for.")],
    }


def _make_skill(record: AgentRecord) -> JsonObject:
    return _describe(record.name, record.name, record.description or record.name)


def _describe(id: str, name: str, about: str) -> JsonObject:
    return {"id": id, "name": name, "description": about, "tags": ["agent"]}


def answer_card(asked: FaceRequest, card: JsonObject, *, is_open: bool) -> ServerResponse:
    """Return a card with what caches need; nothing where the client has it already."""
    # The signature is another one each time; what it stands for is not.
    tag = f'"{hash_sha256(encode_canonical_card(_leave_out(card)))[:32]}"'
    kept = f"{'public' if is_open else 'private'}, max-age={_KEPT_S}"
    headers = (("etag", tag), ("cache-control", kept), ("vary", "Authorization, Host"))
    if asked.headers.get("if-none-match") == tag:
        return ServerResponse(304, b"", headers=headers)
    return ServerResponse(200, msgspec.json.encode(card), headers=headers)


def _leave_out(card: dict[str, Any]) -> JsonObject:
    return {name: value for name, value in card.items() if name != "signatures"}


def make_face(app: HttpApplication) -> Face:
    """Return what is open to all: the card of the server, and the key that it is signed with."""
    signer = CardSigner(app.runtimes.operator.base_dir)

    async def answer(asked: FaceRequest) -> ServerResponse:
        asked.name_operation("a2a.card")
        if asked.method not in ("GET", "HEAD") or asked.words:
            raise ProblemRaised(404, "request.path", "there is a card to GET here, nothing else")
        address = find_address(asked)
        if asked.request.segments[-1] == KEYS.rpartition("/")[2]:
            return ServerResponse(200, msgspec.json.encode(await signer.list_keys()))
        card = await signer.sign(make_card(address), address)
        return answer_card(asked, card, is_open=True)

    return Face(answer=answer, is_open=True)


__all__ = [
    "CARD",
    "KEYS",
    "VERSION",
    "CardSigner",
    "answer_card",
    "encode_canonical_card",
    "find_address",
    "make_card",
    "make_face",
]
