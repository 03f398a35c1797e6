"""OTLP over gRPC: one call of the collector's trace service, with the bytes that HTTP carries."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.errors import MissingExtra, TraceExportFailed, UsageError

GRPC_SCHEMES: Final = frozenset({"grpc", "grpcs"})
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_PORT: Final = 4317
_TIMEOUT_S: Final = 30.0
_LARGEST_ANSWER: Final = 64 * 1024


def choose_grpc_address(url: str) -> str:
    """Return the address with its port; raises UsageError for a path, a password or a bad port."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
    except ValueError:
        raise UsageError(detail="The port of the OTLP receiver is no number up to 65535.") from None
    if parts.path.strip("/") or parts.query or parts.username or parts.password:
        raise UsageError(
            detail="An OTLP receiver over gRPC is an address alone, such as grpc://127.0.0.1:4317; "
            "keys come from OTEL_EXPORTER_OTLP_HEADERS."
        )
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def export_over_grpc(address: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a trace and wait for the answer; blocks.

    Raises:
        MissingExtra: grpcio is not installed (extra `grpc`).
        TraceExportFailed: the receiver did not take it, or only a part of it.
    """
    try:
        grpc: Any = importlib.import_module("grpc")
    except ImportError as error:
        raise MissingExtra(what="traces over gRPC", package="grpcio", extra="grpc") from error
    scheme, _, target = address.partition("://")
    # No proxy: what is sent goes where the settings say.
    options = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", _LARGEST_ANSWER),
        ("grpc.enable_retries", 0),
    ]
    if scheme == "grpcs":
        channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)
    else:
        channel = grpc.insecure_channel(target, options)
    with channel:
        try:
            # gRPC wants names of headers in lower case.
            metadata = [(name.lower(), value) for name, value in headers.items()]
            answer = channel.unary_unary(_EXPORT)(body, timeout=_TIMEOUT_S, metadata=metadata)
        except grpc.RpcError as error:
            detail = f"{error.code().name}: {error.details() or 'no details'}"
            raise TraceExportFailed(url=address, detail=detail) from error
    _check_answer(address, bytes(answer))


def _check_answer(address: str, answer: bytes) -> None:
    protobuf: Any = importlib.import_module("google.protobuf.message")
    from opentelemetry.proto.collector.trace.v1 import (  # noqa: PLC0415 - an optional extra
        trace_service_pb2,
    )

    try:
        said = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    except protobuf.DecodeError as error:
        raise TraceExportFailed(url=address, detail="its answer is not OTLP's") from error
    rejected = said.partial_success.rejected_spans
    if rejected:
        why = said.partial_success.error_message
        raise TraceExportFailed(url=address, detail=f"it rejected {rejected} spans: {why}")


__all__ = ["GRPC_SCHEMES", "choose_grpc_address", "export_over_grpc"]
