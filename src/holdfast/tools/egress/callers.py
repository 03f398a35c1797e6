"""What an agent's own rules say about the network, for ways out that are no call of a tool."""

from __future__ import annotations

import functools

from holdfast.errors import PermissionDenied
from holdfast.policy import CallRequest, Rights, RuleSet, clean_name, decide


def check_network_rights(host: str, ceiling: RuleSet, rights: Rights, *, label: str = "") -> None:
    """Return if the rules about the network let a caller reach a host; `*` stands for any.

    That a tool may be called says nothing about the network: whoever is kept away from a host is
    kept away from it here too, and so is whoever works for them. What asks is refused: nobody
    can be asked in the middle of a connection.

    Raises:
        PermissionDenied: a rule of the operator, of the agent, of the session, or of an agent
            above keeps the caller away; it is said of `label`, if given.
    """
    request = CallRequest(
        permission="network", targets=(host,), target_kind="host", default="allow"
    )
    own = _select_network_rules(rights)
    decision = decide(request, _find_named_rules(ceiling), own.parent, own.agent, own.session)
    if decision.action != "allow":
        raise PermissionDenied(
            permission="network", target=label or host, because=decision.explain()
        )


def _select_network_rules(rights: Rights) -> Rights:
    parent = _select_network_rules(rights.parent) if rights.parent is not None else None
    return Rights(
        agent=_find_named_rules(rights.agent),
        session=_find_named_rules(rights.session),
        parent=parent,
        is_handed=rights.is_handed,
    )


@functools.lru_cache(maxsize=512)
def _find_named_rules(rules: RuleSet) -> RuleSet:
    """Those rules that name the network; a rule for `*` is about calls, which were judged."""
    kept = tuple(rule for rule in rules.rules if clean_name(rule.permission) == "network")
    also = tuple(_find_named_rules(other) for other in rules.also)
    return RuleSet(rules=kept, also=also, is_filter=rules.is_filter)


__all__ = ["check_network_rights"]
