"""A real S3 API on loopback, and one that says: not now."""

from __future__ import annotations

import contextlib
import http.server
import logging
import threading
import urllib.request
from collections.abc import Iterator

from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def serve_s3(bucket: str = "holdfast") -> Iterator[str]:
    """Serve an empty bucket; yields the address of the server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        address = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{address}/{bucket}", method="PUT")
        urllib.request.urlopen(request).close()
        yield address
    finally:
        server.stop()


class _Busy(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(503)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve_503() -> Iterator[str]:
    """Answer everything with 503; yields the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
