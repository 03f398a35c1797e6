"""Talk to one model or embedder: wire codecs, registry, resilience, accounting.

`Model` is the narrow waist: everything above asks it, everything vendor-specific lives below.
Around a model stand retries with backoff, circuit breakers, rate limits and fallbacks; the
registry opens one by its name. Names are loaded when they are first used, so that importing
this room costs nothing, and a model's machinery only who asks such a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.circuit import Outcome as Outcome
    from holdfast.providers import json_schema as json_schema
    from holdfast.providers.accounting import PICO as PICO
    from holdfast.providers.accounting import Accountant as Accountant
    from holdfast.providers.accounting import Charge as Charge
    from holdfast.providers.accounting import LedgerScope as LedgerScope
    from holdfast.providers.accounting import UsageLedger as UsageLedger
    from holdfast.providers.accounting import UsageTotals as UsageTotals
    from holdfast.providers.address import is_loopback as is_loopback
    from holdfast.providers.address import strip_address as strip_address
    from holdfast.providers.breaker import BreakerModel as BreakerModel
    from holdfast.providers.breaker import BreakerPolicy as BreakerPolicy
    from holdfast.providers.breaker import CircuitBreaker as CircuitBreaker
    from holdfast.providers.breaker import CircuitBreakers as CircuitBreakers
    from holdfast.providers.config import ProviderConfig as ProviderConfig
    from holdfast.providers.config import ProviderInfo as ProviderInfo
    from holdfast.providers.config import looks_like_secret as looks_like_secret
    from holdfast.providers.config import make_config as make_config
    from holdfast.providers.events import EventObserver as EventObserver
    from holdfast.providers.events import ModelFellBack as ModelFellBack
    from holdfast.providers.events import ModelRetried as ModelRetried
    from holdfast.providers.events import ProviderEvent as ProviderEvent
    from holdfast.providers.events import ProviderRateLimited as ProviderRateLimited
    from holdfast.providers.fallback import FallbackModel as FallbackModel
    from holdfast.providers.model import CallEvents as CallEvents
    from holdfast.providers.model import Delta as Delta
    from holdfast.providers.model import Finished as Finished
    from holdfast.providers.model import Model as Model
    from holdfast.providers.model import ModelInfo as ModelInfo
    from holdfast.providers.model import ModelRequest as ModelRequest
    from holdfast.providers.model import ModelWrapper as ModelWrapper
    from holdfast.providers.model import OpenedStream as OpenedStream
    from holdfast.providers.model import ReasoningDelta as ReasoningDelta
    from holdfast.providers.model import Restarted as Restarted
    from holdfast.providers.model import TextDelta as TextDelta
    from holdfast.providers.model import ToolCallDelta as ToolCallDelta
    from holdfast.providers.model import ToolChoice as ToolChoice
    from holdfast.providers.model import ToolMode as ToolMode
    from holdfast.providers.model import close_stream as close_stream
    from holdfast.providers.model import find_calling_agent as find_calling_agent
    from holdfast.providers.model import iterate_layers as iterate_layers
    from holdfast.providers.model import note_event as note_event
    from holdfast.providers.offline import OfflineModel as OfflineModel
    from holdfast.providers.presets import list_presets as list_presets
    from holdfast.providers.prices import PriceList as PriceList
    from holdfast.providers.provider_check import ProviderCheck as ProviderCheck
    from holdfast.providers.rate_limits import RateLimitedModel as RateLimitedModel
    from holdfast.providers.rate_limits import RateLimiter as RateLimiter
    from holdfast.providers.rate_rules import RateLimitRule as RateLimitRule
    from holdfast.providers.rate_rules import RateSubject as RateSubject
    from holdfast.providers.rate_store import open_rate_store as open_rate_store
    from holdfast.providers.registry import ProviderRegistry as ProviderRegistry
    from holdfast.providers.resolve import Resolution as Resolution
    from holdfast.providers.resolve import create_model as create_model
    from holdfast.providers.resolve import make_registry as make_registry
    from holdfast.providers.resolve import resolve_model as resolve_model
    from holdfast.providers.retry import RetryingModel as RetryingModel
    from holdfast.providers.retry import RetryPolicy as RetryPolicy
    from holdfast.providers.retry import is_outage as is_outage
    from holdfast.providers.retry import is_transient as is_transient
    from holdfast.providers.retry import retry_after_s as retry_after_s
    from holdfast.providers.retry import use_retry_policy as use_retry_policy
    from holdfast.providers.tokens import TokenCounter as TokenCounter
    from holdfast.providers.tokens import estimate_tokens as estimate_tokens
    from holdfast.providers.tool_modes import ToolModeModel as ToolModeModel
    from holdfast.providers.tool_probe import ToolModeProbe as ToolModeProbe
    from holdfast.providers.tool_probe import probe_tool_mode as probe_tool_mode
    from holdfast.providers.vocabulary import find_counter as find_counter
    from holdfast.providers.wire.endpoint import Api as Api
    from holdfast.providers.wire.endpoint import Endpoint as Endpoint
    from holdfast.providers.wire.endpoint import KeySource as KeySource
    from holdfast.providers.wire.endpoint import QuietMode as QuietMode
    from holdfast.providers.wire.endpoint import Secret as Secret
    from holdfast.providers.wire.endpoint import Timeouts as Timeouts
    from holdfast.providers.wire.failures import find_failure_in_answer as find_failure_in_answer
    from holdfast.providers.wire.failures import make_refusal as make_refusal
    from holdfast.providers.wire.http import HttpTransport as HttpTransport
    from holdfast.providers.wire.model import WireModel as WireModel
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "accounting": "PICO Accountant Charge LedgerScope UsageLedger UsageTotals",
            "address": "is_loopback strip_address",
            "breaker": "BreakerModel BreakerPolicy CircuitBreaker CircuitBreakers Outcome",
            "config": "ProviderConfig ProviderInfo looks_like_secret make_config",
            "events": "EventObserver ModelFellBack ModelRetried ProviderEvent ProviderRateLimited",
            "presets": "list_presets",
            "fallback": "FallbackModel",
            "model": (
                "CallEvents Delta Finished Model ModelInfo ModelRequest ModelWrapper OpenedStream "
                "ReasoningDelta Restarted TextDelta ToolCallDelta ToolChoice ToolMode "
                "find_calling_agent close_stream iterate_layers note_event"
            ),
            "offline": "OfflineModel",
            "prices": "PriceList",
            "provider_check": "ProviderCheck",
            "rate_limits": "RateLimitedModel RateLimiter",
            "rate_rules": "RateLimitRule RateSubject",
            "rate_store": "open_rate_store",
            "registry": "ProviderRegistry",
            "resolve": "Resolution create_model make_registry resolve_model",
            "retry": "RetryPolicy RetryingModel is_outage is_transient retry_after_s "
            "use_retry_policy",
            "tokens": "TokenCounter estimate_tokens",
            "tool_modes": "ToolModeModel",
            "tool_probe": "ToolModeProbe probe_tool_mode",
            "vocabulary": "find_counter",
            "wire.endpoint": "Api Endpoint KeySource QuietMode Secret Timeouts",
            "wire.failures": "find_failure_in_answer make_refusal",
            "wire.http": "HttpTransport",
            "wire.model": "WireModel",
        },
        rooms=("json_schema",),
    )
