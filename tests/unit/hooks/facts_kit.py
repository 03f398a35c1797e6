"""A kind of fact for tests of the bus."""

from __future__ import annotations

from holdfast.journal import Payload, payload


@payload("spec.noted", is_open=True)
class Noted(Payload, frozen=True, kw_only=True):
    """A fact for tests."""

    number: int
