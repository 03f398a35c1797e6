"""Planted secrets appear nowhere under the state directory."""

import base64
import json
from pathlib import Path

import pytest

from holdfast.client import AsyncClient
from holdfast.messages import FilePart, TextPart, ToolPart
from holdfast.settings import load_settings

ENVIRONMENT = "planted-in-the-environment-4711"
SETTINGS = "planted-in-the-settings-0815"
FILE = "planted-in-the-secrets-file-1234"
DOTENV = "planted-in-dot-env-5678"
MODEL = "sk-" + "Ab3dEf6h" * 6
TOOL = "ghp_" + "9zY8xW7v" * 5
PASSWORD = "Pa55-in-a-url"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with secrets in every place where people keep them."""
    work = tmp_path / "work"
    (work / ".holdfast").mkdir(parents=True)
    secrets = work / ".holdfast/secrets.env"
    secrets.write_text(f"ANTHROPIC_API_KEY={SETTINGS}\nOTHER_SERVICE={FILE}\n")
    secrets.chmod(0o600)
    (work / ".env").write_text(f"SOME_TOKEN={DOTENV}\n")
    monkeypatch.chdir(work)
    monkeypatch.setenv("MY_SERVICE_TOKEN", ENVIRONMENT)
    monkeypatch.setenv("DATABASE_URL", f"postgres://app:{PASSWORD}@db/x")
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def spellings(secret: str) -> set[bytes]:
    raw = secret.encode()
    coded = {base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3)}
    return {raw, raw.replace(b"/", b"\\/"), *coded}


async def test_planted_secrets_appear_nowhere_in_the_state_directory(place: Path):
    planted = (ENVIRONMENT, SETTINGS, FILE, DOTENV, MODEL, TOOL, PASSWORD)
    everything = "\n".join(planted)
    async with AsyncClient(settings=load_settings().settings) as client:
        session = await client.create_session(title=f"about {ENVIRONMENT}")
        parts = (
            TextPart(text=f"the model says {everything}"),
            TextPart(text=json.dumps({"nested": json.dumps({"deep": everything})})),
            FilePart(media_type="text/plain", data=everything.encode()),
            ToolPart(
                call_id="c1",
                tool="bash",
                state="completed",
                input={"command": f"echo {TOOL}", TOOL: ENVIRONMENT},
                output=f"{TOOL} {PASSWORD} {FILE}",
            ),
        )
        await client.add_message(session.id, "assistant", parts)
        # Looked at while the log of the database is still there.
        check(place, planted)
        kept = (await client.list_messages(session.id)).items
        assert "[redacted:my-service-token]" in str(kept[0].parts[0])
        lines = [line async for line in client.sessions.lines(session.id)]
        for secret in planted:
            assert secret.encode() not in b"".join(lines)
    check(place, planted)


def check(state: Path, planted: tuple[str, ...]) -> None:
    files = [path for path in state.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        for secret in planted:
            for spelled in spellings(secret):
                assert spelled not in data, f"{secret} lies in {path.name} as {spelled!r}"
