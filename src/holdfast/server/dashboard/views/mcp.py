"""MCP servers: how they are set up and answer, and whether they still offer what was accepted."""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError
from holdfast.mcp import EndpointHealth, EndpointInfo
from holdfast.operations import mcp
from holdfast.server.dashboard.asks import Ask, GoTo, Shown
from holdfast.server.dashboard.listing import (
    FormAction,
    ListRow,
    PageListing,
    make_badge,
    make_code,
    make_facts,
    make_lines,
    make_link,
    make_pre,
    show_listing,
)
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import Markup, cut_text, format_count


async def _list_servers(ask: Ask) -> Shown:
    health = {}
    if "health" in ask.query:
        health = {one.name: one for one in await ask.perform(mcp.health)}
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("mcp", one.name), one.name, one.where),
                one.transport,
                _show_state(one, health.get(one.name)),
                one.sandbox,
                ", ".join(one.hosts),
            ),
            actions=() if one.trusted else (_make_trust(ask, one.name),),
        )
        for one in await ask.perform(mcp.endpoints)
    ]
    ask_all = FormAction(
        label="Ask every server",
        address=ask.link("mcp"),
        scope="mcp:read",
        method="get",
        hidden={"health": "1"},
    )
    return show_listing(
        ask,
        PageListing(
            title="MCP servers",
            about="Programs and addresses whose tools agents may use, each through the gate.",
            columns=("Server", "Transport", "State", "Sandbox", "Hosts"),
            rows=rows,
            empty="No MCP server is configured",
            next_step=Markup('<pre tabindex="0">holdfast mcp add NAME -- COMMAND</pre>'),
            forms=[("Health: latency, throttling, changed pins", ask_all)] if rows else [],
        ),
    )


def _show_state(one: EndpointInfo, well: EndpointHealth | None) -> Markup:
    if well is None:
        word = "active" if one.enabled and one.trusted else "waiting"
        why = "" if one.trusted else "not trusted yet"
        return make_badge(word) + make_lines("", why if one.enabled else "switched off")
    told = [f"{well.latency_ms or 0:.0f} ms", f"{well.tools} tools", f"{well.invocations} calls"]
    told += ["throttled"] if well.throttled else []
    told += [f"held back: {', '.join(well.held_back)}"] if well.held_back else []
    told += [well.last_error] if well.last_error else []
    return make_badge(well.status) + make_lines("", ", ".join(told))


def _make_trust(ask: Ask, name: str) -> FormAction:
    return FormAction(
        label="Trust",
        address=ask.link("mcp", name, "trust"),
        scope="mcp:admin",
        confirm="Vouch for this server as it is configured now?",
    )


async def _show_server(ask: Ask) -> Shown:
    """Show what a server offers now, beside what was accepted of it."""
    name = ask.words["name"]
    found = [one for one in await ask.perform(mcp.endpoints) if one.name == name]
    if not found:
        return GoTo(ask.link("mcp"))
    [one, *_] = found
    limit = one.rate_limit_per_minute
    facts = [
        ("Where", make_code(one.where)),
        ("Transport", one.transport),
        ("Configured in", make_code(one.source)),
        ("State", _show_state(one, None)),
        ("Sandbox", one.sandbox),
        ("Hosts", ", ".join(one.hosts)),
        ("Key from", make_code(one.auth_token_env) if one.auth_token_env else ""),
        ("Calls per minute", format_count(limit) if limit else ""),
    ]
    blocks: list[tuple[str, Any]] = [("", make_facts(facts))]
    rows: list[ListRow] = []
    try:
        offered, left_out = await ask.perform(mcp.tools, name)
    except HoldfastError as error:
        wrong = Markup('<p class="wrong">{}</p>').format(str(error))
        blocks.append(("It cannot be asked", wrong))
        offered, left_out = [], ()
    for tool in offered:
        accept = FormAction(
            label="Accept",
            address=ask.link("mcp", name, "accept"),
            scope="mcp:admin",
            hidden={"tool": tool.tool},
            confirm="Let agents use this tool as the server describes it now?",
        )
        cells = (
            make_lines(tool.name, cut_text(tool.description, 300)),
            make_badge(tool.verdict),
            tool.effect,
        )
        rows.append(ListRow(cells=cells, actions=() if tool.verdict == "accepted" else (accept,)))
    if left_out:
        lines = "\n".join([f"{each.tool}: {each.because}" for each in left_out])
        blocks.append(("What cannot be taken", make_pre(lines)))
    return show_listing(
        ask,
        PageListing(
            title=name,
            blocks=blocks,
            columns=("Tool", "Pin", "Effect"),
            rows=rows,
            empty="It offers no tool",
            next_step="A tool whose description changed since it was accepted is held back until "
            "it is accepted again.",
            forms=[] if one.trusted else [("It is not used yet", _make_trust(ask, name))],
            place="mcp",
        ),
    )


async def _trust_server(ask: Ask) -> Shown:
    await ask.perform(mcp.trust, ask.words["name"])
    return GoTo(ask.link("mcp"), "trusted")


async def _accept(ask: Ask) -> Shown:
    """Pin a tool as it is offered now."""
    name = ask.words["name"]
    await ask.perform(mcp.accept, name, [ask.form.get("tool", "")])
    return GoTo(ask.link("mcp", name), "accepted")


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "mcp", _list_servers)
    routes.add("GET", "mcp/{name}", _show_server)
    routes.add("POST", "mcp/{name}/trust", _trust_server)
    routes.add("POST", "mcp/{name}/accept", _accept)


__all__ = ["add_to"]
