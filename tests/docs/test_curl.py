"""The shell examples of the pages about the server run against the real server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "tutorial/serve-your-agent.md",
    "howto/behind-a-proxy.md",
    "howto/keys.md",
    "howto/tenants.md",
    "howto/webhooks.md",
    "runbooks/server.md",
)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXPECTED = {
    "tutorial/serve-your-agent.md": (
        '"name":"build"', '"ready"', "345", '"id":"run_', "event: run.completed", "id: 5",
        '"run.completed"', "did you mean `title`?",
    ),
    "howto/behind-a-proxy.md": ("421",),
    "howto/keys.md": ('"items":[]', "developer"),
    "howto/tenants.md": ('"items":[]', "is deleted", "default"),
    "howto/webhooks.md": ("whsec_", "ATTEMPTS"),
    "runbooks/server.md": ('"ready"', "", "All is well"),
}  # fmt: skip


@pytest.fixture
def served(tmp_path: Path) -> Iterator[dict[str, str]]:
    place = {"AGENT_STATE_DIR": str(tmp_path / "state"), "AGENT_WORKSPACE": str(tmp_path)}
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | place | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    words = ["--stream-json", "serve", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
    ) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        yield environment | {"SERVER": url}
        server.terminate()
        assert server.wait(30) == 0


@pytest.mark.parametrize("page", PAGES)
def test_every_curl_example_does_what_the_page_says(page: str, served: dict[str, str]) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert len(blocks) == len(EXPECTED[page])
    script = "\n".join(f"{block}\necho; echo ---" for block in blocks)
    # A public address that needs no names to be resolved; nothing is sent there.
    script = script.replace("https://example.com/", "https://1.1.1.1/")
    ended = subprocess.run(
        ["bash", "-eu", "-c", script],
        env=served,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=served["AGENT_WORKSPACE"],
    )
    assert ended.returncode == 0, ended.stderr
    outputs = ended.stdout.split("---\n")
    for expected, output in zip(EXPECTED[page], outputs, strict=False):
        assert expected in output, output
