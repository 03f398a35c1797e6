"""`client.audit`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, audit


class AuditNamespace(Surface[Mode]):
    """The hash chains."""

    verify = audit.verify
    heads = audit.heads
    anchor = audit.anchor
