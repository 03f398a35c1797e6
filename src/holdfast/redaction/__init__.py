"""Redaction: take secrets out of what is kept, logged or shown."""

from holdfast.redaction.formats import FORMATS, PERSONAL, KeyFormat
from holdfast.redaction.marks import withheld
from holdfast.redaction.redactor import Redactor

__all__ = ["FORMATS", "PERSONAL", "KeyFormat", "Redactor", "withheld"]
