"""The conformance suite for stores: what the journal relies on, as tests that you inherit.

Write a subclass in your tests, and pytest (with pytest-asyncio in auto mode) runs all of it::

    from holdfast.testing.store_conformance import StoreConformance

    class TestMyStore(StoreConformance):
        def make_store(self, place, *, projections, clock):
            return MyStore(place / "data", projections=projections, clock=clock)

A store that forgets everything when its object goes sets `is_kept = False`.
"""

from __future__ import annotations

from holdfast.testing._conform_append import AppendConformance
from holdfast.testing._conform_leases import LeaseConformance
from holdfast.testing._conform_rows import RowConformance
from holdfast.testing._conform_upkeep import UpkeepConformance


class StoreConformance(AppendConformance, LeaseConformance, RowConformance, UpkeepConformance):
    """Every promise of the `Store` protocol; supply `make_store`."""


__all__ = ["StoreConformance"]
