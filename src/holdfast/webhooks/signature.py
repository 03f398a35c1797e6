"""Signatures by the Standard Webhooks scheme: HMAC-SHA256 over id, time and body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from holdfast.errors import UsageError

PREFIX: Final = "whsec_"
TOLERANCE_S: Final = 300.0


def make_headers(secret: str, message_id: str, *, at: int, body: bytes) -> dict[str, str]:
    """Return the headers that go with a message."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": sign(secret, message_id, at=at, body=body),
        "content-type": "application/json",
    }


def sign(secret: str, message_id: str, *, at: int, body: bytes) -> str:
    """Return the signature of a message, as it stands in `webhook-signature`.

    Raises:
        UsageError: it is no secret of a webhook.
    """
    signed = f"{message_id}.{at}.".encode() + body
    digest = hmac.new(_read_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def verify(secret: str, headers: Mapping[str, str], body: bytes, *, now: float) -> bool:
    """Say whether a message is from whoever has the secret, and not an old one sent again.

    For receivers: `headers` by lower-case name. Keep the ids that were seen; a message may come
    more than once.
    """
    message_id, time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not message_id or not time.isascii() or not time.isdigit() or len(time) > 12:
        return False
    if abs(now - int(time)) > TOLERANCE_S:
        return False
    wanted = sign(secret, message_id, at=int(time), body=body)
    given = headers.get("webhook-signature", "").split(" ")
    # All are compared, so that the time tells nothing.
    return any([hmac.compare_digest(wanted.encode(), one.encode()) for one in given])


def make_secret(random: bytes) -> str:
    """Return a secret as the scheme writes it."""
    return PREFIX + base64.b64encode(random).decode()


def _read_key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(detail="This is no secret of a webhook.") from error
    if len(key) < 24:
        raise UsageError(detail="The secret of a webhook has at least 24 bytes.")
    return key


__all__ = ["make_headers", "make_secret", "sign", "verify"]
