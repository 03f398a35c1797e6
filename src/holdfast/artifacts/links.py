"""Signed links (bearer tokens): each lets its holder read one artifact, until it expires.

Pure: a token is what it says and a signature over it (HMAC-SHA256), so that any process with
the key can check it, without asking a database. Whether the link was withdrawn since is the
store's to say.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

from holdfast.errors import LinkRefused

_VERSION: Final = "hfl1"
_LONGEST: Final = 2_000
_LABEL: Final = b"holdfast artifact link\0"


class LinkClaim(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, array_like=True
):
    """What a link says: which artifact of which tenant, with which content, until when."""

    link_id: str
    tenant: str
    artifact_id: str
    digest: str
    expires_at: float


def sign_link(claim: LinkClaim, key: bytes) -> str:
    """Return a claim as a token of letters, digits, `-`, `_` and `.`."""
    body = f"{_VERSION}.{_to_text(msgspec.json.encode(claim))}"
    return f"{body}.{_to_text(_sign_body(body, key))}"


def verify_link(token: str, key: bytes, *, now: float) -> LinkClaim:
    """Return what a token says, if we signed it and it has not expired.

    The signature is compared first, in constant time, and nothing of the token is looked at
    before.

    Raises:
        LinkRefused: it is none of ours, was changed, or is too old.
    """
    body, mark, signature = token.rpartition(".") if len(token) <= _LONGEST else ("", "", "")
    if not mark or not token.isascii():
        raise LinkRefused(detail="it is no link")
    if not hmac.compare_digest(_to_text(_sign_body(body, key)), signature):
        raise LinkRefused(detail="its signature does not hold")
    version, _, text = body.partition(".")
    try:
        if version != _VERSION:
            raise LinkRefused(detail="another version of Holdfast made it")
        claim = msgspec.json.decode(_from_text(text), type=LinkClaim)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise LinkRefused(detail="it is no link") from error
    if not now < claim.expires_at:
        raise LinkRefused(detail="it has expired")
    return claim


def _sign_body(body: str, key: bytes) -> bytes:
    return hmac.digest(key, _LABEL + body.encode(), hashlib.sha256)


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


__all__ = ["LinkClaim", "sign_link", "verify_link"]
