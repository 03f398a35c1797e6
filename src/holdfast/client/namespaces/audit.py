"""`client.audit`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, audit


class AuditNamespace(Surface[Mode]):
    """The audit trail and the hash chains."""

    verify = audit.verify
    heads = audit.heads
    anchor = audit.anchor
    list = audit.list_
    verify_trail = audit.verify_trail
