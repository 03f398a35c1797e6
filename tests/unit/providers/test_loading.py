"""What is not asked for is not loaded: start-up stays light."""

from __future__ import annotations

import re
import subprocess
import sys

from holdfast.providers.lazy_patterns import compile_on_use

HEAVY = {"aiohttp", "yarl", "genai_prices", "litellm"}

ASK = """
import asyncio, sys
from holdfast.providers import ProviderRegistry, resolve_model
from holdfast.providers.probe import Candidate

registry = ProviderRegistry(None, lambda name: "")
nobody = Candidate("ollama", "http://127.0.0.1:1/v1")
found = asyncio.run(resolve_model(registry, {reference!r}, candidates=(nobody,)))
print(found.model.info.provider, *sys.modules)
"""


def loaded(reference: str) -> tuple[str, set[str]]:
    """Open a model in a fresh interpreter; return its provider and what is loaded then."""
    command = [sys.executable, "-c", ASK.format(reference=reference)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    provider, *modules = ended.stdout.split()
    return provider, set(modules)


def test_the_offline_model_needs_no_machinery_of_others() -> None:
    provider, modules = loaded("offline")
    assert provider == "offline"
    assert modules & HEAVY == set()


def test_looking_for_local_servers_where_none_is_needs_no_http() -> None:
    provider, modules = loaded("")
    assert provider == "offline"
    assert modules & HEAVY == set()


def test_a_model_behind_http_is_not_opened_with_the_offline_model() -> None:
    provider, modules = loaded("llamacpp:some")
    assert provider == "llamacpp"
    assert "aiohttp" in modules
    assert "holdfast.providers.offline" not in modules


def test_a_pattern_that_is_compiled_on_use_is_one() -> None:
    pattern = compile_on_use(r"(?P<word>[a-z]+)", re.IGNORECASE)
    found = pattern.search("12 AB")
    assert found is not None
    assert found["word"] == "AB"
    assert pattern.sub("-", "a1b") == "-1-"
    assert pattern.flags & re.IGNORECASE
