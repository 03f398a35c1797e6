"""The public test kit: what Holdfast's own tests use, for the tests of its users.

Shipping code never imports this room.
"""

from holdfast.testing.clock import FakeClock

__all__ = ["FakeClock"]
