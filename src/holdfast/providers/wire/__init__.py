"""Speak to a model over HTTP: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages.

One codec per API turns requests into bytes and answers into messages; everything about
connections, limits and failures is shared. Nothing is retried here.
"""

from holdfast.providers.wire.detect import ApiMemory, OpenAIApi, RememberedApis, ResponsesOrChat
from holdfast.providers.wire.endpoint import (
    Api,
    Endpoint,
    KeySource,
    QuietMode,
    Secret,
    Timeouts,
)
from holdfast.providers.wire.http import HttpTransport
from holdfast.providers.wire.model import WireModel

__all__ = [
    "Api",
    "ApiMemory",
    "Endpoint",
    "HttpTransport",
    "KeySource",
    "OpenAIApi",
    "QuietMode",
    "RememberedApis",
    "ResponsesOrChat",
    "Secret",
    "Timeouts",
    "WireModel",
]
