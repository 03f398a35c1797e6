"""`holdfast providers`: list, add, test and remove model providers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.errors import ConfigError
from holdfast.providers import (
    ProviderCheck,
    ProviderConfig,
    ProviderRegistry,
    ToolModeProbe,
    list_presets,
    make_config,
    make_registry,
    probe_tool_mode,
)

_T = TypeVar("_T")
_APIS = ("auto", "chat", "responses", "anthropic")
_MODES = ("native", "json_schema", "prompted")
_MAX_SHOWN = 20


@click.group("providers", cls=Group)
def command() -> None:
    """List, add, test and remove model providers."""


@command.command("list")
@pass_invocation
def list_all(invocation: Invocation) -> None:
    """Show all providers, and which of them have a key.

    Nothing is sent anywhere.
    """

    async def work(registry: ProviderRegistry) -> list[dict[str, object]]:
        default = (await registry.get_default_provider()).name
        return [
            _make_row(registry, config, default=default)
            for config in await registry.list_providers()
        ]

    rows = _run(invocation, work)
    emit(rows, columns=("name", "api", "address", "key", "model", "default"))


@command.command("add")
@click.argument("name")
@click.option("--base-url", required=True, help="Address, such as https://api.example.com/v1.")
@click.option("--api", type=click.Choice(_APIS), default="auto", show_default=True)
@click.option("--key-env", default="", help="Name of the variable that holds the key.")
@click.option("--model", default="", help="Model to use when none is named.")
@click.option("--header", "headers", multiple=True, help="Further header, as NAME=VALUE.")
@click.option("--tool-mode", type=click.Choice(_MODES), help="How its models call tools.")
@click.option("--local", is_flag=True, help="It costs nothing per token.")
@click.option("--default", "is_default", is_flag=True, help="Let bare model names mean it.")
@pass_invocation
def add(invocation: Invocation, /, name: str, is_default: bool, **options: object) -> None:
    """Add a provider; it is kept without its key.

    The key stays in the variable that --key-env names, or in the secrets file.
    """
    config = _make_config(name, options)

    async def work(registry: ProviderRegistry) -> dict[str, object]:
        await registry.add_provider(config, default=is_default)
        for caution in config.cautions(has_key=registry.has_key(config)):
            say(f"caution: {caution}", err=True)
        default = (await registry.get_default_provider()).name
        return _make_row(registry, config, default=default)

    row = _run(invocation, work)
    if not invocation.is_text:
        emit(row)
        return
    say(f"Added the provider {name}. Try it with: holdfast providers test {name}")
    if config.key_env and not row["has_key"]:
        say(f"Its key is not set yet: put it into {config.key_env}.")


@command.command("test")
@click.argument("name")
@click.option("--model", default="", help="Model to ask; by default the provider's own.")
@click.option("--tools", "tries_tools", is_flag=True, help="Find out how the model calls tools.")
@pass_invocation
@click.pass_context
def test(
    ctx: click.Context, invocation: Invocation, name: str, model: str, tries_tools: bool
) -> None:
    """Try a provider for real, and say what is wrong with it.

    Ends with 4 if the key is missing or refused, with 1 if anything else is wrong, and with 0
    if nothing wrong was found. What that rests on is said, and stands under `checked` with
    --json: an answer of the model (with --model), a list of models, a file, or no more than
    an installed package. With --tools up to three tiny questions are asked of a server's
    model, and what works is remembered.
    """

    async def work(
        registry: ProviderRegistry,
    ) -> tuple[ProviderCheck, ToolModeProbe | None, str]:
        config = await registry.get_provider(name)
        wanted = model or config.default_model
        if tries_tools and config.is_http:
            # The questions about tools ask the model; without a list it is asked at once.
            asked = config.model_copy(update={"default_model": wanted})
            check = await registry.check_provider(asked)
        else:
            check = await registry.check_provider(config, model=model)
        if not tries_tools or not check.is_ok or not config.is_http:
            return check, None, wanted
        wanted = wanted or (check.models[0] if check.models else "")
        return check, await _probe(registry, config, wanted), wanted

    check, probe, asked = _run(invocation, work)
    _print_check(invocation, check, probe, asked)
    if tries_tools and check.is_ok and probe is None:
        say("Tools were not tried: --tools asks the model of a server.", err=True)
    if not check.is_ok:
        is_key = check.code == "llm.auth"
        ctx.exit(ExitCode.AUTHENTICATION if is_key else ExitCode.FAILED)


@command.command("remove")
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a provider that was added.

    Built-in providers stay; keys are not touched.
    """

    async def work(registry: ProviderRegistry) -> None:
        await registry.remove_provider(name)

    _run(invocation, work)
    if invocation.is_text:
        say(f"Removed the provider {name}.")
    else:
        emit({"removed": name})


