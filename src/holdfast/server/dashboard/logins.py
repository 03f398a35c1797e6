"""Who is logged in: a cookie that holds the credential, sealed, and links that work once.

The cookie is the credential that was given at the login (a key, a token), sealed with a key of
the state directory. Each request opens it and is authenticated like one of the API: a revoked
key ends its logins at once, a restarted server knows them still, and nothing is kept here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import MissingExtra
from holdfast.ids import make_random_token
from holdfast.private_files import PrivateJsonFile

try:
    from cryptography.fernet import Fernet, InvalidToken
except ImportError as _error:
    raise MissingExtra(what="the dashboard", package="cryptography", extra="server") from _error

KEY_FILE: Final = "dashboard-key.json"
COOKIE: Final = "holdfast_login"
SECURE_COOKIE: Final = "__Host-holdfast_login"
"""Over HTTPS: a browser takes it from this very host only, and never sends it elsewhere."""
LIFETIME_S: Final = 12 * 3600
LINK_LIFETIME_S: Final = 120
_MOST_LINKS: Final = 100


class _KeptKey(msgspec.Struct, forbid_unknown_fields=True):
    key: str = ""


class SealedLogins:
    """Seals credentials into cookies, and opens them again."""

    def __init__(self, base_dir: Path, *, clock: Clock = SYSTEM) -> None:
        """Seal with the key of this state directory; one is made, mode 0600, if there is none."""
        file = PrivateJsonFile(base_dir / KEY_FILE, _KeptKey, empty=_KeptKey)

        def fill(kept: _KeptKey) -> None:
            kept.key = kept.key or make_random_token(32)

        secret = bytes.fromhex(file.change(fill).key)
        self._fernet = Fernet(base64.urlsafe_b64encode(secret))
        self._csrf_key = hashlib.sha256(b"csrf" + secret).digest()
        self._clock = clock

    def seal(self, credential: str) -> str:
        """Return a cookie that stands for a credential."""
        return self._fernet.encrypt_at_time(credential.encode(), int(self._clock.now())).decode()

    def open(self, cookie: str) -> str:
        """Return the credential of a cookie; empty if it is none of ours, or too old."""
        try:
            now = int(self._clock.now())
            return self._fernet.decrypt_at_time(cookie.encode(), LIFETIME_S, now).decode()
        except (InvalidToken, ValueError):
            return ""

    def make_csrf_token(self, cookie: str) -> str:
        """Return what a form of this login has to bring along."""
        return hmac.new(self._csrf_key, cookie.encode(), "sha256").hexdigest()

    def is_csrf_token(self, cookie: str, given: str) -> bool:
        """Say whether a form was made for this login."""
        return hmac.compare_digest(self.make_csrf_token(cookie).encode(), given.encode())


class OneTimeLinks:
    """Codes that log in once, within two minutes; kept in this process only."""

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        """Know no code yet."""
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}

    def make(self, credential: str) -> str:
        """Return a code for a credential."""
        now = self._clock.now()
        self._known = {code: one for code, one in self._known.items() if one[1] > now}
        while len(self._known) >= _MOST_LINKS:
            self._known.pop(next(iter(self._known)))
        code = make_random_token(24)
        self._known[_digest(code)] = (credential, now + LINK_LIFETIME_S)
        return code

    def take(self, code: str) -> str:
        """Return the credential of a code, which then means nothing; empty if it does already."""
        credential, until = self._known.pop(_digest(code), ("", 0.0))
        return credential if self._clock.now() < until else ""


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


__all__ = [
    "COOKIE",
    "KEY_FILE",
    "LIFETIME_S",
    "LINK_LIFETIME_S",
    "SECURE_COOKIE",
    "OneTimeLinks",
    "SealedLogins",
]
