from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from local_servers import serving

from holdfast.errors import LLMAuthError, LLMConnectionError, NotFound, UsageError
from holdfast.providers.config import make_config
from holdfast.providers.gguf import GgufModel
from holdfast.providers.probe import Candidate, find_local_servers
from holdfast.providers.registry import ProviderRegistry
from holdfast.providers.resolve import create_model, make_registry, resolve_model
from holdfast.settings import load_settings
from holdfast.testing.fake_server import FakeServer

NOWHERE: tuple[Candidate, ...] = ()


def listed(*names: str, owner: str = "x") -> dict[str, object]:
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "owned_by": owner} for name in names],
    }


def registry(**keys: str) -> ProviderRegistry:
    return ProviderRegistry(None, lambda name: keys.get(name, ""))


async def test_each_kind_of_server_is_known_by_its_signs() -> None:
    async with (
        serving(v1_models=listed("text-embedding-nomic", "qwen3"), api_v0_models=listed("q")) as lm,
        serving(v1_models=listed("qwen3:8b"), api_version={"version": "0.20"}) as ollama,
        serving(v1_models=listed("model.gguf", owner="llamacpp")) as llama,
    ):
        places = (
            Candidate("lmstudio", lm),
            Candidate("ollama", ollama),
            Candidate("llamacpp", llama),
        )
        found = await find_local_servers(places, timeout_s=5)
    assert [(server.provider, server.models) for server in found] == [
        ("lmstudio", ("qwen3",)),
        ("ollama", ("qwen3:8b",)),
        ("llamacpp", ("model.gguf",)),
    ]


