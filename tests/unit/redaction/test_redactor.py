"""What looks like a key is hidden, what does not is left alone."""

import base64
import json
import random
import re
import string
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import yaml

from holdfast.errors import UsageError
from holdfast.redaction import Redactor

CORPUS = yaml.safe_load((Path(__file__).parents[2] / "corpora/secrets.yaml").read_text())
LETTERS = {
    "a": string.ascii_letters + string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "h": "0123456789abcdef",
    "d": "123456789",
    "B": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
}
SECRET = 'hunter2/p"w\\x9'
PLAIN = Redactor()


def filled(text: str) -> str:
    """The text with random keys in place of `{a40}` and the like; equal ones stay equal."""
    rng = random.Random(text)

    def fill(found):
        drawn = "".join(rng.choices(LETTERS[found[1]], k=int(found[2])))
        # A key without any digit is so rare that formats may rely on one.
        return "7" + drawn[1:] if found[1] == "a" else drawn

    return re.sub(r"\{([abhdB])(\d+)\}", fill, text).replace("{{", "{").replace("}}", "}")


@pytest.mark.parametrize(
    "case", CORPUS["found"], ids=lambda case: f"{case['name']}: {case['text']}"
)
def test_key_is_hidden_in_text_and_in_json(case):
    text = filled(case["text"])
    hidden = PLAIN.text(text)
    assert f"[redacted:{case['name']}]" in hidden
    for run in re.findall(r"[A-Za-z0-9]{20,}", text):
        assert run not in hidden
    data = msgspec.json.encode({"text": text})
    assert msgspec.json.decode(PLAIN.json(data)) == {"text": hidden}


@pytest.mark.parametrize("text", CORPUS["benign"])
def test_ordinary_text_is_left_alone(text):
    text = filled(text)
    assert PLAIN.text(text) == text
    data = msgspec.json.encode([text])
    assert PLAIN.json(data) is data


@pytest.mark.parametrize("case", CORPUS["personal"], ids=lambda case: case["text"])
def test_personal_data_is_hidden_by_choice(case):
    assert f"[redacted:{case['name']}]" in Redactor(has_personal=True).text(case["text"])
    assert PLAIN.text(case["text"]) == case["text"]


@pytest.mark.parametrize("text", CORPUS["not_personal"])
def test_what_merely_resembles_personal_data_is_left_alone(text):
    text = filled(text)
    assert Redactor(has_personal=True).text(text) == text


# --- known secrets -------------------------------------------------------------------

SPELLINGS = {
    "itself": SECRET,
    "inside JSON": json.dumps({"a": SECRET}),
    "inside JSON inside JSON": json.dumps(json.dumps({"a": SECRET})),
    "with escaped slashes": json.dumps(SECRET).replace("/", "\\/"),
    "as \\u escapes": "".join(f"\\u{ord(char):04X}" for char in SECRET),
    "in part as \\u escapes": "\\u0068" + SECRET[1:],
    "in a URL": "https://x.example/?q=" + quote(SECRET, safe=""),
    "in a path of a URL": quote(SECRET),
    "as percent codes": "".join(f"%{ord(char):02x}" for char in SECRET),
    "in base64": base64.b64encode(SECRET.encode()).decode(),
    "in base64, shifted by one": base64.b64encode(b"x" + SECRET.encode() + b"yy").decode(),
    "in base64, shifted by two": base64.b64encode(b"xx" + SECRET.encode() + b"y").decode(),
    "in a basic header": "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_known_secret_is_found_in_every_spelling(spelling):
    redactor = Redactor({"DB_PASSWORD": SECRET})
    text = f"before {SPELLINGS[spelling]} after"
    hidden = redactor.text(text)
    assert "[redacted:db-password]" in hidden or "base64" in spelling or "basic" in spelling
    assert hidden != text
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    for data in (json.dumps({"k": [text]}).encode(), msgspec.json.encode({"k": [text]})):
        clean = json.loads(redactor.json(data))
        assert clean == {"k": [hidden]}


def test_known_secret_of_other_letters_is_found():
    secret = "pässwörd-ключ-🔑"
    redactor = Redactor({"x": secret})
    for text in (secret, json.dumps(secret), quote(secret)):
        assert "[redacted:x]" in redactor.text(text)


def test_base64_of_a_bytes_field_stays_decodable():
    redactor = Redactor({"token": SECRET})
    data = b"\x89PNG" + SECRET.encode() + b"\x00" * 5
    clean = msgspec.json.decode(redactor.json(msgspec.json.encode({"data": data})))
    assert base64.b64decode(clean["data"]) == data.replace(SECRET.encode(), b"[redacted:token]")


def test_json_keeps_its_shape_and_its_numbers():
    redactor = Redactor({"pin": "1234567890"})
    data = msgspec.json.encode(
        {"n": 1234567890, "f": 1.0, "1234567890": ["1234567890", None, True]}
    )
    assert msgspec.json.decode(redactor.json(data)) == {
        "n": 1234567890,
        "f": 1.0,
        "[redacted:pin]": ["[redacted:pin]", None, True],
    }


def test_longer_secret_wins_over_the_one_inside_it():
    redactor = Redactor({"short": "abc123xyz", "long": "abc123xyz-and-more"})
    assert redactor.text("abc123xyz-and-more abc123xyz") == "[redacted:long] [redacted:short]"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "abc",
        "none",
        "lm-studio",
        "true",
        "/run/secrets/key",
        "${KEY}"[:3],
        "12345",
        "not-needed",
    ],
)
def test_value_that_is_no_secret_is_not_registered(value):
    assert not Redactor().register("OPENAI_API_KEY", value)


