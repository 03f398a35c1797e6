"""The promotion guard: what an agent did is merged only after the checks that were configured.

`repository` is git as far as it is needed, run so that nothing an agent wrote is executed by it;
`guard` keeps the worktree of a run, checks exactly what would be merged, and merges it; `report`
is the evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.promotion.guard import CheckRunner as CheckRunner
    from holdfast.orchestration.promotion.guard import PromotionGuard as PromotionGuard
    from holdfast.orchestration.promotion.report import CheckEvidence as CheckEvidence
    from holdfast.orchestration.promotion.report import PromotionReport as PromotionReport
    from holdfast.orchestration.promotion.repository import GitRepository as GitRepository
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "guard": "CheckRunner PromotionGuard",
            "report": "CheckEvidence PromotionReport",
            "repository": "GitRepository",
        },
    )
