"""The front door of an application: `AsyncClient`, thin.

One file per subject; each room that the client opens adds a class of methods here. What
waits for a person (`QuestionMethods`) builds on approvals, and these on agents; agents that
work for each other (`OrchestrationMethods`) need both.
"""

from __future__ import annotations

from holdfast.client.loop import LoopMethods
from holdfast.client.messages import MessageMethods
from holdfast.client.orchestration import OrchestrationMethods
from holdfast.client.sessions import SessionMethods
from holdfast.client.triggers import TriggerMethods
from holdfast.client.upkeep import UpkeepMethods
from holdfast.client.usage import UsageMethods


class AsyncClient(
    LoopMethods,
    TriggerMethods,
    OrchestrationMethods,
    SessionMethods,
    MessageMethods,
    UpkeepMethods,
    UsageMethods,
):
    """Sessions, messages and everything else of one state directory.

    Use it as a context manager, or call `close` when done::

        async with AsyncClient() as client:
            session = await client.create_session("Math Help")

    Records are kept in `base_dir` (also called `storage_path`), or else where the settings
    say: AGENT_STATE_DIR, a config file, or the standard place of the user.
    """


__all__ = ["AsyncClient"]
