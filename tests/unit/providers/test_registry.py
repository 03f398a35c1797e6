from __future__ import annotations

import stat
from pathlib import Path

import pytest
from aiohttp import web
from local_servers import serving

from holdfast.errors import (
    AlreadyExists,
    ConfigError,
    LLMAuthError,
    NotFound,
    SchemaTooNew,
    StorageDamaged,
    UsageError,
)
from holdfast.messages import Message, TextPart, ToolSpec
from holdfast.providers.config import ProviderConfig, make_config
from holdfast.providers.model import Finished, Model, ModelRequest
from holdfast.providers.offline import OfflineModel
from holdfast.providers.registry import ProviderRegistry
from holdfast.providers.tool_modes import ToolModeModel
from holdfast.providers.tool_probe import ProbedToolModel
from holdfast.testing.fake_server import FakeServer, Reply

KEY = "plant-ed-key-0123456789"
SECRETS = {"MINE_API_KEY": KEY, "OPENAI_API_KEY": ""}
ADD = ToolSpec(
    name="add",
    description="Add one",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)


def registry(state: Path | None, **changes: object) -> ProviderRegistry:
    return ProviderRegistry(state, lambda name: SECRETS.get(name, ""), **changes)  # type: ignore[arg-type]


def mine(server: FakeServer | None = None, **changes: object) -> ProviderConfig:
    url = server.base_url if server is not None else "https://api.example.com/v1"
    return make_config(**{"name": "mine", "base_url": url, "key_env": "MINE_API_KEY", **changes})


async def ask(model: Model, tools: tuple[ToolSpec, ...] = ()) -> Message:
    goal = Message(id="m", session_id="s", role="user", parts=(TextPart(text="Hi"),))
    async for delta in model.stream(ModelRequest(messages=(goal,), tools=tools), deltas=False):
        assert isinstance(delta, Finished)
        return delta.message
    raise AssertionError("no answer")


async def test_added_providers_come_first_and_survive_the_process(tmp_path: Path) -> None:
    await registry(tmp_path).add_provider(mine())
    listed = [config.name for config in await registry(tmp_path).list_providers()]
    assert listed[0] == "mine"
    assert listed[1:] == sorted(listed[1:])
    assert await registry(tmp_path).get_provider("mine") == mine()


async def test_the_file_is_private_and_holds_no_key(tmp_path: Path) -> None:
    await registry(tmp_path / "state").add_provider(mine(headers={"X-Title": "me"}))
    path = tmp_path / "state" / "providers.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert b"MINE_API_KEY" in path.read_bytes()
    assert KEY.encode() not in path.read_bytes()


async def test_a_planted_key_never_reaches_the_file(tmp_path: Path) -> None:
    # It has no shape of a key, so only its value gives it away.
    with pytest.raises(ConfigError):
        await registry(tmp_path).add_provider(mine(default_model=KEY))
    assert not (tmp_path / "providers.json").exists()


async def test_built_in_providers_are_protected(tmp_path: Path) -> None:
    here = registry(tmp_path)
    with pytest.raises(AlreadyExists):
        await here.add_provider(make_config(name="openai", base_url="https://evil.example/v1"))
    with pytest.raises(UsageError):
        await here.remove_provider("openai")
    await here.add_provider(mine())
    with pytest.raises(AlreadyExists):
        await here.add_provider(mine())


async def test_removing_takes_the_default_back(tmp_path: Path) -> None:
    here = registry(tmp_path)
    await here.add_provider(mine(), default=True)
    assert (await here.get_default_provider()).name == "mine"
    await here.remove_provider("mine")
    assert (await here.get_default_provider()).name == "offline"
    with pytest.raises(NotFound):
        await here.remove_provider("mine")


async def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as raised:
        await registry(tmp_path).get_provider("opnai")
    assert raised.value.context["nearest"] == "openai"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 1, "providers": [{"name": "x", "base_url": "ftp://x"}]}']
)
async def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "providers.json"
    path.write_text(text)
    with pytest.raises(StorageDamaged):
        await registry(tmp_path).list_providers()
    with pytest.raises(StorageDamaged):
        await registry(tmp_path).add_provider(mine())
    assert path.read_text() == text


async def test_a_file_of_a_newer_holdfast_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "providers.json").write_text('{"version": 9}')
    with pytest.raises(SchemaTooNew):
        await registry(tmp_path).list_providers()


