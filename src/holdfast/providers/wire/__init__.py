"""Speak to a model over HTTP: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages.

One codec per API turns requests into bytes and answers into messages; everything about
connections, limits and failures is shared. Nothing is retried here.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.providers.wire.detect import ApiMemory as ApiMemory
    from holdfast.providers.wire.detect import RememberedApis as RememberedApis
    from holdfast.providers.wire.detect import ResponsesOrChat as ResponsesOrChat
    from holdfast.providers.wire.endpoint import Api as Api
    from holdfast.providers.wire.endpoint import Endpoint as Endpoint
    from holdfast.providers.wire.endpoint import KeySource as KeySource
    from holdfast.providers.wire.endpoint import OpenAIApi as OpenAIApi
    from holdfast.providers.wire.endpoint import QuietMode as QuietMode
    from holdfast.providers.wire.endpoint import Secret as Secret
    from holdfast.providers.wire.endpoint import Timeouts as Timeouts
    from holdfast.providers.wire.failures import find_failure_in_answer as find_failure_in_answer
    from holdfast.providers.wire.failures import make_refusal as make_refusal
    from holdfast.providers.wire.http import HttpTransport as HttpTransport
    from holdfast.providers.wire.model import WireModel as WireModel
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "detect": "ApiMemory RememberedApis ResponsesOrChat",
            "endpoint": "Api Endpoint KeySource OpenAIApi QuietMode Secret Timeouts",
            "failures": "find_failure_in_answer make_refusal",
            "http": "HttpTransport",
            "model": "WireModel",
        },
    )
