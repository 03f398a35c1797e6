"""Names that people bring along from other SDKs, over the same client and the same records.

Real objects where a name means something of its own, aliases where it is a synonym:
`docs/reference/seed-names.md` maps them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.sdk.agents import AgentExecutor as AgentExecutor
    from holdfast.sdk.agents import BaseAgent as BaseAgent
    from holdfast.sdk.aliases import AgentOutput as AgentOutput
    from holdfast.sdk.aliases import OpenCodeAsyncClient as OpenCodeAsyncClient
    from holdfast.sdk.aliases import OpenCodeSyncClient as OpenCodeSyncClient
    from holdfast.sdk.aliases import Tool as Tool
    from holdfast.sdk.config import ProviderID as ProviderID
    from holdfast.sdk.config import SDKConfig as SDKConfig
    from holdfast.sdk.resources import SessionResources as SessionResources
    from holdfast.sdk.sessions import AISession as AISession
    from holdfast.sdk.sessions import MessageStorage as MessageStorage
    from holdfast.sdk.sessions import SessionStorage as SessionStorage
    from holdfast.sdk.skills import SkillLoader as SkillLoader
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "agents": "AgentExecutor BaseAgent",
            "aliases": "AgentOutput OpenCodeAsyncClient OpenCodeSyncClient Tool",
            "config": "ProviderID SDKConfig",
            "resources": "SessionResources",
            "sessions": "AISession MessageStorage SessionStorage",
            "skills": "SkillLoader",
        },
    )
