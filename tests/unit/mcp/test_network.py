"""Servers are reached as the network rules say, and nobody reaches out through them further."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import NetworkFailed, PermissionDenied
from holdfast.mcp.network import check_caller, check_process, resolve_endpoint
from holdfast.policy import PolicyBundle, Rights, RuleSet
from holdfast.policy.files import NetworkFile, ToolsFile
from holdfast.sessions import PermissionRule
from holdfast.settings.mcp import McpEndpoint

FAR = McpEndpoint(transport="http", url="https://mcp.example.org/mcp")
LOCAL = McpEndpoint(transport="http", url="http://127.0.0.1:8000/mcp")
BOXED = McpEndpoint(transport="stdio", command="x")
RAW = McpEndpoint(transport="stdio", command="x", sandbox="network")


def policies(**network: Any) -> PolicyBundle:
    return PolicyBundle(network=NetworkFile(**network), is_net_allowed=True)


def looked_up(*addresses: str) -> Any:
    async def lookup(host: str, port: int) -> list[str]:
        return list(addresses)

    return lookup


OPEN = policies(allow_net=True, allowed_hosts=["*.example.org"])


async def test_allowed_host_is_reached_at_an_address_that_was_checked() -> None:
    assert await resolve_endpoint(FAR, OPEN, looked_up("93.184.216.34")) == "93.184.216.34"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_name_of_a_private_address_is_refused(address: str) -> None:
    with pytest.raises(PermissionDenied):
        await resolve_endpoint(FAR, OPEN, looked_up("93.184.216.34", address))


@pytest.mark.parametrize(
    "bundle",
    [
        PolicyBundle(),
        policies(allow_net=True),
        policies(allow_net=True, allowed_hosts=["*"], blocked_hosts=["mcp.example.org"]),
        PolicyBundle(network=NetworkFile(allow_net=True, allowed_hosts=["*"])),
    ],
    ids=["closed", "not listed", "blocked", "ALLOW_NET is off"],
)
async def test_host_that_is_not_allowed_is_refused(bundle: PolicyBundle) -> None:
    with pytest.raises(PermissionDenied):
        await resolve_endpoint(FAR, bundle, looked_up("93.184.216.34"))


async def test_host_without_an_address_fails() -> None:
    with pytest.raises(NetworkFailed):
        await resolve_endpoint(FAR, OPEN, looked_up())


async def test_this_machine_is_reached_though_the_network_is_closed() -> None:
    assert await resolve_endpoint(LOCAL, PolicyBundle()) == "127.0.0.1"
    blocked = policies(allow_net=True, blocked_hosts=["127.0.0.1"])
    with pytest.raises(PermissionDenied):
        await resolve_endpoint(LOCAL, blocked)


async def test_localhost_that_is_somewhere_else_is_refused() -> None:
    named = McpEndpoint(transport="http", url="http://localhost:8000/mcp")
    with pytest.raises(PermissionDenied):
        await resolve_endpoint(named, PolicyBundle(), looked_up("10.0.0.1"))


def test_program_has_a_network_only_by_the_operators_grant() -> None:
    check_process("x", BOXED, PolicyBundle())
    check_process("x", RAW, policies(allow_net=True, raw_processes=True))
    check_process("x", RAW, policies(allow_net=True, allowed_hosts=["*"]))
    for bundle in (
        PolicyBundle(),
        policies(allow_net=True, allowed_hosts=["a.example"]),
        policies(raw_processes=True),
        policies(allow_net=True, allowed_hosts=["*"], blocked_hosts=["a.example"]),
    ):
        with pytest.raises(PermissionDenied):
            check_process("x", RAW, bundle)


def rights(*rules: tuple[str, str, str], parent: Rights | None = None) -> Rights:
    made = [PermissionRule(permission=p, pattern=q, action=a) for p, q, a in rules]
    return Rights(agent=RuleSet(rules=tuple(made)), parent=parent)


def is_let(endpoint: McpEndpoint, given: Rights, bundle: PolicyBundle = OPEN) -> bool:
    try:
        check_caller("x", endpoint, bundle, given, ("top", "low"))
    except PermissionDenied:
        return False
    return True


KEPT_AWAY = rights(("network", "*.example.org", "deny"))


def test_rules_about_the_network_hold_for_calls_through_a_server() -> None:
    assert is_let(FAR, rights())
    assert is_let(FAR, rights(("*", "*", "deny")))  # the call itself was judged by the gate
    assert not is_let(FAR, KEPT_AWAY)
    assert not is_let(FAR, rights(parent=KEPT_AWAY))
    assert not is_let(FAR, rights(("network", "*", "allow"), parent=KEPT_AWAY))
    assert not is_let(FAR, rights(("network", "*", "ask")))
    assert is_let(BOXED, KEPT_AWAY)
    assert not is_let(RAW, rights(("network", "*", "deny")))
    assert not is_let(LOCAL, rights(("network", "127.0.0.1", "deny")))
    assert is_let(LOCAL, rights(), PolicyBundle())


def test_operators_rule_for_one_agent_holds_for_who_works_for_it() -> None:
    rule = {"permission": "network", "pattern": "mcp.example.org", "action": "deny"}
    tools = ToolsFile.model_validate({"agents": {"top": {"rules": [rule]}}})
    bundle = PolicyBundle(tools=tools, network=OPEN.network, is_net_allowed=True)
    assert not is_let(FAR, rights(), bundle)
