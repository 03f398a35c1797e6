"""`client.tenants`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, tenants


class TenantNamespace(Surface[Mode]):
    """Tenants: make, suspend, export, delete; erase a user."""

    create = tenants.create
    list = tenants.list_
    usage = tenants.usage
    suspend = tenants.suspend
    resume = tenants.resume
    delete = tenants.delete
    export = tenants.export
    erase_user = tenants.erase_user