def test_environment_is_searched_by_name():
    redactor = Redactor()
    redactor.register_environment(
        {
            "MY_API_KEY": "value-one-1",
            "GITHUB_TOKEN": "value-two-2",
            "DB_PASSWORD": "value-three-3",
            "DATABASE_URL": "postgres://app:value-four-4@db/x",
            "HOME": "/home/somebody",
            "SSH_AUTH_SOCK": "/tmp/agent.1",
            "EDITOR": "value-five-5",
            "KEYBOARD_LAYOUT": "value-six-6",
        }
    )
    text = (
        "value-one-1 value-two-2 value-three-3 value-four-4 value-five-5 value-six-6 /home/somebody"
    )
    assert redactor.text(text) == (
        "[redacted:my-api-key] [redacted:github-token] [redacted:db-password] "
        "[redacted:database-url-password] value-five-5 value-six-6 /home/somebody"
    )


def test_log_entries_are_redacted_whatever_they_hold():
    redactor = Redactor({"token": SECRET})

    class Thing:
        def __str__(self):
            return f"thing with {SECRET}"

    entry = {"event": f"got {SECRET}", "n": 3, "list": [SECRET, {"k": SECRET}], "thing": Thing()}
    logged = redactor.log_processor(None, "info", entry)
    assert logged == {
        "event": "got [redacted:token]",
        "n": 3,
        "list": ["[redacted:token]", {"k": "[redacted:token]"}],
        "thing": "thing with [redacted:token]",
    }


def test_redacting_twice_changes_nothing_more():
    redactor = Redactor({"token": SECRET})
    for case in CORPUS["found"]:
        once = redactor.text(filled(case["text"]))
        assert redactor.text(once) == once


def test_what_is_no_json_is_refused():
    with pytest.raises(UsageError):
        Redactor({"t": "secret-value"}).json(b'{"a": "secret-value"')


def test_lone_surrogates_do_no_harm():
    redactor = Redactor({"t": "secret-value"})
    assert redactor.text("\ud800 secret-value") == "\ud800 [redacted:t]"


def test_hostile_text_takes_no_time():
    redactor = Redactor({"t": "secret-value"}, has_personal=True)
    for piece in (
        "sk-",
        "://a:",
        "a@",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "%7",
        "\\u00",
        "+1 ",
    ):
        text = piece * 5_000
        assert isinstance(redactor.text(text), str)


def test_secret_in_damaged_base64_is_hidden_all_the_same():
    redactor = Redactor({"token": SECRET})
    code = base64.b64encode(b"xyz" + SECRET.encode() + b"abc").decode()
    assert redactor.text(f"A{code}") == "[redacted:token]"
    assert redactor.text(code[4:-2]) == "[redacted:token]"


def test_registering_a_connection_string_hides_its_password_alone_too():
    redactor = Redactor({"db": "mysql://root:pa%2Fssword1@db"})
    assert redactor.text("pa/ssword1") == "[redacted:db-password]"
    assert redactor.register("again", "mysql://root:pa%2Fssword1@db")


def test_text_packed_as_base64_is_unpacked_and_packed_again():
    text = "the key is ghp_" + "a1B2" * 10 + ", keep it"
    packed = base64.b64encode(text.encode()).decode()
    clean = base64.b64decode(PLAIN.text(packed)).decode()
    assert clean == "the key is [redacted:github-token], keep it"


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"postgres://u:s3cr3tpw\\u0040host/db"}',
        b'{"a":"postgres://u:s3cr3tpw@host/db"}',
        b'{"a":"ya29.\\u0041bcdefghijklmnopqrstuvwxyz"}',
        b'{"a":"ya29.Abcdefghijklmnopqrstuvwxyz"}',
        b'{"a":"x hvs.Abcdefghijklmnopqrstuvwxyz"}',
        b'"SG.Abcdefghijklmnopqrstuvwxyz.Abcdefghijklmnopqrstuvwxyz"',
    ],
)
def test_clues_are_found_beside_escapes_and_points(data):
    assert b"[redacted:" in Redactor().json(data)
