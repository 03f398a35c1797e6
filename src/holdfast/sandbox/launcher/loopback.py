"""A network of loopback only, and the one listener in it that leads out.

A socket belongs to the network namespace in which it was made, whoever holds it. The launcher
makes the listener inside and hands it to the process that started it, which accepts what
connects there. No process of the machine outside can connect: the port exists only inside. And
nothing inside leads anywhere else: there is no other interface, no route, no resolver.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

from holdfast.sandbox.launcher.confine import CannotConfineError

_PORT = 3128  # as `sandbox.profiles.PROXY_PORT`, which cannot be imported here
_BACKLOG = 64
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 0x1


def open_listener(*, is_alone: bool) -> int:
    """Bring loopback up in this network namespace, and return a listening descriptor in it.

    Raises:
        CannotConfineError: there is no namespace of our own (`is_alone`), or it cannot be set up.
    """
    if not is_alone:
        raise CannotConfineError(
            "a filtered network needs a network namespace of its own, which this kernel does not "
            "let us make; without one nothing would hold programs to the proxy"
        )
    try:
        _bring_up()
        others = [name for _, name in socket.if_nameindex() if name != "lo" and _is_up(name)]
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", _PORT))
            listener.listen(_BACKLOG)
            fd = listener.detach()
    except OSError as error:
        raise CannotConfineError(f"the filtered network cannot be set up: {error}") from error
    if others:
        os.close(fd)
        raise CannotConfineError(f"the new network namespace has other interfaces: {others}")
    return fd


def _bring_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = _read_flags(any_socket, "lo")
        request = struct.pack("16sh22x", b"lo", flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _is_up(name: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return bool(_read_flags(any_socket, name) & _IFF_UP)


def _read_flags(any_socket: socket.socket, name: str) -> int:
    request = struct.pack("16sh22x", name.encode(), 0)
    flags: int = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[1]
    return flags


__all__ = ["open_listener"]
