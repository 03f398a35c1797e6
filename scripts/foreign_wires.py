"""Run the wire conformance suite against servers that other people wrote.

Called by `scripts/foreign-wires`, which installs them. llama.cpp runs a real, tiny
model; aimock plays fixtures. Both listen on loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.errors import LLMError
from holdfast.providers import (
    Api,
    Endpoint,
    HttpTransport,
    Model,
    ModelInfo,
    Secret,
    Timeouts,
    WireModel,
)
from holdfast.providers.wire import RememberedApis, ResponsesOrChat
from holdfast.testing import CHECKS, Ability

KEY = "sk-foreign-0123456789"
APIS: tuple[Api, ...] = ("chat", "responses", "anthropic")
SLOW = Timeouts(connect_s=10, first_token_s=300, idle_s=120, total_s=900)
_ALL = set(Ability)
# Declared, not sniffed: what each server is known to lack, seen with the versions of
# November 2026. SmolLM2's template has no tools, so llama.cpp cannot force a call; it
# ignores the schema on the newer two APIs and hides the limit on one of them. aimock
# counts tokens on the first API only. Neither looks at the order of messages.
_LLAMA = {Ability.IMAGES, Ability.CHECKS, Ability.FORCED_TOOLS}
LACKS: dict[tuple[str, str], set[Ability]] = {
    ("llama.cpp", "chat"): _LLAMA,
    ("llama.cpp", "responses"): _LLAMA | {Ability.JSON_SCHEMA, Ability.LIMIT},
    ("llama.cpp", "anthropic"): _LLAMA | {Ability.JSON_SCHEMA},
    ("aimock", "chat"): {Ability.CHECKS},
    ("aimock", "responses"): {Ability.CHECKS, Ability.USAGE},
    ("aimock", "anthropic"): {Ability.CHECKS, Ability.USAGE},
}
CITY = json.dumps({"city": "Bergen", "inhabitants": 290000})
FIXTURES = {
    "fixtures": [
        {
            "match": {"userMessage": "What is 15 times 23? Use the tool."},
            "response": {"toolCalls": [{"name": "multiply", "arguments": {"a": 15, "b": 23}}]},
        },
        {"match": {"userMessage": "Name a city."}, "response": {"content": CITY}},
        {
            "match": {"userMessage": "Say hello."},
            "response": {"content": "Grüße aus 東京 🦀, all is well.", "reasoning": "Be kind."},
        },
        {
            "match": {"userMessage": "Count from one to ten."},
            "response": {"content": "One", "finishReason": "length"},
        },
        {"match": {"userMessage": "What is this?"}, "response": {"content": "A pixel."}},
        {"match": {"userMessage": "Now answer in words."}, "response": {"content": "Six."}},
    ]
}


def serve_gguf(path: Path) -> None:
    """Serve a GGUF file with llama.cpp's server until the process is ended."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [KEY]
    params.n_ctx = 8192
    params.n_parallel = 4
    params.verbosity = -1
    params.use_jinja = True
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"base_url": f"{server.listening_address}/v1"}) + "\n")
    sys.stdout.flush()
    while True:
        time.sleep(3600)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a server; end it afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def line_with(process: subprocess.Popen[str], word: str) -> str:
    """Return the first line of output that holds a word."""
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise SystemExit("the server ended before it listened")


async def conform(name: str, model: Model, abilities: set[Ability]) -> int:
    """Run every check that the server's abilities allow; return how many failed."""
    failed = 0
    for check, needed in CHECKS.items():
        if not needed <= abilities:
            missing = ", ".join(sorted(ability.value for ability in needed - abilities))
            sys.stdout.write(f"  {name:<22} {check.__name__:<28} not asked (no {missing})\n")
            continue
        try:
            await asyncio.wait_for(check(model), 600)
            verdict = "ok"
        except (AssertionError, LLMError, TimeoutError, ValueError) as error:
            failed += 1
            verdict = f"FAILED {type(error).__name__}: {str(error)[:300]}"
        sys.stdout.write(f"  {name:<22} {check.__name__:<28} {verdict}\n")
        sys.stdout.flush()
    return failed


async def conform_all(name: str, base_url: str) -> int:
    """Run the suite on each wire, and once with the API found out."""
    transport = HttpTransport()
    info = ModelInfo(provider=name, model="foreign", max_output_tokens=128)
    failed = 0
    for api in APIS:
        endpoint = Endpoint(
            provider=name, base_url=base_url, api=api, key=Secret(KEY), timeouts=SLOW
        )
        model = WireModel(endpoint, "foreign", transport, info=info)
        failed += await conform(f"{name} {api}", model, _ALL - LACKS[name, api])
    endpoint = Endpoint(provider=name, base_url=base_url, key=Secret(KEY), timeouts=SLOW)
    found = ResponsesOrChat(endpoint, "foreign", transport, memory=RememberedApis(), info=info)
    # Both servers have the Responses API, so that one is found.
    failed += await conform(f"{name} detected", found, _ALL - LACKS[name, "responses"])
    await transport.close()
    return failed


def main() -> int:
    """Run what the arguments name; return 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gguf", type=Path, help="a model file for llama.cpp")
    parser.add_argument("--aimock", type=Path, help="aimock's cli.js")
    parser.add_argument("--serve", action="store_true", help="only serve the GGUF file")
    options = parser.parse_args()
    if options.serve:
        serve_gguf(options.gguf)
    failed = 0
    if options.gguf:
        command = [sys.executable, __file__, "--serve", "--gguf", str(options.gguf)]
        with running(command) as process:
            base_url = json.loads(line_with(process, "base_url"))["base_url"]
            failed += asyncio.run(conform_all("llama.cpp", base_url))
    if options.aimock:
        with tempfile.TemporaryDirectory() as folder:
            fixtures = Path(folder) / "wire.json"
            fixtures.write_text(json.dumps(FIXTURES))
            command = ["node", str(options.aimock), "-p", "0", "-f", str(fixtures), "--strict"]
            with running(command) as process:
                address = line_with(process, "http://").partition("http://")[2].split()[0]
                base_url = f"http://{address.rstrip('/')}/v1"
                failed += asyncio.run(conform_all("aimock", base_url))
    sys.stdout.write(f"{failed} checks failed\n" if failed else "all checks passed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
