"""Signed links to artifacts: the link is all that its bearer needs.

Who follows a link has no key. The signature in the path is its credential, and good for nothing
but the two addresses below it: what the link names, and its content.
"""

from __future__ import annotations

from typing import Final

from holdfast.artifacts import verify_link
from holdfast.errors import LinkRefused, Unauthenticated
from holdfast.operations import Caller
from holdfast.server.identity import RequestHead

_PREFIX: Final = "/v1/artifact-links/"
_CONTENT: Final = "/content"
_ALWAYS: Final = float("-inf")


class LinkBearer:
    """Knows a request by the signed link in its path."""

    def __init__(self, key: str) -> None:
        """Check signatures with the key of the settings (`HOLDFAST_LINK_KEY`)."""
        self._key = key.encode()

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return a caller who may read by this link; raises Unauthenticated.

        Whether the link has expired, or was withdrawn, is the operation's to say, in words.
        """
        path = request.path.removesuffix(_CONTENT)
        if request.method not in ("GET", "HEAD") or not path.startswith(_PREFIX):
            raise Unauthenticated
        try:
            claim = verify_link(path[len(_PREFIX) :], self._key, now=_ALWAYS)
        except LinkRefused as error:
            raise Unauthenticated from error
        return Caller(
            tenant=claim.tenant,
            subject=f"link:{claim.link_id}",
            scopes=frozenset({"artifacts:read"}),
        )


__all__ = ["LinkBearer"]
