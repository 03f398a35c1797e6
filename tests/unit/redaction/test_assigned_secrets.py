"""Secrets that are told by what they are assigned to, and the code in which there are none."""

from __future__ import annotations

import json
import random
import re
import string
from pathlib import Path

import pytest
import yaml

from holdfast import Agent, AsyncClient
from holdfast.redaction import Redactor

CORPUS = yaml.safe_load((Path(__file__).parents[2] / "corpora/assigned_secrets.yaml").read_text())
LETTERS = {
    "a": string.ascii_letters + string.digits,
    "d": string.digits,
    "h": "0123456789abcdef",
    "U": string.ascii_uppercase + string.digits,
}


def fill(text: str, seed: int) -> str:
    source = random.Random(seed)

    def choose(found: re.Match[str]) -> str:
        count = int(found[2])
        made = "".join(source.choice(LETTERS[found[1]]) for _ in range(count))
        return made[:-2] + "x7" if count >= 6 and found[1] in "ah" and made.isalnum() else made

    return re.sub(r"\{([adhU])(\d+)\}", choose, text).replace("x7", "d7")


@pytest.mark.parametrize("case", CORPUS["found"], ids=lambda case: case["text"][:30])
def test_what_is_assigned_is_found_in_text_and_in_json(case: dict[str, str]) -> None:
    redactor = Redactor()
    for seed in range(5):
        text = fill(case["text"], seed)
        clean = redactor.text(text)
        assert f"[redacted:{case['name']}]" in clean, text
        assert redactor.text(clean) == clean
        packed = json.dumps({"command": text}).encode()
        assert json.loads(redactor.json(packed))["command"] == clean


@pytest.mark.parametrize("text", CORPUS["left"])
def test_code_that_only_speaks_of_secrets_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


def test_a_value_is_judged_by_its_key_in_json() -> None:
    redactor = Redactor()
    given = {"db": {"password": "kq8#Lw2xZ", "user": "kq8#Lw2xZ", "password_field": "login"}}
    clean = json.loads(redactor.json(json.dumps(given).encode()))
    assert clean["db"] == {
        "password": "[redacted:password]", "user": "kq8#Lw2xZ", "password_field": "login",
    }  # fmt: skip
    token = {"auth_token": "0f3c9a7be1d24c55a8e6b1f20d9c7e31"}
    assert redactor.value(token) == {"auth_token": "[redacted:secret]"}
    assert redactor.value({"token": "next page"}) == {"token": "next page"}
    assert redactor.value({"token": f"ghp_{'a1' * 18}"}) == {"token": "[redacted:github-token]"}


async def test_no_secret_of_an_agent_is_stored_or_exported(tmp_path: Path) -> None:
    value = fill("{a14}", 3)
    prompt = f'Log in with password = "{value}" and TWILIO_AUTH_TOKEN={fill("{h32}", 4)}.'
    async with AsyncClient(tmp_path / "state") as client:
        await client.register_agent(Agent("helper", prompt=prompt, description=prompt))
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert value.encode() not in data and fill("{h32}", 4).encode() not in data, file