async def test_the_default_follows_what_is_set(tmp_path: Path) -> None:
    def keys(name: str) -> str:
        return "k" if name == "ANTHROPIC_API_KEY" else ""

    assert (await ProviderRegistry(tmp_path, keys).get_default_provider()).name == "anthropic"
    url = {"openai": "http://127.0.0.1:9/v1"}
    moved = await ProviderRegistry(tmp_path, keys, overrides=url).get_default_provider()
    assert (moved.name, moved.base_url, moved.is_key_required) == ("openai", url["openai"], False)
    named = ProviderRegistry(tmp_path, keys, default="groq")
    assert (await named.get_default_provider()).name == "groq"


async def _models(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Authorization") != f"Bearer {KEY}":
        text = f"bad key {request.headers.get('Authorization')}"
        return web.json_response({"error": {"message": text}}, status=401)
    return web.json_response({"data": [{"id": "one"}, {"id": "two"}]})


async def test_a_provider_is_valid_when_it_really_answers() -> None:
    SECRETS["WRONG_API_KEY"] = "wrong-key-9876543210"
    async with serving(v1_models=_models) as url:
        here = registry(None)
        assert await here.validate_provider(mine(base_url=url)) is True
        check = await here.check_provider(mine(base_url=url))
        assert check.models == ("one", "two")
        refused = mine(base_url=url, key_env="WRONG_API_KEY")
        wrong = await here.check_provider(refused)
        assert (wrong.is_ok, wrong.code) == (False, "llm.auth")
        assert await here.validate_provider(refused) is False
        for key in SECRETS.values():
            assert not key or key not in f"{wrong} {check}"
        await here.close()


async def _page(request: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>", content_type="text/html")


async def _elsewhere(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("http://127.0.0.1:1/")


@pytest.mark.parametrize("body", [_page, _elsewhere, [], {"data": 3}])
async def test_something_else_at_the_address_is_no_provider(body: object) -> None:
    async with serving(v1_models=body) as url:
        here = registry(None)
        assert await here.validate_provider(mine(base_url=url)) is False
        await here.close()


async def _chat(request: web.Request) -> web.StreamResponse:
    said = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return web.json_response({"choices": [said]})


async def test_a_provider_without_a_list_is_asked_a_tiny_question() -> None:
    async with serving(v1_chat_completions=_chat) as url:
        here = registry(None)
        assert await here.validate_provider(mine(base_url=url, api="chat", default_model="m"))
        unnamed = await here.check_provider(mine(base_url=url, api="chat"))
        assert (unnamed.is_ok, unnamed.code) == (False, "llm.not_found")
        assert "Name a model" in unnamed.hint and url in unnamed.hint
        named = await here.check_provider(mine(base_url=url, api="chat"), model="m")
        assert named.is_ok
        await here.close()


async def _chat_of_one(request: web.Request) -> web.StreamResponse:
    if (await request.json())["model"] != "one":
        return web.json_response({"error": {"message": "no such model"}}, status=404)
    return await _chat(request)


async def test_a_model_that_is_named_is_asked_whatever_is_listed() -> None:
    async with serving(v1_models=_models, v1_chat_completions=_chat_of_one) as url:
        here = registry(None)
        config = mine(base_url=url, api="chat")
        assert (await here.check_provider(config, model="one")).is_ok
        missing = await here.check_provider(config, model="nobody")
        assert (missing.is_ok, missing.code) == (False, "llm.not_found")
        await here.close()


async def test_a_provider_that_is_not_there_is_told_with_a_reason() -> None:
    async with FakeServer() as server:
        gone = mine(server)
    here = registry(None)
    check = await here.check_provider(gone)
    assert (check.is_ok, check.code) == (False, "llm.connection")
    assert gone.base_url in check.hint
    await here.close()


async def test_a_missing_key_is_told_before_anything_is_sent() -> None:
    async with FakeServer() as server:
        here = registry(None)
        wanted = mine(server, key_env="OTHER_KEY", is_key_required=True)
        check = await here.check_provider(wanted)
        assert (check.code, "OTHER_KEY" in check.hint) == ("llm.auth", True)
        assert server.requests == []
        with pytest.raises(LLMAuthError):
            here.open_model(wanted, "m")
        await here.close()


async def test_the_key_is_looked_up_for_each_request() -> None:
    keys = {"MINE_API_KEY": "old"}
    async with FakeServer([Reply(text="a"), Reply(text="b")]) as server:
        here = ProviderRegistry(None, lambda name: keys.get(name, ""))
        model = here.open_model(mine(server, api="chat"), "m")
        await ask(model)
        keys["MINE_API_KEY"] = "new"
        await ask(model)
        sent = [request.headers["authorization"] for request in server.requests]
        assert sent == ["Bearer old", "Bearer new"]
        await here.close()


async def test_responses_or_chat_is_remembered_between_processes(tmp_path: Path) -> None:
    answers = [Reply(text="a"), Reply(text="b")]
    async with FakeServer(answers, wires=("chat",), key=KEY) as server:
        for _ in range(2):
            here = registry(tmp_path)
            assert (await ask(here.open_model(mine(server), "fake-model"))).text
            await here.close()
        paths = [request.path for request in server.requests]
    assert paths == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]
    assert KEY.encode() not in (tmp_path / "endpoints.json").read_bytes()


async def test_chat_can_be_forced() -> None:
    async with FakeServer([Reply(text="a"), Reply(text="b")], key=KEY) as server:
        here = registry(None, force_chat=True)
        await ask(here.open_model(mine(server), "m"))
        await ask(here.open_model(mine(server, api="responses"), "m"))
        assert {request.path for request in server.requests} == {"/v1/chat/completions"}
        await here.close()


def test_a_model_is_wrapped_as_its_provider_needs() -> None:
    here = registry(None)
    assert isinstance(here.open_model(mine(tool_modes={"*": "prompted"}), "m"), ToolModeModel)
    assert isinstance(here.open_model(mine(is_local=True), "m"), ProbedToolModel)
    assert here.open_model(mine(context_window=4096), "m").info.context_window == 4096
    offline = make_config(name="off", api="offline", default_model="offline")
    assert isinstance(here.open_model(offline, ""), OfflineModel)


@pytest.mark.parametrize("tool_modes", [{}, {"*": "native"}])
async def test_a_call_written_as_text_is_rescued_on_any_compatible_server(
    tool_modes: dict[str, str],
) -> None:
    written = Reply(text='```json\n{"name": "add", "arguments": {"a": 1}}\n```')
    async with FakeServer([written] * 2, key=KEY) as server:
        here = registry(None, overrides={"openrouter": server.base_url})
        moved = await here.get_provider("openrouter")
        for config in (mine(server, tool_modes=tool_modes), moved):
            asked = config.model_copy(update={"key_env": "MINE_API_KEY"})
            message = await ask(here.open_model(asked, "m"), tools=(ADD,))
            assert [(call.tool, call.input) for call in message.tool_calls] == [("add", {"a": 1})]
        await here.close()


async def test_a_tool_mode_that_was_found_out_by_hand_is_used(tmp_path: Path) -> None:
    written = Reply(text='{"tool": "add", "arguments": {"a": 1}}')
    async with FakeServer([written], key=KEY) as server:
        registry(tmp_path).memory.set_tool_mode(server.base_url, "m", "prompted")
        here = registry(tmp_path)
        message = await ask(here.open_model(mine(server, api="chat"), "m"), (ADD,))
        await here.close()
        assert message.tool_calls
        assert "tools" not in server.requests[0].json


def test_a_provider_without_a_default_needs_a_model() -> None:
    with pytest.raises(UsageError):
        registry(None).open_model(mine(), "")


def test_keys_are_in_no_repr() -> None:
    here = registry(None)
    endpoint = here.endpoint(mine())
    assert endpoint.key.reveal() == KEY
    assert KEY not in repr(endpoint) + repr(endpoint.key) + repr(mine())


async def test_a_key_goes_with_its_address_and_not_with_a_name() -> None:
    known = registry(None)
    config = make_config(name="mine", base_url="https://Host.example/v1/", key_env="MINE_API_KEY")
    await known.add_provider(config)
    same = await known.find_endpoint_at("https://host.example:443/v1", name="earlier")
    assert (same.provider, same.key_env) == ("earlier", "MINE_API_KEY")
    for other in (
        "http://host.example/v1",
        "https://host.example:8443/v1",
        "https://host.example/v2",
        "https://host.example.evil.example/v1",
        "https://host.example@evil.example/v1",
    ):
        found = await known.find_endpoint_at(other, name="mine")
        assert (found.key_env, found.make_auth_headers()) == ("", {}), other
    with pytest.raises(ConfigError):
        await known.find_endpoint_at("file:///etc/passwd", name="mine")
