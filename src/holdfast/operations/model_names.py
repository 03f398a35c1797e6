"""Which models a request may name: those of providers, never a file of the server's machine.

`gguf:/path/model.gguf` opens a file and hands it to a native library. Its owner may say so; a
caller over a network could find out what files there are, or have one read that it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.errors import NotPermitted
from holdfast.operations.caller import Caller
from holdfast.runtime import Runtime

FILES_SCOPE = "storage:admin"


def check_models(runtime: Runtime, caller: Caller, arguments: Mapping[str, object]) -> None:
    """Return if a request names no file as its model, or may.

    Raises:
        NotPermitted: it does, and the caller is no admin of the operator's tenant.
    """
    for name in _list_models(arguments):
        if not is_file_name(name) or name == runtime.settings.model.name:
            continue
        if not caller.may(FILES_SCOPE) or runtime.tenant != runtime.control.operator:
            raise NotPermitted(subject=caller.subject, scope="to name a file as a model")


def is_file_name(model: str) -> bool:
    """Say whether a model is a file: by its provider, its ending, or how a path begins."""
    provider, colon, rest = model.strip().partition(":")
    place = (rest if colon else provider).strip().lower()
    is_path = place.startswith(("/", "\\", "~", ".")) or ".." in place or place.endswith(".gguf")
    return is_path or (bool(colon) and provider.strip().lower() == "gguf")


def _list_models(value: object, name: str = "") -> Iterator[str]:
    """Yield every text that stands under the name `model`, however deep."""
    if isinstance(value, str):
        if name == "model":
            yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _list_models(getattr(value, field), field)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_models(inner, str(key))
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for inner in value:
            yield from _list_models(inner, name)


__all__ = ["check_models", "is_file_name"]
