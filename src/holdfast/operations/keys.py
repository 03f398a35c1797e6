"""API keys: make, list, rotate, revoke; and the browsers that logged in with them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from holdfast.errors import NotPermitted, UsageError
from holdfast.identity import ApiKey, CreatedKey, Login, check_scopes, expand_roles
from holdfast.journal import SYSTEM_SESSION
from holdfast.operations.caller import ALL_OWNERS, OWNER, Caller
from holdfast.operations.operation import operation
from holdfast.runtime import KeyChanged, LoginEnded, Runtime

_BESIDES = frozenset({ALL_OWNERS, "debug:read", "metrics:read"})
"""Scopes that no operation asks for by itself."""


@operation("keys:admin")
async def create(
    runtime: Runtime,
    caller: Caller,
    /,
    name: str,
    *,
    roles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    subject: str = "",
    ttl_s: float | None = None,
    tenant: str = "",
) -> CreatedKey:
    """Make a key and return it with its secret, which is shown this once and kept nowhere.

    `roles` are viewer, operator, developer, admin; `scopes` such as `runs:write` or
    `runs:write:helper` add to them. Requests with the key are made in the name of `subject`, or
    else of the key itself; another subject than one's own needs the scope `sessions:all`. No
    caller gives more than it has. The operator may make keys of another `tenant`.

    Raises:
        UsageError: it would give nothing, or something of it cannot be meant.
        NotPermitted: it would give what the caller does not have.
        NotFound: there is no such tenant.
    """
    if subject and not caller.may_see(subject):
        raise NotPermitted(subject=caller.subject, scope=ALL_OWNERS)
    check_known(check_scopes(scopes))
    wanted = expand_roles(roles, scopes)
    for scope in sorted(wanted):
        if not _has(caller, scope):
            raise NotPermitted(subject=caller.subject, scope=scope)
    chosen = await _find_tenant(runtime, caller, tenant)
    made = await runtime.control.keys.create(
        name,
        tenant=chosen,
        subject=subject,
        roles=roles,
        scopes=scopes,
        ttl_s=ttl_s,
        created_by=caller.subject,
    )
    await _note(runtime, caller, made.key, "created")
    return made


@operation("keys:read")
async def list_(runtime: Runtime, caller: Caller, /, *, tenant: str = "") -> list[ApiKey]:
    """Return the keys of the tenant, oldest first, revoked and expired ones too; no secrets.

    Raises:
        NotFound: there is no such tenant.
    """
    return await runtime.control.keys.list_keys(await _find_tenant(runtime, caller, tenant))


@operation("keys:admin")
async def rotate(
    runtime: Runtime,
    caller: Caller,
    /,
    key_id: str,
    *,
    grace_s: float = 0.0,
    tenant: str = "",
) -> CreatedKey:
    """Make a key in the place of another one, with the same rights, subject and time to live.

    The old one goes on for `grace_s`, so that those who use it can be given the new one.

    Raises:
        NotFound: there is no such key.
        UsageError: it is revoked or expired.
        NotPermitted: it has rights that the caller does not have, or is of another subject.
    """
    chosen = await _find_tenant(runtime, caller, tenant)
    old = await runtime.control.keys.get(key_id, tenant=chosen)
    if not caller.may_see(old.subject):
        raise NotPermitted(subject=caller.subject, scope=ALL_OWNERS)
    for scope in sorted(old.all_scopes):
        if not _has(caller, scope):
            raise NotPermitted(subject=caller.subject, scope=scope)
    made = await runtime.control.keys.rotate(key_id, tenant=chosen, grace_s=grace_s)
    await _note(runtime, caller, made.key, "rotated")
    return made


@operation("keys:admin")
async def revoke(runtime: Runtime, caller: Caller, /, key_id: str, *, tenant: str = "") -> ApiKey:
    """End a key at once and for good; safe to repeat.

    Servers in other processes hear of it within a second.

    Raises:
        NotFound: there is no such key.
    """
    chosen = await _find_tenant(runtime, caller, tenant)
    ended = await runtime.control.keys.revoke(key_id, tenant=chosen)
    await _note(runtime, caller, ended, "revoked")
    return ended


@operation("keys:read")
async def list_logins(runtime: Runtime, caller: Caller, /, *, tenant: str = "") -> list[Login]:
    """Return the browsers that are logged in to the tenant, oldest first; no secrets.

    Raises:
        NotFound: there is no such tenant.
    """
    return await runtime.control.logins.list_logins(await _find_tenant(runtime, caller, tenant))


@operation("keys:admin")
async def end_login(
    runtime: Runtime, caller: Caller, /, login_id: str, *, tenant: str = ""
) -> Login:
    """Log a browser out. Servers in other processes hear of it within a second.

    Raises:
        NotFound: there is no such login, or it has ended.
    """
    chosen = await _find_tenant(runtime, caller, tenant)
    ended = await runtime.control.logins.revoke(login_id, tenant=chosen)
    noted = LoginEnded(login_id=ended.id, subject=ended.subject, by=caller.subject)
    await runtime.journal.append(SYSTEM_SESSION, [noted])
    return ended


def check_known(scopes: Iterable[str]) -> None:
    """Return if each scope is one that some operation needs; raises UsageError."""
    from holdfast.operations.table import list_operations  # noqa: PLC0415 - it lists this module

    table = list_operations().values()
    known = {one.scope for one in table} | {s for one in table for s in one.rights.also.values()}
    known |= _BESIDES
    kinds = {scope.partition(":")[0] for scope in known}
    for scope in scopes:
        kind, _, rest = scope.partition(":")
        verb = rest.partition(":")[0]
        if scope == "*" or (kind in kinds and verb == "*") or f"{kind}:{verb}" in known:
            continue
        near = difflib.get_close_matches(f"{kind}:{verb}", sorted(known), n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(detail=f"No operation needs the scope {scope!r}.{meant}")


def _has(caller: Caller, scope: str) -> bool:
    """Say whether a caller may hand a scope on: it has it, at least as widely."""
    if caller is OWNER or "*" in caller.scopes or scope in caller.scopes:
        return True
    kind, _, rest = scope.partition(":")
    verb, _, agent = rest.partition(":")
    if verb == "*":
        given = {f"{kind}:*"} | ({f"{kind}:*:{agent}"} if agent else set())
        return bool(given & caller.scopes)
    return scope != "*" and caller.may(f"{kind}:{verb}", agent)


async def _find_tenant(runtime: Runtime, caller: Caller, tenant: str) -> str:
    """Return whose keys are meant: one's own tenant's, or for the operator another one's."""
    if not tenant or tenant == runtime.tenant:
        return runtime.tenant
    from holdfast.operations.tenants import require_operator  # noqa: PLC0415 - beside this one

    require_operator(runtime, caller)
    return (await runtime.control.tenants.get(tenant)).name


async def _note(runtime: Runtime, caller: Caller, key: ApiKey, action: str) -> None:
    changed = KeyChanged(
        key_id=key.id,
        action=action,  # type: ignore[arg-type]
        name=key.name,
        subject=key.subject,
        by=caller.subject,
        replaces=key.rotated_from if action == "rotated" else "",
    )
    await runtime.journal.append(SYSTEM_SESSION, [changed])
