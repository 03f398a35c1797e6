"""The proxy of sandboxed programs: the only way out of a filtered network.

A program in a filtered sandbox has a network of loopback only, in which one port leads here.
What it asks for is read strictly (`http_head`, `client_hello`), judged by name and by every
resolved address (`rules`), counted, bounded and kept in the journal (`proxy`, `events`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.tools.egress.callers import check_network_rights as check_network_rights
    from holdfast.tools.egress.events import EgressClosed as EgressClosed
    from holdfast.tools.egress.events import EgressOpened as EgressOpened
    from holdfast.tools.egress.events import EgressRefused as EgressRefused
    from holdfast.tools.egress.proxy import EgressLimits as EgressLimits
    from holdfast.tools.egress.proxy import EgressProxy as EgressProxy
    from holdfast.tools.egress.proxy import EgressRefusal as EgressRefusal
    from holdfast.tools.egress.rules import EgressRules as EgressRules
    from holdfast.tools.egress.rules import HostGrant as HostGrant
    from holdfast.tools.egress.rules import read_grant as read_grant
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "callers": "check_network_rights",
            "events": "EgressClosed EgressOpened EgressRefused",
            "proxy": "EgressLimits EgressProxy EgressRefusal",
            "rules": "EgressRules HostGrant read_grant",
        },
    )
