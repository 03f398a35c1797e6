"""Limits of delegation: what is counted, and what is refused."""

from __future__ import annotations

import pytest

from holdfast.errors import DelegationRefused, UsageError
from holdfast.journal import Journal, MemoryStore
from holdfast.orchestration.delegation import Census, DelegationLimits
from holdfast.orchestration.delegation.child import derive_id
from holdfast.runs.children import CHILDREN
from holdfast.runs.lineage import Lineage


@pytest.mark.parametrize("field", ["parallel", "depth", "breadth", "total", "time_s"])
def test_limit_that_lets_nothing_run_is_refused(field: str) -> None:
    with pytest.raises(UsageError):
        DelegationLimits(**{field: 0})


def test_ids_follow_from_the_key_and_nothing_else() -> None:
    assert derive_id("run", "a") == derive_id("run", "a")
    assert len({derive_id(kind, key) for kind in ("run", "ses") for key in ("a", "b")}) == 4


async def test_run_that_was_counted_is_not_counted_again() -> None:
    limits = DelegationLimits(breadth=2, total=3, depth=2)
    async with Journal(MemoryStore(projections=(CHILDREN,))) as journal:
        census = Census(journal)
        top = Lineage(session_id="ses_a", run_id="run_a", path=("a",))
        for run_id in ("run_1", "run_2", "run_1", "run_2"):
            await census.admit(top, run_id, "x", limits)
        with pytest.raises(DelegationRefused) as refused:
            await census.admit(top, "run_3", "x", limits)
        assert refused.value.context["setting"] == "breadth"
        other = Lineage(session_id="ses_b", run_id="run_1", path=("a",), root="run_a")
        await census.admit(other, "run_4", "x", limits)
        with pytest.raises(DelegationRefused) as refused:
            await census.admit(other, "run_5", "x", limits)
        assert refused.value.context["setting"] == "total"
        deep = Lineage(session_id="ses_c", run_id="run_c", path=("a", "b"))
        with pytest.raises(DelegationRefused) as refused:
            await census.admit(deep, "run_6", "x", limits)
        assert refused.value.context["setting"] == "depth"
