"""Count the tokens of a request without asking the provider.

Texts of OpenAI models are counted with their real vocabulary. Everything else is
estimated, and the count says so. What surrounds the texts (roles, tool schemas,
images) is counted by the rules that providers publish; tool schemas, images and files
are approximations, and mark the count as an estimate as well.
"""

from __future__ import annotations

import math
import re

import msgspec

from holdfast.messages import (
    CompactionPart,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
    ToolSpec,
)
from holdfast.providers.image_size import measure_image
from holdfast.providers.model import ModelRequest
from holdfast.providers.vocabulary import Counter, VocabularyName, choose_vocabulary, find_counter

_PIECES = rb"[A-Za-z]+|[0-9]{1,3}|[^\sA-Za-z0-9]"
_PER_MESSAGE = 3
_PER_ANSWER = 3
_PER_CALL = 6
_PER_TOOL = 12
_CACHED_MESSAGES = 20_000
_BYTES_PER_FILE_TOKEN = 24
"""A PDF of 50 KB is a page or two, some two thousand tokens."""


class TokenCount(msgspec.Struct, frozen=True):
    """How many tokens, and whether that is only an estimate."""

    tokens: int
    is_estimate: bool = False

    def __add__(self, other: TokenCount) -> TokenCount:
        """Add two counts; one estimate makes the sum an estimate."""
        return TokenCount(self.tokens + other.tokens, self.is_estimate or other.is_estimate)


def estimate_tokens(text: str) -> int:
    """Guess the tokens of a text in a vocabulary that we do not have; rather high than low.

    Plain ASCII: a token for each word, number and sign, or for four characters, whichever
    is more. Other scripts: half a token for each byte that UTF-8 needs beyond the first.
    """
    beyond = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
    plain = text.encode("ascii", "ignore") if beyond else text.encode()
    return math.ceil(max(len(plain) / 4, len(re.findall(_PIECES, plain))) + beyond / 2)


