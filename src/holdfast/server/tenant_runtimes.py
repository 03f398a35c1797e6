"""Runtimes of all tenants of a state directory: opened on demand, bounded in number."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Sequence

from holdfast.errors import HoldfastError, NotFound, TooManyTenants, Unauthenticated
from holdfast.observability import Logger
from holdfast.operations import OWNER, Caller
from holdfast.runtime import Runtime, make_tenant_runtime

_log = Logger("holdfast.server")


class _Opened:
    """An open runtime, and the requests that work with it now."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.users = 0

    @property
    def is_idle(self) -> bool:
        """Whether closing it would interrupt nothing."""
        runtime = self.runtime
        return (
            self.users == 0
            and runtime.turns.executor.active == 0
            and runtime.feed.subscribers == 0
            and not runtime.webhooks.is_busy
        )


class TenantRuntimes:
    """One runtime per tenant: the operator's always, of the others those that are used.

    When as many are open as may be, the one that was idle for longest is closed.
    """

    def __init__(self, operator: Runtime, *, most: int) -> None:
        """Open the runtimes of tenants beside the operator's, at most so many."""
        self.operator = operator
        self._most = most
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()
        self._going_on: asyncio.Task[None] | None = None
        operator.control.when_ended.append(self.close_tenant)

    async def runtime_for(self, caller: Caller) -> Runtime:
        """Return the runtime of a caller's tenant, open until the task that asks has ended.

        Raises:
            Unauthenticated: there is no such tenant, or it is suspended.
            TooManyTenants: all that may be open are at work; ask again.
        """
        control = self.operator.control
        if caller is OWNER or caller.tenant == control.operator:
            return await self.operator.opened()
        if not await control.tenants.is_active(caller.tenant):
            await self.close_tenant(caller.tenant)
            raise Unauthenticated
        try:
            opened = await self._open(caller.tenant)
        except NotFound:
            raise Unauthenticated from None
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(functools.partial(self._release, opened))
        return opened.runtime

    def list_open(self) -> Sequence[Runtime]:
        """Return the runtimes that are open now."""
        operator = (self.operator,) if self.operator.is_open else ()
        return (*operator, *(one.runtime for one in self._opened.values()))

    async def open(self) -> None:
        """Open the operator's records, and begin to look after what other tenants left open."""
        await (await self.operator.opened()).webhooks.begin()
        self._going_on = asyncio.create_task(self._go_on(), name="tenants-go-on")

    async def close(self) -> None:
        """Close every runtime; safe to repeat."""
        going_on, self._going_on = self._going_on, None
        if going_on is not None:
            going_on.cancel()
            await asyncio.gather(going_on, return_exceptions=True)
        for name in tuple(self._opened):
            await self.close_tenant(name)
        await self.operator.close()

    async def close_tenant(self, name: str) -> None:
        """Close the runtime of a tenant, whatever works with it; its runs go on when it returns."""
        async with self._one_at_a_time:
            opened = self._opened.pop(name, None)
            if opened is not None:
                await opened.runtime.recovery.let_go(0.0)
                await opened.runtime.close()

    # --- inside -----------------------------------------------------------------------

    async def _open(self, name: str, *, users: int = 1) -> _Opened:
        async with self._one_at_a_time:
            opened = self._opened.get(name)
            if opened is None:
                await self._make_room()
                runtime = await make_tenant_runtime(self.operator, name)
                opened = _Opened(await runtime.opened())
                self._opened[name] = opened
                await runtime.recovery.resume_all()
                runtime.recovery.follow_outages()
                await runtime.webhooks.begin()
            self._opened.move_to_end(name)
            opened.users += users
            return opened

    async def _make_room(self) -> None:
        if len(self._opened) < self._most:
            return
        for name, one in self._opened.items():
            if one.is_idle:
                del self._opened[name]
                await one.runtime.close()
                return
        raise TooManyTenants(most=self._most)

    def _release(self, opened: _Opened, _: asyncio.Task[object]) -> None:
        opened.users -= 1

    async def _go_on(self) -> None:
        """Open each tenant once: what was under way when the last process ended goes on."""
        for tenant in await self.operator.control.tenants.list_tenants():
            if tenant.state != "active":
                continue
            try:
                await self._open(tenant.name, users=0)
            except TooManyTenants:
                # Those that are open are at work; the others go on with their next request.
                _log.warning("a tenant is not gone on with yet", tenant=tenant.name)
            except HoldfastError as error:
                _log.warning("a tenant cannot be opened", tenant=tenant.name, error=str(error))


__all__ = ["TenantRuntimes"]
