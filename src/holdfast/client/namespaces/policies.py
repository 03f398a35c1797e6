"""`client.policies`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, policies


class PolicyNamespace(Surface[Mode]):
    """The operator's policies."""

    store = policies.store
    status = policies.status
    get = policies.get
    validate = policies.validate
    explain = policies.explain
    replay = policies.replay
    reload = policies.reload