def _run(invocation: Invocation, work: Callable[[ProviderRegistry], Awaitable[_T]]) -> _T:
    registry = make_registry(invocation.loaded)

    async def whole() -> _T:
        try:
            return await work(registry)
        finally:
            await registry.close()

    return run_async(whole())


def _make_config(name: str, options: dict[str, object]) -> ProviderConfig:
    headers: dict[str, str] = {}
    given = options.pop("headers")
    for header in given if isinstance(given, tuple) else ():
        key, equals, value = str(header).partition("=")
        if not equals:
            # The text is not shown: a person may have put a key there.
            raise ConfigError(detail="  - headers: write each as NAME=VALUE")
        headers[key.strip()] = value.strip()
    mode = options["tool_mode"]
    return make_config(
        name=name,
        base_url=options["base_url"],
        api=options["api"],
        key_env=options["key_env"],
        default_model=options["model"],
        is_local=options["local"],
        is_key_required=bool(options["key_env"]) and not options["local"],
        headers=headers,
        tool_modes={"*": mode} if mode else {},
    )


async def _probe(registry: ProviderRegistry, config: ProviderConfig, name: str) -> ToolModeProbe:
    plain = config.model_copy(update={"tool_modes": {"*": "native"}})
    found = await probe_tool_mode(registry.open_model(plain, name))
    if found.is_working:
        place = registry.endpoint(config).shown_url
        registry.memory.set_tool_mode(place, name, found.mode)
    return found


def _make_row(
    registry: ProviderRegistry, config: ProviderConfig, *, default: str
) -> dict[str, object]:
    has_key = registry.has_key(config)
    shown = "set" if has_key else f"{config.key_env} not set" if config.key_env else "none needed"
    if not has_key and config.key_env and not config.is_key_required:
        shown = "optional"
    return {
        "name": config.name,
        "api": config.api,
        "address": config.base_url or "in this process",
        "key": shown,
        "model": config.default_model or None,
        "default": config.name == default,
        "key_env": config.key_env,
        "has_key": has_key,
        "is_built_in": config.name in list_presets(),
        "is_local": config.is_local,
    }


def _print_check(
    invocation: Invocation, check: ProviderCheck, probe: ToolModeProbe | None, asked: str
) -> None:
    facts: dict[str, object] = {
        "provider": check.provider,
        "ok": check.is_ok,
        "checked": check.checked or None,
        "latency_ms": round(check.latency_s * 1000, 1),
        "models": list(check.models),
        "cautions": list(check.cautions),
    }
    if not check.is_ok:
        facts.update(reason=check.reason, hint=check.hint, code=check.code)
    elif check.checked not in {"answer", "built_in"}:
        facts["next"] = _ask_one(check.provider)
    if probe is not None:
        facts["tools"] = {
            "model": asked,
            "mode": probe.mode,
            "works": probe.is_working,
            "failed_before": list(probe.failures),
        }
    if not invocation.is_text:
        emit(facts)
        return
    for caution in check.cautions:
        say(f"caution: {caution}", err=True)
    if not check.is_ok:
        say(f"{check.provider} cannot be used: {check.reason}")
        say(f"next: {check.hint}" if check.hint else f"code: {check.code}")
        return
    for line in _list_found(check, asked):
        say(line)
    if check.models:
        more = (
            f", and {len(check.models) - _MAX_SHOWN} more" if len(check.models) > _MAX_SHOWN else ""
        )
        say(f"models: {', '.join(check.models[:_MAX_SHOWN])}{more}")
    if probe is not None:
        works = f"{asked} calls tools in the mode {probe.mode}."
        say(works if probe.is_working else f"{asked} could not call a tool in any mode.")


def _list_found(check: ProviderCheck, asked: str) -> list[str]:
    """Say what was looked at and what was not."""
    took = f"({check.latency_s * 1000:.1f} ms)"
    not_asked = f"No model was asked; ask one with: {_ask_one(check.provider)}"
    match check.checked:
        case "answer":
            return [f"{check.provider} answers {took}: {asked} was asked a tiny question."]
        case "models":
            return [f"{check.provider} answers {took} with a list of its models.", not_asked]
        case "file":
            return [f"{check.provider}: {asked} is a GGUF file; it was not loaded.", not_asked]
        case "package":
            return [f"{check.provider}: its package is installed.", not_asked]
    return [f"{check.provider} is built in: there is nothing that could be missing."]


def _ask_one(provider: str) -> str:
    return f"holdfast providers test {provider} --model MODEL"