async def _web_page(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>hello</html>", content_type="text/html")


async def _redirect(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/")


async def _locked(request: web.Request) -> web.StreamResponse:
    return web.json_response({"error": "key"}, status=401)


@pytest.mark.parametrize("provider", ["lmstudio", "ollama", "llamacpp"])
@pytest.mark.parametrize(
    "body",
    [listed("m"), {"data": "x"}, {"data": [1]}, [], listed(), _web_page, _redirect, _locked],
)
async def test_something_else_on_the_port_is_no_model_server(provider: str, body: object) -> None:
    async with serving(v1_models=body) as url:
        assert await find_local_servers((Candidate(provider, url),), timeout_s=5) == []


async def test_a_silent_server_and_a_closed_port_are_given_up_soon() -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse:
        asked.set()
        await release.wait()
        return web.Response()

    async with FakeServer() as gone:
        closed = gone.base_url
    async with serving(v1_models=silent, api_version=silent) as url:
        places = (Candidate("ollama", url), Candidate("lmstudio", closed))
        assert await find_local_servers(places, timeout_s=0.1) == []
        assert asked.is_set()
        release.set()


async def test_nothing_found_is_looked_for_again() -> None:
    answers = [listed(), listed("m", owner="llamacpp")]

    async def later(request: web.Request) -> web.StreamResponse:
        return web.json_response(answers.pop(0))

    async with serving(v1_models=later) as url:
        places = (Candidate("llamacpp", url),)
        assert await find_local_servers(places, timeout_s=5) == []
        assert len(await find_local_servers(places, timeout_s=5)) == 1


async def test_without_anything_the_offline_model_answers_and_says_so() -> None:
    found = await resolve_model(registry(), candidates=NOWHERE)
    assert (found.name, found.source) == ("offline", "offline")
    assert found.model.info.is_llm is False
    assert "NOT a language model" in found.notice
    assert "OPENAI_API_KEY" in found.notice


async def test_a_local_server_comes_before_the_offline_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However long this machine takes to answer itself.
    monkeypatch.setitem(find_local_servers.__kwdefaults__, "timeout_s", 30)
    async with serving(v1_models=listed("a", "b", owner="llamacpp")) as url:
        places = (Candidate("llamacpp", url),)
        found = await resolve_model(registry(), candidates=places)
        assert (found.name, found.source) == ("llamacpp:a", "local")
        assert url in found.notice
        assert found.provider.base_url == url
        named = await resolve_model(registry(), "b", candidates=places)
        assert named.name == "llamacpp:b"
        missing = await resolve_model(registry(), "c", candidates=places)
        assert missing.name == "llamacpp:c"
        assert "does not list" in missing.notice
        with pytest.raises(NotFound) as unknown:
            await resolve_model(registry(), "nosuch:foo", candidates=places)
        assert unknown.value.context["value"] == "nosuch"
    async with serving(v1_models=listed("qwen3:8b", owner="llamacpp")) as url:
        places = (Candidate("llamacpp", url),)
        colon = await resolve_model(registry(), "qwen3:8b", candidates=places)
        assert colon.name == "llamacpp:qwen3:8b"


async def test_keys_come_before_local_servers_and_openai_before_anthropic() -> None:
    both = await resolve_model(registry(OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k"))
    assert (both.name, both.source) == ("openai:gpt-5.2", "openai")
    one = await resolve_model(registry(ANTHROPIC_API_KEY="k"), "claude-x")
    assert (one.name, one.source) == ("anthropic:claude-x", "anthropic")
    assert "ANTHROPIC_API_KEY is set" in one.notice


async def test_what_was_asked_for_comes_first() -> None:
    here = registry(OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")
    found = await resolve_model(here, "anthropic:claude-x")
    assert (found.name, found.source) == ("anthropic:claude-x", "config")
    assert (await resolve_model(here, "offline")).model.info.is_llm is False
    assert (await resolve_model(here, "ollama:qwen3:8b")).name == "ollama:qwen3:8b"


async def test_a_server_without_default_model_is_asked_for_one() -> None:
    async with FakeServer(models=("embed-small", "chatty")) as server:
        here = ProviderRegistry(None, lambda name: "", overrides={"openai": server.base_url})
        found = await resolve_model(here)
        assert found.name == "openai:chatty"
        assert "first of 1" in found.notice
        await here.close()
    with pytest.raises(LLMConnectionError):
        await resolve_model(here)
    await here.close()


async def test_a_forgotten_end_of_an_address_is_guessed_at() -> None:
    async with FakeServer() as server:
        here = ProviderRegistry(None, lambda name: "", overrides={"openai": server.origin})
        with pytest.raises(UsageError) as raised:
            await resolve_model(here)
        await here.close()
    assert server.origin in str(raised.value)
    assert "/v1" in str(raised.value)


async def test_an_asked_model_is_never_replaced_by_the_offline_one() -> None:
    with pytest.raises(UsageError) as raised:
        await resolve_model(registry(), "gpt-5.2", candidates=NOWHERE)
    assert "OPENAI_API_KEY" in str(raised.value)
    with pytest.raises(LLMAuthError) as missing:
        await resolve_model(registry(), "openai:gpt-5.2")
    assert "OPENAI_API_KEY" in missing.value.hint


async def test_a_misspelt_provider_is_told() -> None:
    with pytest.raises(NotFound) as raised:
        await resolve_model(registry(OPENAI_API_KEY="k"), "opnai:gpt-5.2")
    assert raised.value.context["nearest"] == "openai"


async def test_a_chosen_default_provider_takes_bare_names(tmp_path: Path) -> None:
    here = ProviderRegistry(tmp_path, lambda name: "k")
    config = make_config(name="mine", base_url="https://api.example.com/v1", default_model="big")
    await here.add_provider(config, default=True)
    assert (await resolve_model(here)).name == "mine:big"
    assert (await resolve_model(here, "small")).name == "mine:small"
    assert (await resolve_model(here, "meta/small:1b")).name == "mine:meta/small:1b"
    assert (await resolve_model(here, "mine:small:1b")).name == "mine:small:1b"
    with pytest.raises(NotFound):
        await resolve_model(here, "nosuch:foo")
    await here.close()


async def test_settings_make_the_registry(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_API_KEY": "k",
        "AGENT_STATE_DIR": str(tmp_path / "state"),
        "AGENT_FORCE_CHAT_COMPLETIONS": "true",
        "GROQ_API_KEY": "g",
    }
    here = make_registry(load_settings(cwd=tmp_path, environ=environ))
    found = await resolve_model(here, "gpt-4o-mini")
    assert found.name == "openai:gpt-4o-mini"
    assert found.provider.base_url == "http://127.0.0.1:9/v1"
    assert found.notice.startswith("Using openai:gpt-4o-mini, because OPENAI_BASE_URL is set.")
    assert here.has_key(await here.get_provider("groq"))
    assert not (tmp_path / "state").exists()


async def test_a_model_is_made_from_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF....")
    model = await create_model(f"gguf:{path}", registry=registry())
    assert model.info.tool_mode == "json_schema"
    assert isinstance(model.inner, GgufModel)  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        await create_model(f"gguf:{tmp_path}/none.gguf", registry=registry())


async def test_a_misspelt_provider_is_named_as_it_is_spelt() -> None:
    with pytest.raises(NotFound) as raised:
        await resolve_model(registry(), "opnai:gpt-5", candidates=NOWHERE)
    assert raised.value.context["nearest"] == "openai"
    assert "openai" in raised.value.hint
    with pytest.raises(UsageError) as unserved:
        await resolve_model(registry(), "qwen3:8b", candidates=NOWHERE)
    assert unserved.value.code == "usage.invalid"
