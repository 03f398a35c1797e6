"""What must never be seen of this process: the values of its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.redaction import Redactor
from holdfast.settings import find_variables_around, list_secret_values

if TYPE_CHECKING:
    from holdfast.settings import Settings


def process_redactor(settings: Settings) -> Redactor:
    """Return a redactor that knows every secret of this process."""
    redactor = Redactor(list_secret_values(settings))
    redactor.register_environment(find_variables_around())
    return redactor


__all__ = ["process_redactor"]
