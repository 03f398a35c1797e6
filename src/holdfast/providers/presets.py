"""Providers that need no configuration beyond a key or a running server."""

from __future__ import annotations

from functools import cache

from holdfast.providers.config import ProviderConfig

OFFLINE = "offline"
LOCAL_SERVERS = ("lmstudio", "ollama", "llamacpp")
"""Presets that are looked for on this machine, in this order."""


@cache
def list_presets() -> dict[str, ProviderConfig]:
    """Return the built-in providers by name; they can be neither replaced nor removed."""
    known = [*_list_clouds(), *_list_locals(), *_list_in_process()]
    return {config.name: config for config in known}


def _list_clouds() -> list[ProviderConfig]:
    return [
        _make_cloud("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "gpt-5.2"),
        ProviderConfig(
            name="anthropic",
            api="anthropic",
            base_url="https://api.anthropic.com/v1",
            key_env="ANTHROPIC_API_KEY",
            is_key_required=True,
            default_model="claude-sonnet-5-5",
        ),
        _make_cloud(
            "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter/auto"
        ),
        _make_cloud(
            "groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "openai/gpt-oss-120b"
        ),
        ProviderConfig(
            name="mistral",
            api="chat",
            base_url="https://api.mistral.ai/v1",
            key_env="MISTRAL_API_KEY",
            is_key_required=True,
            default_model="mistral-medium-latest",
            max_tokens_field="max_tokens",
        ),
        ProviderConfig(
            name="deepseek",
            api="chat",
            base_url="https://api.deepseek.com",
            key_env="DEEPSEEK_API_KEY",
            is_key_required=True,
            default_model="deepseek-v4-flash",
            max_tokens_field="max_tokens",
            reasoning_back=True,
        ),
        ProviderConfig(
            name="gemini",
            api="chat",
            base_url="https://generativelanguage.googleapis.com/v1beta/openai",
            key_env="GEMINI_API_KEY",
            is_key_required=True,
            default_model="gemini-3.8-flash",
        ),
    ]


def _list_locals() -> list[ProviderConfig]:
    return [
        _make_local("lmstudio", 1234, "LMSTUDIO_API_KEY"),
        _make_local("ollama", 11434, "OLLAMA_API_KEY"),
        _make_local("llamacpp", 8080, "LLAMACPP_API_KEY"),
        _make_local("vllm", 8000, "VLLM_API_KEY"),
    ]


def _list_in_process() -> list[ProviderConfig]:
    return [
        ProviderConfig(name="gguf", api="gguf", is_local=True, tool_modes={"*": "json_schema"}),
        ProviderConfig(name="litellm", api="litellm"),
        ProviderConfig(name=OFFLINE, api="offline", default_model=OFFLINE, is_local=True),
    ]


def _make_cloud(name: str, base_url: str, key_env: str, model: str) -> ProviderConfig:
    return ProviderConfig(
        name=name, base_url=base_url, key_env=key_env, is_key_required=True, default_model=model
    )


def _make_local(name: str, port: int, key_env: str) -> ProviderConfig:
    return ProviderConfig(
        name=name,
        base_url=f"http://127.0.0.1:{port}/v1",
        key_env=key_env,
        is_local=True,
        max_tokens_field="max_tokens",
    )
