from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.errors import ConfigError
from holdfast.providers.config import ProviderConfig, is_loopback, looks_like_secret, make_config
from holdfast.providers.presets import list_presets

KEY = "sk-proj-Ab3dEf6hIj9kLmN0pQrS"
URL = "https://api.example.com/v1"


@pytest.mark.parametrize(
    "text",
    [KEY, "gsk_abcdefgh12345678", "Bearer abcdefgh123", "AKIAIOSFODNN7EXAMPLE",
     "4f9a8c1e2b7d6a5f3c0e9b8a7d6c5e4f", "hf_AbCdEfGhIjKlMnOp", "eyJhbGciOiJIUzI1NiJ9.e30.x"],
)  # fmt: skip
def test_keys_are_recognised(text: str) -> None:
    assert looks_like_secret(text)


@pytest.mark.parametrize(
    "text",
    ["gpt-5.2", "claude-sonnet-5-5", "meta-llama/llama-4-maverick-17b-128e-instruct", URL,
     "https://generativelanguage.googleapis.com/v1beta/openai", "OPENROUTER_API_KEY",
     "mistral-small-24b-instruct-2501", "/home/me/models/SmolLM2-135M-Instruct.Q4_1.gguf"],
)  # fmt: skip
def test_names_and_addresses_are_no_keys(text: str) -> None:
    assert not looks_like_secret(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"key_env": KEY},
        {"key_env": "openai_api_key"},
        {"key_env": "ABCDEFGHIJKLMNOPQRST"},
        {"default_model": KEY},
        {"base_url": f"https://user:{KEY}@api.example.com/v1"},
        {"base_url": f"https://api.example.com/v1?api_key={KEY}"},
        {"base_url": "https://api.example.com/v1?token=abc"},
        {"headers": {"Authorization": "x"}},
        {"headers": {"X-Api-Key": "short"}},
        {"headers": {"X-Title": KEY}},
        {"headers": {"X-Title": "a\r\nEvil: 1"}},
        {"tool_modes": {KEY: "native"}},
        {"name": KEY.lower()},
        {KEY: "x"},
    ],
)
def test_a_key_is_refused_in_every_field_and_shown_nowhere(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as raised:
        make_config(**{"name": "mine", "base_url": URL, **fields})
    assert raised.value.code == "config.invalid"
    assert KEY.lower() not in f"{raised.value} {raised.value.to_dict()}".lower()
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x/v1", "api.example.com/v1", "file:///etc/passwd", "http://", "http://a b/",
     "https://x/v1#f", "http://x:99999/v1", "javascript:alert(1)"],
)  # fmt: skip
def test_only_http_addresses_are_taken(url: str) -> None:
    with pytest.raises(ConfigError):
        make_config(name="mine", base_url=url)


def test_a_configuration_is_frozen_and_closed() -> None:
    config = make_config(name="mine", base_url=URL)
    with pytest.raises(ValidationError):
        config.base_url = "http://x"  # type: ignore[misc]
    with pytest.raises(ConfigError):
        make_config(name="mine", base_url=URL, api_key="x")
    with pytest.raises(ConfigError):
        make_config(name="local", api="gguf", base_url=URL)


def test_plain_http_to_another_machine_is_warned_about() -> None:
    far = make_config(name="mine", base_url="http://192.168.1.5:1234/v1")
    assert "the key" in far.cautions(has_key=True)[0]
    assert "without encryption" in far.cautions(has_key=False)[0]
    for url in ("http://127.0.0.1:1/v1", "http://localhost:1/v1", "http://[::1]:1/v1", URL):
        assert make_config(name="mine", base_url=url).cautions(has_key=True) == []
    assert not is_loopback("127.0.0.1.example.com")
    assert not is_loopback("localhost.example.com")


def test_tool_modes_are_set_per_model_or_for_all() -> None:
    config = make_config(name="m", base_url=URL, tool_modes={"small": "prompted", "*": "native"})
    assert config.choose_tool_mode("small") == "prompted"
    assert config.choose_tool_mode("large") == "native"
    assert make_config(name="m", base_url=URL).choose_tool_mode("x") is None


def test_every_preset_is_there_and_sound() -> None:
    wanted = {"openai", "anthropic", "lmstudio", "ollama", "llamacpp", "vllm", "openrouter", "groq",
              "mistral", "deepseek", "gemini", "gguf", "litellm", "offline"}  # fmt: skip
    assert set(list_presets()) == wanted
    for config in list_presets().values():
        assert ProviderConfig.model_validate(config.model_dump()) == config
        assert config.base_url.startswith("http://127.0.0.1:") == (
            config.is_local and config.is_http
        )
        assert config.is_key_required == config.base_url.startswith("https://")
