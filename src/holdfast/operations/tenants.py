"""Tenants: make, suspend, export, delete them, and erase what belongs to one user.

For the operator: who owns the state directory, or has the scope in its own tenant. Admins of
other tenants have none of it, whatever their scopes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from holdfast.errors import NotPermitted, UsageError
from holdfast.identity import Tenant, TenantState, check_subject
from holdfast.journal import SYSTEM_SESSION
from holdfast.operations.caller import OWNER, Caller
from holdfast.operations.operation import operation, stream_operation
from holdfast.providers import UsageTotals
from holdfast.runtime import (
    ErasedUser,
    Runtime,
    TenantChanged,
    delete_records,
    export_tenant,
    open_tenant,
)
from holdfast.runtime import erase_user as erase_user_of


@operation("tenants:admin")
async def create(runtime: Runtime, caller: Caller, /, name: str, *, note: str = "") -> Tenant:
    """Add a tenant, with a directory and a workspace of its own; give it a key next.

    Raises:
        UsageError: this cannot be the name of a tenant.
        AlreadyExists: there is one of this name, or was.
    """
    require_operator(runtime, caller)
    made = await runtime.control.tenants.create(name, note=note)
    await _note(runtime, caller, name, "created")
    return made


@operation("tenants:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[Tenant]:
    """Return the tenants by name; the operator's own is not among them."""
    require_operator(runtime, caller)
    return await runtime.control.tenants.list_tenants()


@operation("tenants:read")
async def usage(runtime: Runtime, caller: Caller, /) -> dict[str, UsageTotals]:
    """Return what each tenant used in all, by name; the operator's own is among them.

    Reads every answer of every tenant, one tenant after the other.
    """
    require_operator(runtime, caller)
    known = [
        one.name for one in await runtime.control.tenants.list_tenants() if one.state != "deleted"
    ]
    found = {}
    for name in [runtime.tenant, *known]:
        async with open_tenant(runtime, name) as other:
            found[name] = (await other.storage.usage("")).total
    return found


@operation("tenants:admin")
async def suspend(runtime: Runtime, caller: Caller, /, name: str) -> Tenant:
    """Let nobody of a tenant in any more; its runs are left as a restart would leave them.

    Raises:
        NotFound: there is no such tenant.
    """
    return await _set_state(runtime, caller, name, "suspended")


@operation("tenants:admin")
async def resume(runtime: Runtime, caller: Caller, /, name: str) -> Tenant:
    """Let a suspended tenant in again; its runs go on with its next request.

    Raises:
        NotFound: there is no such tenant.
    """
    return await _set_state(runtime, caller, name, "active")


@operation("tenants:admin")
async def delete(runtime: Runtime, caller: Caller, /, name: str, *, confirm: str) -> Tenant:
    """Remove a tenant for good: its keys, records, files, workspace. Its name is used up.

    `confirm` is the name once more.

    Raises:
        NotFound: there is no such tenant.
        UsageError: the names differ; nothing was removed.
        StorageError: a place of it cannot be reached. It is suspended; delete it once more.
    """
    require_operator(runtime, caller)
    await runtime.control.tenants.get(name)
    if confirm != name:
        raise UsageError(detail="Say the name of the tenant once more as `confirm`.")
    # Deleted when nothing is left: one whose bucket or database failed half-way can be named again.
    await runtime.control.tenants.set_state(name, "suspended")
    await runtime.control.end(name)
    await delete_records(runtime, name)
    return await _set_state(runtime, caller, name, "deleted")


@stream_operation("tenants:admin")
async def export(runtime: Runtime, caller: Caller, /, name: str) -> AsyncGenerator[bytes, None]:
    """Yield all records of a tenant as JSON lines: its sessions and its memories.

    Lines before a session's own say which it is; each session by itself can be imported.

    Raises:
        NotFound: there is no such tenant.
    """
    require_operator(runtime, caller)
    if name != runtime.tenant:
        await runtime.control.tenants.get(name)
    await _note(runtime, caller, name, "exported")
    async with open_tenant(runtime, name) as other:
        async for line in export_tenant(other):
            yield line


@operation("tenants:admin")
async def erase_user(
    runtime: Runtime, caller: Caller, /, subject: str, *, tenant: str = ""
) -> list[ErasedUser]:
    """Remove everything that belongs to a user: sessions, runs, memories, outputs, keys.

    In one `tenant`, or in all. Safe to repeat, and to be repeated if it was interrupted. The
    journal of each tenant keeps the digest of the name and how much there was.

    Raises:
        NotFound: there is no such tenant.
        SessionBusy: a turn of the user does not end; ask again.
    """
    require_operator(runtime, caller)
    check_subject(subject)
    known = [one.name for one in await runtime.control.tenants.list_tenants()]
    names = [tenant] if tenant else [runtime.tenant, *known]
    found = []
    for name in names:
        async with open_tenant(runtime, name) as other:
            found.append(await erase_user_of(other, subject, by=caller.subject))
    return found


def require_operator(runtime: Runtime, caller: Caller) -> None:
    """Return for the owner and for callers of the operator's own tenant.

    Raises:
        NotPermitted: it is a caller of another tenant, whatever its scopes.
    """
    if runtime.tenant != runtime.control.operator:
        raise NotPermitted(subject=caller.subject, scope="to manage tenants")
    if caller is not OWNER and caller.tenant != runtime.control.operator:
        raise NotPermitted(subject=caller.subject, scope="to manage tenants")


async def _set_state(runtime: Runtime, caller: Caller, name: str, state: TenantState) -> Tenant:
    require_operator(runtime, caller)
    changed = await runtime.control.tenants.set_state(name, state)
    if state != "active":
        await runtime.control.end(name)
    told = {"active": "resumed"}.get(state, state)
    await _note(runtime, caller, name, told)
    return changed


async def _note(runtime: Runtime, caller: Caller, name: str, action: str) -> None:
    changed = TenantChanged(tenant=name, action=action, by=caller.subject)  # type: ignore[arg-type]
    await runtime.journal.append(SYSTEM_SESSION, [changed])
