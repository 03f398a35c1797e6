"""Turn the bytes of a file into text and back, losing nothing.

UTF-8 with and without a mark, UTF-16 with a mark, and Latin-1 for everything else that
looks like text; line ends are found out and kept.
"""

from __future__ import annotations

import codecs

import msgspec

from holdfast.errors import FileUnsuitable, TellModel

_SAMPLE = 8_192
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a text is written: encoding, byte order mark, line end."""

    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"


def is_binary(sample: bytes) -> bool:
    """Say whether the beginning of a file looks like anything but text."""
    sample = sample[:_SAMPLE]
    if any(sample.startswith(mark) for mark, _ in _MARKS):
        return sample.startswith(codecs.BOM_UTF32_LE)
    if b"\0" in sample:
        return True
    odd = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    return odd * 10 > len(sample)


def sniff(sample: bytes) -> TextForm:
    """Find out the form of a text from its beginning."""
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            body = sample[len(mark) :]
            return TextForm(encoding=encoding, mark=mark, newline=_detect_newline(body, encoding))
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(sample)
    except UnicodeDecodeError:
        return TextForm(encoding="latin-1", newline=_detect_newline(sample, "latin-1"))
    return TextForm(newline=_detect_newline(sample, "utf-8"))


def decode_file(data: bytes, path: str) -> tuple[str, TextForm]:
    """Return the text of a whole file, and its form, by which `encode_file` reverts this.

    Raises:
        FileUnsuitable: it is binary.
    """
    if is_binary(data):
        raise FileUnsuitable(path=path, found="binary", wanted="text")
    form = sniff(data)
    body = data[len(form.mark) :]
    try:
        return body.decode(form.encoding), form
    except UnicodeDecodeError as error:
        if form.mark:
            raise FileUnsuitable(
                path=path, found=f"broken {form.encoding}", wanted="text"
            ) from error
        return body.decode("latin-1"), TextForm(encoding="latin-1", newline=form.newline)


def encode_file(text: str, form: TextForm) -> bytes:
    """Return the bytes of a text in the given form.

    Raises:
        TellModel: the encoding of the file has no such character.
    """
    try:
        return form.mark + text.encode(form.encoding)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise TellModel(
            f"The file is written in {form.encoding}, which has no {character!r}. "
            "Use only characters that it has, or rewrite the file as UTF-8 with bash."
        ) from error


def is_uniform_crlf(text: str) -> bool:
    """Say whether every line ends in a carriage return and a line feed."""
    count = text.count("\r\n")
    return count > 0 and count == text.count("\n") and count == text.count("\r")


def _detect_newline(sample: bytes, encoding: str) -> str:
    text = sample.decode(encoding, errors="ignore")
    return "\r\n" if is_uniform_crlf(text) else "\n"
