"""Real vocabularies, offline: o200k_base and cl100k_base, loaded when first needed.

The ranks come with the package `bpe-openai`; see docs/decisions for why this one. Its
front door builds every vocabulary at import (most of a second), so only its native
module is loaded, and of that only the vocabulary that is asked for.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

VocabularyName: TypeAlias = Literal["o200k_base", "cl100k_base"]
Counter: TypeAlias = Callable[[str], int]

_PACKAGE = "bpe_openai"
_MODULE = "_bindings"
_lock = threading.Lock()
_counters: dict[VocabularyName, Counter | None] = {}


def _forget_lock() -> None:
    """Make the lock anew in a forked child: the thread that may have held it is not there."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)

_FAMILIES: tuple[tuple[str, VocabularyName], ...] = (
    ("gpt-4o", "o200k_base"),
    ("chatgpt-4o", "o200k_base"),
    ("gpt-4.1", "o200k_base"),
    ("gpt-4.5", "o200k_base"),
    ("gpt-5", "o200k_base"),
    ("gpt-oss", "o200k_base"),
    ("codex", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-3.5", "cl100k_base"),
    ("gpt-35", "cl100k_base"),
    ("text-embedding-3", "cl100k_base"),
    ("text-embedding-ada-002", "cl100k_base"),
)


def choose_vocabulary(model: str) -> VocabularyName | None:
    """Return the vocabulary of a model by its name, or nothing when we have no such one."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    for family, vocabulary in _FAMILIES:
        # The whole family name: `o1` is no `o10`, `gpt-4` no `gpt-4chan`.
        rest = name[len(family) :]
        if name.startswith(family) and (not rest or not rest[0].isalnum()):
            return vocabulary
    return None


def find_counter(vocabulary: VocabularyName) -> Counter | None:
    """Return the function that counts tokens, or nothing when the ranks are not installed.

    The first call for a vocabulary loads it, about 0.2 s and 70 MB; later ones are free.
    """
    if vocabulary not in _counters:
        with _lock:
            if vocabulary not in _counters:
                _counters[vocabulary] = _load(vocabulary)
    return _counters[vocabulary]


def _load(vocabulary: VocabularyName) -> Counter | None:
    package = importlib.util.find_spec(_PACKAGE)
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(place, _MODULE + suffix)
            if path.is_file():
                return _make_counter(f"{_PACKAGE}.{_MODULE}", path, vocabulary)
    return None


def _make_counter(name: str, path: Path, vocabulary: VocabularyName) -> Counter | None:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    count: Counter = module.tokenizer_for_encoding(vocabulary).count
    return count