class TokenCounter:
    """Counts requests, messages and texts for one model.

    Messages are counted once: the count is kept for as long as the same message object
    comes again. The vocabulary is loaded by the first count that needs it.
    """

    def __init__(self, provider: str, model: str) -> None:
        """Choose the vocabulary by the name of the model; nothing is loaded yet."""
        self.provider = provider
        self.model = model
        self.vocabulary: VocabularyName | None = choose_vocabulary(model)
        self._counter: Counter | None = None
        self._is_ready = False
        self._messages: dict[str, tuple[Message, TokenCount]] = {}
        self._tools: tuple[tuple[ToolSpec, ...], TokenCount] = ((), TokenCount(0))

    @property
    def is_exact(self) -> bool:
        """Whether texts are counted with the model's own vocabulary; loads it."""
        return self._make_text_counter() is not None

    def text(self, text: str) -> TokenCount:
        """Count a text."""
        count = self._make_text_counter()
        if count is None:
            return TokenCount(estimate_tokens(text), is_estimate=True)
        try:
            return TokenCount(count(text))
        except UnicodeEncodeError:
            # A lone surrogate cannot be sent as it is either.
            return TokenCount(count(text.encode("utf-8", "replace").decode()))

    def message(self, message: Message) -> TokenCount:
        """Count a message as part of a request."""
        known = self._messages.get(message.id)
        if known is not None and known[0] is message:
            return known[1]
        total = TokenCount(_PER_MESSAGE + 1)
        for part in message.parts:
            total += self._render_part(part)
        if len(self._messages) >= _CACHED_MESSAGES:
            self._messages.clear()
        self._messages[message.id] = (message, total)
        return total

    def request(self, request: ModelRequest) -> TokenCount:
        """Count the whole input of a call: system text, messages, tools, output schema."""
        total = TokenCount(_PER_ANSWER)
        if request.system:
            total += TokenCount(_PER_MESSAGE + 1) + self.text(request.system)
        tokens, is_estimate = 0, False
        for message in request.messages:
            # A plain sum: an object per message would cost more than the counting.
            count = self.message(message)
            tokens += count.tokens
            is_estimate = is_estimate or count.is_estimate
        total += TokenCount(tokens, is_estimate)
        if request.tools:
            total += self.tools(request.tools)
        if request.output_schema is not None:
            schema = self.text(msgspec.json.encode(request.output_schema).decode())
            total += TokenCount(schema.tokens, is_estimate=True)
        return total

    def count(self, request: ModelRequest) -> int:
        """Count a request as `Model.count_tokens` does: a plain number."""
        return self.request(request).tokens

    def tools(self, tools: tuple[ToolSpec, ...]) -> TokenCount:
        """Count tool definitions; how a provider writes them out is not published."""
        if self._tools[0] is not tools:
            total = TokenCount(0, is_estimate=True)
            for tool in tools:
                parts = (tool.name, tool.description, msgspec.json.encode(tool.parameters).decode())
                total += TokenCount(_PER_TOOL) + self.text("\n".join(parts))
            self._tools = (tools, total)
        return self._tools[1]

    def usage(self, request: ModelRequest, answer: Message) -> TokenUsage:
        """Estimate what a call used when the provider did not say."""
        reasoning = [part for part in answer.parts if isinstance(part, ReasoningPart)]
        thought = sum(self.text(part.text).tokens for part in reasoning)
        said = sum(self._render_part(part).tokens for part in answer.parts if part not in reasoning)
        return TokenUsage(input=self.request(request).tokens, output=said, reasoning=thought)

    def fits(self, request: ModelRequest, limit: int) -> bool:
        """Say whether a request has at most `limit` tokens, as cheaply as that can be said.

        No token is shorter than a byte, so a request of few bytes needs no vocabulary.
        """
        is_plain = not any(
            isinstance(part, FilePart) or (isinstance(part, ToolPart) and part.attachments)
            for message in request.messages
            for part in message.parts
        )
        if is_plain:
            framing = len(request.tools) * _PER_TOOL + len(request.messages) * 16 + 16
            if framing + len(msgspec.json.encode(request, enc_hook=tuple)) <= limit:
                return True
        return self.request(request).tokens <= limit

    def _make_text_counter(self) -> Counter | None:
        if not self._is_ready:
            self._counter = find_counter(self.vocabulary) if self.vocabulary is not None else None
            self._is_ready = True
        return self._counter

    def _render_part(self, part: Part) -> TokenCount:
        if isinstance(part, TextPart | ReasoningPart):
            return self.text(part.text)
        if isinstance(part, ToolPart):
            return self._count_tool_part(part)
        if isinstance(part, FilePart):
            return self._render_file(part)
        if isinstance(part, CompactionPart):
            return self.text(part.summary)
        # The other parts are for the runtime; a model never sees them.
        return TokenCount(0)

    def _count_tool_part(self, part: ToolPart) -> TokenCount:
        if part.state == "pending":
            arguments = part.raw_input or msgspec.json.encode(part.input).decode()
            return TokenCount(_PER_CALL) + self.text(part.tool) + self.text(arguments)
        total = TokenCount(_PER_CALL)
        for text in (part.output, part.error):
            if text:
                total += self.text(text)
        for attachment in part.attachments:
            total += self._render_file(attachment)
        return total

    def _render_file(self, part: FilePart) -> TokenCount:
        if part.media_type.startswith("image/"):
            size = measure_image(part.data) if part.data is not None else None
            return TokenCount(self._read_image(*(size or (1024, 1024))), is_estimate=True)
        if part.data is None:
            return TokenCount(_PER_CALL + self.text(part.url).tokens, is_estimate=True)
        if part.media_type.startswith("text/") or part.media_type == "application/json":
            text = self.text(part.data.decode("utf-8", "replace"))
            return TokenCount(text.tokens, is_estimate=True)
        return TokenCount(max(1, len(part.data) // _BYTES_PER_FILE_TOKEN), is_estimate=True)

    def _read_image(self, width: int, height: int) -> int:
        """Price an image as Anthropic does (area) or as OpenAI does (tiles of 512)."""
        if self.provider == "anthropic" or "claude" in self.model:
            shrink = min(1.0, 1568 / max(width, height))
            return max(1, math.ceil(width * height * shrink * shrink / 750))
        shrink = min(1.0, 2048 / max(width, height))
        width, height = math.ceil(width * shrink), math.ceil(height * shrink)
        shrink = min(1.0, 768 / min(width, height))
        width, height = math.ceil(width * shrink), math.ceil(height * shrink)
        return 85 + 170 * math.ceil(width / 512) * math.ceil(height / 512)
