"""Policies, tools, agents, skills, workflows and triggers: what is set up."""

from __future__ import annotations

from typing import Any, Final, cast

from holdfast.operations import agents, policies, skills, tools, triggers, workflows
from holdfast.server.dashboard.asks import Ask, GoTo, Shown
from holdfast.server.dashboard.charts import GraphStep, draw_graph
from holdfast.server.dashboard.listing import (
    FormAction,
    FormField,
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
from holdfast.server.dashboard.prose import render_markdown
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import (
    Markup,
    cut_text,
    format_ago,
    format_count,
    format_span,
)

_KINDS: Final = ("none", "path", "command", "host", "text")
_REPLAYED: Final = 1_000


async def _show_policies(ask: Ask) -> Shown:
    status = await ask.perform(policies.status)
    view = await ask.perform(policies.get)
    facts = [
        ("Version", make_code(status.version)),
        ("Directory", make_code(status.directory)),
        ("Files", Markup(" ").join([make_code(name) for name in status.files])),
        ("Refused", Markup(" ").join([make_code(name) for name in status.refused])),
        ("Network", "allowed" if view.is_net_allowed else "not allowed"),
    ]
    blocks: list[tuple[str, Any]] = [("In force", make_facts(facts))]
    if "check" in ask.query:
        checked = await ask.perform(policies.validate)
        word = make_badge("ok" if checked.is_valid else "failed")
        blocks.append(("Check of the files", word + make_pre("\n".join(checked.mistakes) or "ok")))
    if ask.query.get("tool"):
        blocks.append(("Explanation", await _explain(ask)))
    if "replay" in ask.query:
        blocks.append(("The last calls, judged again", await _replay(ask)))
    rules = make_pre({"tools": view.tools, "network": view.network})
    own = ask.link("policies")
    forms = [
        (
            "Explain this call",
            FormAction(
                label="Explain",
                address=own,
                scope="policies:read",
                method="get",
                fields=[
                    FormField(name="tool", label="Tool", value=ask.query.get("tool", "")),
                    FormField(
                        name="kind",
                        label="Kind of target",
                        options=_KINDS,
                        value=ask.query.get("kind", "none"),
                    ),
                    FormField(name="target", label="Target", value=ask.query.get("target", "*")),
                    FormField(name="agent", label="Agent", value=ask.query.get("agent", "")),
                ],
            ),
        ),
        (
            f"What would be decided now for the last {_REPLAYED:,} calls",
            FormAction(
                label="Judge them again",
                address=own,
                scope="policies:read",
                method="get",
                hidden={"replay": "1"},
            ),
        ),
        (
            "Check the files",
            FormAction(
                label="Check",
                address=own,
                scope="policies:read",
                method="get",
                hidden={"check": "1"},
            ),
        ),
        (
            "Read the files again",
            FormAction(
                label="Reload",
                address=ask.link("policies", "reload"),
                scope="policies:admin",
                confirm="Put the files in force as they are now?",
            ),
        ),
    ]
    return show_listing(
        ask,
        PageListing(
            title="Policies",
            about="The operator's rules: what agents may do, whatever they and their tools say.",
            blocks=blocks,
            forms=forms,
            below=[("All rules in force", rules)],
        ),
    )


async def _explain(ask: Ask) -> Markup:
    kind = ask.query.get("kind", "none")
    verdict = await ask.perform(
        policies.explain,
        ask.query["tool"],
        kind=cast(Any, kind if kind in _KINDS else "none"),
        target=ask.query.get("target", "*") or "*",
        agent=ask.query.get("agent", ""),
    )
    rules = "\n".join(
        f"{'→ ' if rule.is_decisive else '  '}{rule.source}: {rule.permission} {rule.pattern} "
        f"{rule.action}{'' if rule.is_match else ' (does not match)'}"
        for rule in verdict.rules
    )
    return (
        make_badge(verdict.action) + Markup("<p>{}</p>").format(verdict.because) + make_pre(rules)
    )


async def _replay(ask: Ask) -> Markup:
    report = await ask.perform(policies.replay, limit=_REPLAYED)
    lines = [
        f"{one.agent} {one.tool} {' '.join(one.targets)}: {one.before} → {one.after} ({one.rule})"
        for one in report.changes
    ]
    told = f"{len(lines):,} of {report.calls:,} calls would be decided differently."
    return Markup("<p>{}</p>").format(told) + (make_pre("\n".join(lines)) if lines else Markup(""))


async def _reload(ask: Ask) -> Shown:
    await ask.perform(policies.reload, asked_by=ask.by)
    return GoTo(ask.link("policies"), "reloaded")


async def _list_tools(ask: Ask) -> Shown:
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("tools", one.name), one.name, cut_text(one.purpose, 160)),
                one.effect,
                one.permission,
                ", ".join(one.tags),
                one.version,
            )
        )
        for one in await ask.perform(tools.list_)
    ]
    return show_listing(
        ask,
        PageListing(
            title="Tools",
            columns=("Tool", "Effect", "Permission", "Tags", "Version"),
            rows=rows,
            empty="No tool",
        ),
    )


