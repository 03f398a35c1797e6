"""The built-in offline model: deterministic, honest about being no LLM, able to drive tools."""

from holdfast.providers.offline.decide import HOW_TO_CONFIGURE, MAX_ROUNDS
from holdfast.providers.offline.model import OfflineModel

__all__ = ["HOW_TO_CONFIGURE", "MAX_ROUNDS", "OfflineModel"]
