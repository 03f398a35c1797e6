"""Let a real Prometheus scrape a real server, and ask it what the alerts and the dashboard ask."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from machine import program  # noqa: E402 - beside the tests

from holdfast.client import find_token  # noqa: E402
from holdfast.server import create_app  # noqa: E402
from holdfast.server.process import make_server  # noqa: E402
from holdfast.settings import load_settings  # noqa: E402

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: holdfast
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""


def check(words: list[str], given: bytes = b"") -> None:
    """Run a check, and show what it says."""
    done = subprocess.run(words, input=given, capture_output=True, check=False)
    told = (done.stdout + done.stderr).decode().strip()
    sys.stdout.write(f"{' '.join(words[:3])}: {told or 'clean'}\n")
    # promtool ends with 3 where it only advises; nothing of ours needs advice.
    assert done.returncode == 0, told


def list_expressions() -> list[str]:
    """Return what the dashboard asks."""
    board = json.loads((ROOT / "deploy/grafana/holdfast.json").read_text())
    found = [one["expr"] for panel in board["panels"] for one in panel["targets"]]
    return [one.replace("$__rate_interval", "1m") for one in found]


async def ask(http: aiohttp.ClientSession, url: str, query: str) -> list[dict[str, object]]:
    """Return what Prometheus answers to a query."""
    async with http.get(f"{url}/api/v1/query", params={"query": query}) as response:
        answer = await response.json()
    assert answer["status"] == "success", (query, answer)
    found: list[dict[str, object]] = answer["data"]["result"]
    return found


async def wait_for(http: aiohttp.ClientSession, url: str, query: str) -> float:
    """Return the first value that Prometheus has for a query."""
    for _ in range(120):
        try:
            if found := await ask(http, url, query):
                return float(found[0]["value"][1])  # type: ignore[index]
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.5)
    raise AssertionError(f"{query} was never answered")


async def main() -> None:  # noqa: PLR0915 - one after the other, as it is read
    """Serve, scrape, ask."""
    promtool = program("promtool", "prometheus")
    rules = ROOT / "deploy/prometheus/alerts.yml"
    check([promtool, "check", "rules", str(rules)])
    place = Path(tempfile.mkdtemp(prefix="holdfast-monitoring-"))
    chosen = {"storage.state_dir": str(place), "workspace": str(place), "server.port": 0}
    ready = asyncio.Event()
    server = make_server(
        create_app(load_settings(overrides=chosen).settings), lambda _: ready.set()
    )
    serving = asyncio.create_task(server.serve())
    await ready.wait()
    token = find_token(place)
    headers = {"Authorization": f"Bearer {token}"}
    prometheus = None
    try:
        async with aiohttp.ClientSession(headers=headers) as http:

            async def scrape() -> bytes:
                async with http.get(server.url + "/metrics") as response:
                    assert response.status == 200
                    return await response.read()

            await scrape()
            body = {"user_message": "What is 15 times 23?"}
            for _ in range(3):
                async with http.post(server.url + "/v1/runs/wait", json=body) as response:
                    assert response.status == 200, await response.text()
            check([promtool, "check", "metrics"], await scrape())
            config = place / "prometheus.yml"
            target = server.url.removeprefix("http://")
            config.write_text(CONFIG.format(rules=rules, token=token, target=target))
            check([promtool, "check", "config", str(config)])
            port = 19_090 + os.getpid() % 1000
            url = f"http://127.0.0.1:{port}"
            prometheus = await asyncio.create_subprocess_exec(
                program("prometheus", "prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={place / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            )
            runs = await wait_for(http, url, 'holdfast_runs_total{status="completed"}')
            assert runs == 3, runs
            assert await wait_for(http, url, 'up{job="holdfast"}') == 1
            for expression in list_expressions():
                await ask(http, url, expression)
            async with http.get(f"{url}/api/v1/rules") as response:
                groups = (await response.json())["data"]["groups"]
            health = {one["health"] for group in groups for one in group["rules"]}
            assert health <= {"ok", "unknown"}, groups
            sys.stdout.write(
                f"Prometheus scraped {runs:.0f} runs; every expression can be asked.\n"
            )
    finally:
        if prometheus is not None:
            prometheus.terminate()
            await prometheus.wait()
        server.should_exit = True
        await serving
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main())