async def _show_tool(ask: Ask) -> Shown:
    found = cast(dict[str, Any], await ask.perform(tools.describe_, ask.words["name"]))
    told = render_markdown(str(found.pop("description", "")))
    schema = found.pop("parameters", None) or {}
    required = schema.get("required", ())
    rows = [
        ListRow(
            cells=(
                make_code(name),
                str(one.get("type", "")) if isinstance(one, dict) else "",
                "yes" if name in required else "",
                str(one.get("description", "")) if isinstance(one, dict) else "",
            )
        )
        for name, one in schema.get("properties", {}).items()
    ]
    found.pop("name", "")
    facts = [
        (name.removesuffix("_s").replace("_", " "), _show_value(one, name))
        for name, one in found.items()
    ]
    return show_listing(
        ask,
        PageListing(
            title=ask.words["name"],
            blocks=[("", Markup('<div class="prose">{}</div>').format(told) + make_facts(facts))],
            columns=("Argument", "Type", "Needed", "Meaning"),
            rows=rows,
            empty="It takes no arguments",
            below=[("The schema of its arguments", make_pre(schema))],
            place="tools",
        ),
    )


def _show_value(value: object, name: str) -> object:
    """Return a value as a person writes it: words as they are, lists by commas."""
    if name.endswith("_s") and isinstance(value, int | float):
        return format_span(value)
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str | int | float) else make_code(value) if value else ""


async def _list_agents(ask: Ask) -> Shown:
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("agents", one.name), one.name, cut_text(one.description, 160)),
                one.model or "default",
                one.mode,
                "built in" if one.native else "added",
                one.sandbox,
            )
        )
        for one in await ask.perform(agents.list_)
    ]
    return show_listing(
        ask,
        PageListing(
            title="Agents",
            columns=("Agent", "Model", "Mode", "Origin", "Sandbox"),
            rows=rows,
            empty="No agent",
        ),
    )


async def _show_agent(ask: Ask) -> Shown:
    name = ask.words["name"]
    one = await ask.perform(agents.get, name)
    if one is None:
        return GoTo(ask.link("agents"))
    facts = [
        ("About", one.description),
        ("Model", one.model or "default"),
        ("Steps", format_count(one.steps)),
        ("Sandbox", one.sandbox),
        ("Tools", ", ".join([tool.name for tool in one.tools or ()])),
    ]
    rules = "\n".join(f"{r.permission} {r.pattern} {r.action}" for r in one.permission)
    warnings = "\n".join(
        f"{warning.text}: {warning.because}" for warning in await ask.perform(agents.check, name)
    )
    blocks: list[tuple[str, Any]] = [("", make_facts(facts))]
    blocks += [("Rules", make_pre(rules))] if rules else []
    blocks += [("Without effect", make_pre(warnings))] if warnings else []
    blocks += [("Prompt", make_pre(one.prompt))] if one.prompt else []
    return show_listing(ask, PageListing(title=name, blocks=blocks, place="agents"))


async def _list_skills(ask: Ask) -> Shown:
    found = await ask.perform(skills.list_)
    rows = [
        ListRow(
            cells=(
                make_lines(one.name, cut_text(one.description, 200)),
                one.source,
                make_badge("active" if one.is_trusted else "waiting"),
                ", ".join(one.warnings),
            ),
            actions=()
            if one.is_trusted
            else (
                FormAction(
                    label="Trust",
                    address=ask.link("skills", one.name, "trust"),
                    scope="skills:admin",
                    confirm="Vouch for this skill as it is now?",
                ),
            ),
        )
        for one in found.skills
    ]
    return show_listing(
        ask,
        PageListing(
            title="Skills",
            blocks=[("Problems", make_pre("\n".join(found.problems)))] if found.problems else [],
            columns=("Skill", "Source", "State", "Warnings"),
            rows=rows,
            empty="No skill",
            next_step="Put a folder with a `SKILL.md` below `.holdfast/skills`.",
        ),
    )


