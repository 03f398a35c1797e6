"""Who may ask: API keys, logins of browsers, roles as sets of scopes, tenants, and the store that keeps them.

The control store is one for all tenants of a state directory. Of a key it holds the first
characters and a SHA-256, never the key; of a login a SHA-256, and its key sealed with what only
the browser has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.identity.control import ControlPlane as ControlPlane
    from holdfast.identity.keys import KEY_SUBJECTS as KEY_SUBJECTS
    from holdfast.identity.keys import ApiKey as ApiKey
    from holdfast.identity.keys import CreatedKey as CreatedKey
    from holdfast.identity.keys import KeyService as KeyService
    from holdfast.identity.keys import check_scopes as check_scopes
    from holdfast.identity.keys import check_subject as check_subject
    from holdfast.identity.keys import is_subject as is_subject
    from holdfast.identity.logins import Login as Login
    from holdfast.identity.logins import LoginService as LoginService
    from holdfast.identity.logins import make_form_token as make_form_token
    from holdfast.identity.roles import ROLES as ROLES
    from holdfast.identity.roles import expand_roles as expand_roles
    from holdfast.identity.store import ControlStore as ControlStore
    from holdfast.identity.stores.sqlite import SqliteControlStore as SqliteControlStore
    from holdfast.identity.tenants import Tenant as Tenant
    from holdfast.identity.tenants import TenantService as TenantService
    from holdfast.identity.tenants import TenantState as TenantState
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "control": "ControlPlane",
            "keys": "KEY_SUBJECTS ApiKey CreatedKey KeyService check_scopes check_subject is_subject",
            "logins": "Login LoginService make_form_token",
            "roles": "ROLES expand_roles",
            "store": "ControlStore",
            "stores.sqlite": "SqliteControlStore",
            "tenants": "Tenant TenantService TenantState",
        },
    )
