"""Speak to a model over HTTP: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages."""

from holdfast.providers.wire.endpoint import Api, Endpoint, KeySource, Secret, Timeouts
from holdfast.providers.wire.http import HttpTransport

__all__ = ["Api", "Endpoint", "HttpTransport", "KeySource", "Secret", "Timeouts"]
