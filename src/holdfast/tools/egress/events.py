"""What sandboxed programs asked of the network; all in the system's chain of the journal."""

from __future__ import annotations

from typing import Literal

from holdfast.journal import Payload, payload


@payload("egress.opened", is_open=True, is_inherited=False, is_of_store=True)
class EgressOpened(Payload, frozen=True, kw_only=True):
    """A program may reach a host; written before the connection to `address` is made.

    `principal` is on whose account: `mcp:NAME`, `run:ID`. `protocol` is `connect` (a
    tunnel, whose content only its ends can read) or `http`.
    """

    egress_id: str
    principal: str
    protocol: Literal["connect", "http"]
    host: str
    port: int
    addresses: tuple[str, ...]


@payload("egress.closed", is_open=True, is_inherited=False, is_of_store=True)
class EgressClosed(Payload, frozen=True, kw_only=True):
    """What an opened connection was used for; `error` is empty where it ended by itself."""

    egress_id: str
    principal: str
    host: str
    bytes_up: int
    bytes_down: int
    duration_s: float
    error: str = ""


@payload("egress.refused", is_open=True, is_inherited=False, is_of_store=True)
class EgressRefused(Payload, frozen=True, kw_only=True):
    """A program was kept from a host; `because` is the true reason, which it is not told.

    The same refusal again is counted, and written at its 10th, 100th, 1000th time.
    """

    principal: str
    host: str
    port: int
    because: str
    count: int = 1


__all__ = ["EgressClosed", "EgressOpened", "EgressRefused"]
