"""First messages of TLS clients, made by hand."""

from __future__ import annotations


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content


def server_name(*names: bytes) -> bytes:
    listed = b"".join(b"\0" + len(name).to_bytes(2, "big") + name for name in names)
    return extension(0, len(listed).to_bytes(2, "big") + listed)


def made_hello(extensions: bytes, *, records: int = 1) -> bytes:
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    size = -(-len(message) // records)
    parts = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(one).to_bytes(2, "big") + one for one in parts)
