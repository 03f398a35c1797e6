"""A real S3 API on loopback, the XML API of Google on top of it, and one that says: not now."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import logging
import socket
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from moto.server import ThreadedMotoServer

from holdfast.artifacts import BlobStore, BlobStoreOptions, open_blob_store


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


class _Cutting(http.server.BaseHTTPRequestHandler):
    """Hands requests on, and hangs up in the midst of every second part of an upload."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        if "partNumber=2" in self.path:
            self.rfile.read(length // 2)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        body = self.rfile.read(length)
        connection = http.client.HTTPConnection(self.behind)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve_cutting(address: str) -> Iterator[str]:
    """Stand before an S3 server whose connections break in the second part; yields the address."""
    handler = type("Cutting", (_Cutting,), {"behind": address.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_GOOGLE_HEADERS = {
    "x-goog-copy-source": ("x-amz-copy-source", None),
    "x-goog-if-generation-match": ("if-none-match", "*"),
}
"""What Google calls otherwise than S3 in an API that is the same beyond that."""


class _Google(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind = ""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        # The server behind looks for a name, and believes it.
        name = "Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
        headers = {
            "content-length": str(len(body)),
            "authorization": f"AWS4-HMAC-SHA256 {name}",
        }
        for name, value in self.headers.items():
            known, fixed = _GOOGLE_HEADERS.get(name.lower(), (name.lower(), None))
            if known not in ("host", "connection", "content-length", "authorization"):
                headers[known] = fixed or value
        connection = http.client.HTTPConnection(self.behind)
        try:
            # Google's clients write the name of an object as one word, slashes and all.
            path, mark, query = self.path.partition("?")
            target = urllib.parse.quote(urllib.parse.unquote(path)) + mark + query
            connection.request(self.command, target, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("content-length") if self.command == "HEAD" else None
            self.send_header("content-length", length or str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        finally:
            connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serve_google(address: str) -> Iterator[str]:
    """Speak the XML API of Google Cloud Storage before an S3 server; yields the address."""
    handler = type("Google", (_Google,), {"behind": address.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def google_bucket(address: str, prefix: str) -> BlobStore:
    """Return a place in a bucket of Google; the server asks for no token."""
    key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    variables = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key)}
    options = BlobStoreOptions(base_dir=Path("/"), endpoint=address, variables=variables)
    return open_blob_store(f"gs://holdfast/{prefix}", options)
