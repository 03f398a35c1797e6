from __future__ import annotations

import base64

import pytest

from holdfast.messages import (
    FilePart,
    Message,
    ReasoningPart,
    SnapshotPart,
    TextPart,
    ToolPart,
    ToolSpec,
)
from holdfast.providers import vocabulary
from holdfast.providers.image_size import measure_image
from holdfast.providers.model import ModelRequest
from holdfast.providers.tokens import TokenCount, TokenCounter, estimate_tokens
from holdfast.providers.vocabulary import choose_vocabulary, find_counter

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
)


def png(width: int, height: int) -> bytes:
    return PNG[:16] + width.to_bytes(4) + height.to_bytes(4) + PNG[24:]


def message(*parts, role="user", id="m") -> Message:
    return Message(id=id, session_id="s", role=role, parts=parts)


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        # Figures from the public examples of OpenAI's own tokenizer.
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
        ("hello world", 2, 2),
        ("", 0, 0),
        ("a" * 1000, 125, 125),
        # What looks like a special token is text like any other.
        ("<|endoftext|>", 7, 7),
    ],
)
def test_known_texts_have_their_known_counts(text, o200k, cl100k):
    for name, expected in (("o200k_base", o200k), ("cl100k_base", cl100k)):
        count = find_counter(name)
        assert count is not None
        assert count(text) == expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-5.2", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("o3", "o200k_base"),
        ("o4-mini", "o200k_base"),
        ("ft:gpt-4o:acme", "o200k_base"),
        ("gpt-oss:20b", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-4chan", None),
        ("o10", None),
        ("claude-sonnet-4-5", None),
        ("qwen3:0.6b", None),
        ("", None),
    ],
)
def test_the_vocabulary_follows_from_the_name_of_the_model(model, expected):
    assert choose_vocabulary(model) == expected


def test_texts_are_exact_for_known_vocabularies_and_marked_estimates_for_others():
    assert TokenCounter("openai", "gpt-4o").text("tiktoken is great!") == TokenCount(6)
    guess = TokenCounter("anthropic", "claude-sonnet-4-5").text("tiktoken is great!")
    assert guess == TokenCount(5, is_estimate=True)


def test_other_vocabularies_load_nothing(monkeypatch):
    monkeypatch.setattr(vocabulary, "_counters", {})
    TokenCounter("ollama", "qwen3").text("hello")
    assert vocabulary._counters == {}


def test_without_the_package_the_count_is_a_marked_estimate(monkeypatch):
    monkeypatch.setattr(vocabulary, "_counters", {})
    monkeypatch.setattr(vocabulary, "_PACKAGE", "no_such_package_anywhere")
    counter = TokenCounter("openai", "gpt-4o")
    assert counter.text("hello world").is_estimate
    assert not counter.is_exact


@pytest.mark.parametrize(
    "text",
    [
        "The quick brown fox jumps over the lazy dog, and then it does so again. " * 20,
        "def add(a: int, b: int) -> int:\n    return a + b\n" * 20,
        '{"name": "read_file", "arguments": {"path": "src/app.py"}}' * 20,
        "お誕生日おめでとうございます。今日はとても良い天気ですね。" * 20,
        "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20,
    ],
    ids=["prose", "code", "json", "japanese", "russian"],
)
def test_an_estimate_is_of_the_right_size(text):
    count = find_counter("o200k_base")
    assert count is not None
    assert 0.8 * count(text) <= estimate_tokens(text) <= 2.2 * count(text)


def test_a_text_that_is_no_unicode_is_counted_all_the_same():
    assert TokenCounter("openai", "gpt-4o").text("\ud800").tokens > 0
    assert estimate_tokens("\ud800") > 0


def test_a_request_is_counted_by_the_published_rules_for_texts():
    """Three for each message, one for its role, three for the answer to come."""
    counter = TokenCounter("openai", "gpt-4o")
    request = ModelRequest(
        system="hello world", messages=(message(TextPart(text="tiktoken is great!")),)
    )
    assert counter.request(request) == TokenCount(3 + 4 + 2 + 4 + 6)


def test_tools_schemas_and_images_make_the_count_an_estimate():
    counter = TokenCounter("openai", "gpt-4o")
    plain = ModelRequest(messages=(message(TextPart(text="hi")),))
    base = counter.request(plain)
    assert not base.is_estimate
    tool = ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object"})
    for changed in (
        ModelRequest(messages=plain.messages, tools=(tool,)),
        ModelRequest(messages=plain.messages, output_schema={"type": "object"}),
        ModelRequest(messages=(message(FilePart(media_type="image/png", data=png(8, 8))),)),
    ):
        count = counter.request(changed)
        assert count.is_estimate
        assert count.tokens > base.tokens


