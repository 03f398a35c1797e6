"""A model whose calls are reserved before they are made, for calls beside the turn's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from holdfast.providers import Delta, Finished, Model, ModelRequest, ModelWrapper, OpenedStream
from holdfast.runs.spending import Charge, Spending


class ReservingModel(ModelWrapper):
    """Asks the run's budgets first, and settles with them afterwards."""

    def __init__(self, inner: Model, spending: Spending, charge: Charge) -> None:
        """Spend from these budgets; `charge` says what an answer cost."""
        super().__init__(inner)
        self._spending = spending
        self._charge = charge

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask the wrapped model.

        Raises:
            BudgetExceeded: the worst case does not fit; nothing was asked.
        """
        request, held = await self._spending.before_model(self.inner, request, self._charge)
        answer = None
        try:
            async with OpenedStream(self.inner, request, deltas) as stream:
                async for delta in stream:
                    if isinstance(delta, Finished):
                        answer = self._charge(delta.message)
                    yield delta
        finally:
            await asyncio.shield(self._spending.after_model(held, answer))