async def _trust_skill(ask: Ask) -> Shown:
    await ask.perform(skills.trust, ask.words["name"])
    return GoTo(ask.link("skills"), "trusted")


async def _list_workflows(ask: Ask) -> Shown:
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("workflows", one.name), one.name, one.path),
                make_badge("failed" if one.problem else "ok"),
                one.problem,
            )
        )
        for one in await ask.perform(workflows.list_)
    ]
    return show_listing(
        ask,
        PageListing(
            title="Workflows",
            columns=("Workflow", "State", "Problem"),
            rows=rows,
            empty="No workflow",
            next_step="Put a YAML file below `.holdfast/workflows`.",
        ),
    )


async def _show_workflow(ask: Ask) -> Shown:
    found = [one for one in await ask.perform(workflows.list_) if one.name == ask.words["name"]]
    if not found:
        return GoTo(ask.link("workflows"))
    [one, *_] = found
    data = cast(dict[str, Any], one.data or {})
    blocks: list[tuple[str, Any]] = []
    steps = data.get("steps")
    if isinstance(steps, list):
        boxes = [
            GraphStep(name=_name_step(steps, index), needs=_list_needs(steps, index))
            for index in range(len(steps))
        ]
        drawn = draw_graph(boxes, title=f"Steps of {one.name}")
        frame = '<div class="scroll" tabindex="0" role="region" aria-label="Graph">{}</div>'
        blocks.append(("Steps", Markup(frame).format(drawn)))
    blocks.append(("Definition", make_pre(one.problem or data)))
    return show_listing(ask, PageListing(title=one.name, blocks=blocks, place="workflows"))


def _list_needs(steps: list[Any], index: int) -> list[str]:
    """Return what a step waits for: what it names, else the one before it."""
    named = steps[index].get("needs", steps[index].get("depends_on"))
    if named is not None:
        return [named] if isinstance(named, str) else [str(one) for one in named]
    if index == 0:
        return []
    return [_name_step(steps, index - 1)]


def _name_step(steps: list[Any], index: int) -> str:
    return str(steps[index].get("id") or steps[index].get("name") or index)


async def _list_triggers(ask: Ask) -> Shown:
    rows = [
        ListRow(
            cells=(
                one.name,
                make_code(one.definition),
                format_count(one.fired),
                format_ago(one.time_created),
            ),
            actions=(
                FormAction(
                    label="Remove",
                    address=ask.link("triggers", one.name, "remove"),
                    scope="triggers:write",
                    confirm="Take this trigger out of force?",
                    is_danger=True,
                ),
            ),
        )
        for one in await ask.perform(triggers.list_)
    ]
    fired = "\n".join(
        f"{one.name}: {one.status} {one.run_id}"
        for one in await ask.perform(triggers.firings, limit=50)
    )
    return show_listing(
        ask,
        PageListing(
            title="Triggers",
            columns=("Trigger", "Definition", "Fired", "Since"),
            rows=rows,
            empty="No trigger is in force",
            next_step=Markup('<pre tabindex="0">holdfast triggers add FILE</pre>'),
            blocks=[("What they started", make_pre(fired))] if fired else [],
        ),
    )


async def _remove_trigger(ask: Ask) -> Shown:
    await ask.perform(triggers.remove, ask.words["name"])
    return GoTo(ask.link("triggers"), "removed")


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "policies", _show_policies)
    routes.add("POST", "policies/reload", _reload)
    routes.add("GET", "tools", _list_tools)
    routes.add("GET", "tools/{name}", _show_tool)
    routes.add("GET", "agents", _list_agents)
    routes.add("GET", "agents/{name}", _show_agent)
    routes.add("GET", "skills", _list_skills)
    routes.add("POST", "skills/{name}/trust", _trust_skill)
    routes.add("GET", "workflows", _list_workflows)
    routes.add("GET", "workflows/{name}", _show_workflow)
    routes.add("GET", "triggers", _list_triggers)
    routes.add("POST", "triggers/{name}/remove", _remove_trigger)


__all__ = ["add_to"]