def test_calls_and_their_results_are_counted_and_the_runtimes_own_parts_are_not():
    counter = TokenCounter("openai", "gpt-4o")
    call = ToolPart(call_id="c", tool="add", input={"a": 1})
    result = ToolPart(call_id="c", tool="add", state="completed", output="hello world")
    assert counter.message(message(call, role="assistant")).tokens > 10
    assert counter.message(message(result, role="tool", id="r")).tokens == 4 + 6 + 2
    assert counter.message(message(SnapshotPart(snapshot="x" * 999), id="n")).tokens == 4


@pytest.mark.parametrize(
    ("provider", "model", "size", "tokens"),
    [
        ("openai", "gpt-4o", (1024, 1024), 85 + 170 * 4),
        ("openai", "gpt-4o", (2048, 4096), 85 + 170 * 6),
        ("openai", "gpt-4o", (100, 100), 85 + 170),
        ("anthropic", "claude-sonnet-4-5", (1000, 750), 1000),
        ("anthropic", "claude-sonnet-4-5", (200, 200), 54),
    ],
)
def test_images_are_counted_by_the_published_examples(provider, model, size, tokens):
    counter = TokenCounter(provider, model)
    part = FilePart(media_type="image/png", data=png(*size))
    assert counter.message(message(part)).tokens == 4 + tokens


def test_files_and_addresses_are_estimated():
    counter = TokenCounter("openai", "gpt-4o")
    for part in (
        FilePart(media_type="application/pdf", data=b"%PDF" + b"x" * 9600),
        FilePart(media_type="text/plain", data=b"hello world " * 100),
        FilePart(media_type="application/pdf", url="https://example.org/a.pdf"),
        FilePart(media_type="image/png", url="https://example.org/a.png"),
    ):
        count = counter.message(message(part))
        assert count.is_estimate
        assert 4 < count.tokens < 2000


def test_the_same_message_is_counted_once_and_a_changed_one_again(monkeypatch):
    counter = TokenCounter("openai", "gpt-4o")
    first = message(TextPart(text="hello world"))
    before = counter.message(first)
    monkeypatch.setattr(counter, "_counter", None)  # a second count would be an estimate
    assert counter.message(first) is before
    assert counter.message(message(TextPart(text="hello world again"))).is_estimate


def test_few_bytes_fit_without_counting_and_many_are_counted(monkeypatch):
    counter = TokenCounter("openai", "gpt-4o")
    small = ModelRequest(messages=(message(TextPart(text="hi")),))
    assert counter.fits(small, 100_000)
    assert not counter._is_ready
    large = ModelRequest(messages=(message(TextPart(text="a" * 8000), id="l"),))
    assert counter.fits(large, 1100)
    assert not counter.fits(large, 900)
    image = ModelRequest(messages=(message(FilePart(media_type="image/png", data=PNG), id="i"),))
    assert not counter.fits(image, 200)


def test_usage_is_counted_when_the_provider_reports_none():
    counter = TokenCounter("openai", "gpt-4o")
    request = ModelRequest(messages=(message(TextPart(text="hi")),))
    answer = message(
        ReasoningPart(text="hello world"), TextPart(text="tiktoken is great!"), role="assistant"
    )
    usage = counter.usage(request, answer)
    assert (usage.input, usage.output, usage.reasoning) == (8, 6, 2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PNG, (1, 1)),
        (b"GIF89a" + b"\x20\x03\x58\x02" + b"\0" * 9, (800, 600)),
        (
            b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc0\x00\x11\x08\x02\x58\x03\x20" + b"\0" * 12,
            (800, 600),
        ),
        (b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x1f\x03\0\x57\x02\0", (800, 600)),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + b"\x20\x03\x58\x02", (800, 600)),
        (b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 5 + (799 | 599 << 14).to_bytes(4, "little"), (800, 600)),
        (b"", None),
        (b"\xff\xd8\xff", None),
        (b"\xff\xd8\xff\xe0\x00\x00\x00\x00\x00\x00\x00\x00", None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0", None),
        (b"RIFF\0\0\0\0WEBPVP8X", None),
        (b"no image at all, only text", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_head(data, expected):
    assert measure_image(data) == expected


def test_a_result_that_failed_half_way_counts_with_all_that_it_says() -> None:
    counter = TokenCounter("openai", "gpt-5")

    def result(**said: str) -> int:
        part = ToolPart(call_id="c", tool="t", state="error", **said)
        return counter.message(message(part, role="tool", id=repr(said))).tokens

    both = result(output="one two three", error="it broke")
    assert both > result(error="it broke") and both > result(output="one two three")
