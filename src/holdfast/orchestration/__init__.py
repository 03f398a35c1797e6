"""Several agents on one piece of work: delegation, workflows, triggers, the autonomous loop.

Everything here starts runs through `RunExecutor` and keeps what it decides as facts in the
journal, so that a restart folds them and goes on. Nothing here calls a tool or a model itself.
`promotion` merges what passed its checks.
Each has a door of its own: `orchestration.delegation`, `.loop`, `.promotion`, `.triggers`,
`.workflows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.kinds import AGENT_PREFIX as AGENT_PREFIX
    from holdfast.orchestration.kinds import LOOP_AGENT as LOOP_AGENT
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {"kinds": "AGENT_PREFIX LOOP_AGENT"},
        rooms=("delegation", "loop", "promotion", "triggers", "workflows"),
    )
