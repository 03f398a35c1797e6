"""Which key is sent to which address, and where none is."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from holdfast.client.local_token import find_token
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.settings import Settings


def choose_api_key(url: str, settings: Settings) -> str:
    """Return the key for a server: that of the settings, or the token of this machine's own."""
    named = settings.secrets.api_key
    if named is not None:
        return named.get_secret_value()
    # The token of this state directory is for servers of this machine, and no others.
    return find_token(settings.storage_path) if _is_local(_split(url)) else ""


def check_address(url: str, *, has_key: bool, allows_plain_http: bool) -> None:
    """Refuse to send a key where others on the way could read it.

    Raises:
        UsageError: the address is no https and no loopback, or holds a password.
    """
    address = _split(url)
    if address.username or address.password:
        raise UsageError(detail="Give the key as api_key, not in the address.")
    if not address.hostname:
        raise UsageError(detail=f"{url!r} names no server.")
    is_safe = address.scheme == "https" or _is_local(address)
    if has_key and not is_safe and not allows_plain_http:
        raise UsageError(
            detail="Over http:// everybody on the way could read the key; use https://, or say "
            "allows_plain_http=True where the network is your own."
        )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(detail="That is no address of a server.") from None
    return parts


def _is_local(address: SplitResult) -> bool:
    host = address.hostname or ""
    if host in ("localhost", "::1"):
        return True
    # `127.evil.example` is a name like any other.
    numbers = host.split(".")
    return numbers[0] == "127" and len(numbers) == 4 and all(one.isdigit() for one in numbers)


__all__ = ["check_address", "choose_api_key"]
