"""The OpenAI-compatible face, below `/openai/v1`: each agent is a model.

`chat.py` answers chat completions, which carry their whole conversation; `responses.py` answers
the Responses API, where `previous_response_id` is a session of ours. Tools of the request are
tools of the client: the run parks until their results come. Any OpenAI client can talk to it
with one of our keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.server.openai.face import OpenAIFace as OpenAIFace
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"face": "OpenAIFace"})
