"""Redaction: take secrets out of what is kept, logged or shown."""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.redaction.formats import FORMATS as FORMATS
    from holdfast.redaction.formats import PERSONAL as PERSONAL
    from holdfast.redaction.formats import KeyFormat as KeyFormat
    from holdfast.redaction.marks import list_withheld as list_withheld
    from holdfast.redaction.redactor import Redactor as Redactor
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "formats": "FORMATS PERSONAL KeyFormat",
            "marks": "list_withheld",
            "redactor": "Redactor",
        },
    )
