"""What a call costs, from the price list of genai-prices that comes with the package."""

from __future__ import annotations

import datetime
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.messages import TokenUsage

if TYPE_CHECKING:
    from genai_prices.types import PriceCalculation

_MILLION = 1_000_000
_PICO = Decimal(10) ** 12
_PROVIDERS = {"gemini": "google", "vertex": "google", "xai": "x-ai", "bedrock": "aws"}
_LOCAL = frozenset(
    {"lmstudio", "lm-studio", "ollama", "llamacpp", "llama.cpp", "vllm", "gguf", "offline", "local"}
)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Price of a call and of one token of each kind, in millionths of a millionth of a dollar."""

    call: int
    input: int
    output: int
    cache_read: int
    cache_write: int

    def price(self, usage: TokenUsage) -> int:
        """Return the price of a usage; reasoning is paid as output."""
        return (
            self.call
            + usage.input * self.input
            + (usage.output + usage.reasoning) * self.output
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
        )


class PriceList:
    """Prices of models; a model that is not on the list has no price, not a price of nought.

    Prices that do not depend on the size or time of a call are looked up once, since
    the list takes 0.1 ms for an answer and half a second to load. Nothing is fetched
    from the network.
    """

    def __init__(self, *, clock: Clock = SYSTEM) -> None:
        """Nothing is loaded yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str, str], Rates | Literal["varies"] | None] = {}

    def cost_usd(
        self,
        usage: TokenUsage,
        *,
        provider: str,
        model: str,
        api_url: str = "",
        is_local: bool | None = None,
    ) -> float | None:
        """Return the price in US dollars, or nothing when it is not known.

        `is_local` says that the model runs on our own machine and costs nothing; by
        default that follows from the provider's name. `api_url` finds the price of a
        provider with a name of its own.
        """
        cost = self.cost_pico_usd(
            usage, provider=provider, model=model, api_url=api_url, is_local=is_local
        )
        return None if cost is None else cost / 1e12

    def cost_pico_usd(
        self,
        usage: TokenUsage,
        *,
        provider: str,
        model: str,
        api_url: str = "",
        is_local: bool | None = None,
    ) -> int | None:
        """Return the price as a whole number, so that sums do not depend on their order."""
        if is_local if is_local is not None else provider in _LOCAL:
            return 0
        place = (provider, api_url, model)
        if place not in self._rates:
            with self._lock:
                self._rates[place] = self._look_up(place)
        rates = self._rates[place]
        if rates is None:
            return None
        if isinstance(rates, Rates):
            return rates.price(usage)
        found = self._ask(usage, place)
        return None if found is None else round(found.total_price * _PICO)

    def _look_up(self, place: tuple[str, str, str]) -> Rates | Literal["varies"] | None:
        """Return the price per token if it is the same for every call of a known model."""
        found = self._ask(TokenUsage(input=1), place)
        if found is None:
            return None
        price = found.model_price
        if isinstance(found.model.prices, list) or any(
            not isinstance(value, Decimal | None) for value in vars(price).values()
        ):
            return "varies"
        empty = self._ask(TokenUsage(), place)
        base = empty.total_price if empty is not None else Decimal(0)
        kinds = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}
        for kind in kinds:
            many = self._ask(TokenUsage(**{kind: _MILLION}), place)
            if many is None:
                return "varies"
            kinds[kind] = round((many.total_price - base) * _PICO / _MILLION)
        return Rates(call=round(base * _PICO), **kinds)

    def _ask(self, usage: TokenUsage, place: tuple[str, str, str]) -> PriceCalculation | None:
        # Loaded here: 0.3 s and 30 MB that a run with a local model never needs.
        import genai_prices  # noqa: PLC0415

        provider, api_url, model = place
        counted = genai_prices.Usage(
            input_tokens=usage.input + usage.cache_read + usage.cache_write,
            output_tokens=usage.output + usage.reasoning,
            cache_read_tokens=usage.cache_read,
            cache_write_tokens=usage.cache_write,
        )
        when = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
        known = _PROVIDERS.get(provider, provider)
        try:
            return genai_prices.calc_price(
                counted, model, provider_id=known, genai_request_timestamp=when
            )
        except LookupError:
            if not api_url:
                return None
        try:
            return genai_prices.calc_price(
                counted, model, provider_api_url=api_url, genai_request_timestamp=when
            )
        except LookupError:
            return None
