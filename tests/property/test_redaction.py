"""The quick look at JSON misses nothing that a close look at its strings finds."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.redaction import Redactor

KNOWN = {"one": 'p"a\\ss/wörd', "two": "plain-secret-0123456789", "three": "short77"}
REDACTOR = Redactor(KNOWN, has_personal=True)
KEYS = st.sampled_from(
    [
        *KNOWN.values(),
        "sk-" + "a1B2" * 8,
        "ghp_" + "a1B2" * 9,
        "AKIA" + "ABCD2345" * 2,
        "eyJ" + "a1B2" * 5 + ".eyJ" + "a1B2" * 4 + "." + "a1B2" * 4,
        "SG." + "a1B2" * 6 + "." + "a1B2" * 6,
        "Authorization: Bearer " + "a1B2" * 6,
        "postgres://u:Passw0rd@h/x",
        "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
        "a@example.org",
        "12345678:AA" + "a1B2" * 8 + "a",
        "aws_secret_access_key = " + "a1/+" * 10,
        "https://hooks.slack.com/services/" + "T1/B2" * 5,
    ]
)
AROUND = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["\n", "\t", "\x1b[31m", "\x1b[0m", "\\n", "\\", "/", '"', "x", "-", "%41", " ", "é"]
    ),
)
TEXTS = st.lists(st.one_of(AROUND, KEYS), max_size=7).map("".join)


@given(TEXTS)
def test_json_is_redacted_like_the_strings_in_it(text):
    data = msgspec.json.encode({"k": [text, 1]})
    assert json.loads(REDACTOR.json(data)) == {"k": [REDACTOR.text(text), 1]}


@given(st.lists(TEXTS, max_size=4))
def test_texts_looked_through_together_are_redacted_as_each_alone(texts):
    given_texts = [msgspec.json.encode({"k": text}) for text in texts]
    clean = REDACTOR.render_json_texts(given_texts)
    assert clean == [REDACTOR.json(data) for data in given_texts]
    assert (clean is given_texts) == (clean == given_texts)


@given(TEXTS)
def test_json_inside_json_is_redacted_too(text):
    data = msgspec.json.encode([json.dumps({"inner": text})])
    clean = REDACTOR.json(data).decode()
    for secret in KNOWN.values():
        if secret in text:
            assert json.dumps(secret)[1:-1] not in json.loads(clean)[0]


@given(TEXTS)
def test_no_known_secret_is_left(text):
    clean = REDACTOR.text(text)
    assert not any(secret in clean for secret in KNOWN.values())
