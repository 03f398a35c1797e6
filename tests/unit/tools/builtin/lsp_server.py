"""A small language server for tests: it knows every operation and answers by rote."""

import json
import socket
import sys
from pathlib import Path

FULL = {
    name: True
    for name in (
        "definitionProvider referencesProvider implementationProvider hoverProvider "
        "documentSymbolProvider workspaceSymbolProvider callHierarchyProvider "
        "typeHierarchyProvider"
    ).split()
}
seen = []


def read():
    length = 0
    while line := sys.stdin.buffer.readline():
        if line == b"\r\n":
            return json.loads(sys.stdin.buffer.read(length))
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return None


def attempt(what, *words):
    """Do what code of a workspace could make a server do; say whether that was possible."""
    try:
        if what == "connect":
            with socket.socket() as ours:
                ours.settimeout(5)
                ours.connect((words[0], int(words[1])))
            return "connected"
        with open(words[0], words[1]):
            return "opened"
    except OSError:
        return "refused"


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    sys.stdout.buffer.flush()


def span(line):
    return {"start": {"line": line, "character": 4}, "end": {"line": line, "character": 5}}


def item(name, uri, line, kind=12):
    return {
        "name": name,
        "kind": kind,
        "uri": uri,
        "range": span(line),
        "selectionRange": span(line),
    }


def answer(method, params):
    uri = params.get("textDocument", {}).get("uri") or params.get("item", {}).get("uri")
    position = params.get("position", {})
    if method == "textDocument/definition":
        return [{"targetUri": uri, "targetSelectionRange": span(position["line"])}]
    if method == "textDocument/references":
        assert params["context"]["includeDeclaration"]
        return [{"uri": uri, "range": span(0)}, {"uri": "file:///usr/lib/x.py", "range": span(7)}]
    if method == "textDocument/implementation":
        return {"uri": uri, "range": span(1)}
    if method == "textDocument/hover":
        text = f"{position['line']}:{position['character']} {len(seen)}"
        return {"contents": {"kind": "markdown", "value": text}}
    if method == "textDocument/documentSymbol":
        child = {"name": "method", "kind": 6, "range": span(1), "selectionRange": span(1)}
        return [{"name": "Class", "kind": 5, "range": span(0), "children": [child]}]
    if method == "workspace/symbol":
        here = Path.cwd().joinpath("a.py").as_uri()
        location = {"uri": here, "range": span(0)}
        return [{"name": params["query"], "kind": 12, "location": location}]
    if method in ("textDocument/prepareCallHierarchy", "textDocument/prepareTypeHierarchy"):
        return [item("here", uri, position["line"])]
    if method == "callHierarchy/incomingCalls":
        return [{"from": item("caller", uri, 0), "fromRanges": []}]
    if method == "callHierarchy/outgoingCalls":
        return [{"to": item("callee", uri, 1), "fromRanges": []}]
    if method == "typeHierarchy/supertypes":
        return [item("Base", uri, 0, 5)]
    if method == "typeHierarchy/subtypes":
        return None
    raise LookupError(method)


while (message := read()) is not None:
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        # Ask something ourselves first, as real servers do.
        send({"id": "s1", "method": "workspace/configuration", "params": {"items": [{}]}})
        assert read()["result"] == [None]
        send({"id": "s2", "method": "no/such", "params": {}})
        assert "error" in read()
        send({"method": "window/logMessage", "params": {"message": "hello"}})
        send({"id": number, "result": {"capabilities": FULL}})
    elif method == "textDocument/didOpen" or method == "textDocument/didChange":
        seen.append(message["params"])
    elif method == "shutdown":
        send({"id": number, "result": None})
    elif method == "exit":
        break
    elif method == "workspace/symbol" and message["params"]["query"] == "crash":
        sys.exit(1)
    elif method == "workspace/symbol" and message["params"]["query"] == "refuse":
        send({"id": number, "error": {"code": 1, "message": "no thanks"}})
    elif method == "workspace/symbol" and message["params"]["query"] == "silence":
        send({"id": "s3", "method": "workspace/applyEdit", "params": {}})
        assert read()["result"] is None
    elif method == "$/cancelRequest":
        # Too late: nobody waits for it any more.
        send({"id": message["params"]["id"], "result": []})
    elif method == "workspace/symbol" and message["params"]["query"] == "garbage":
        sys.stdout.buffer.write(b"Content-Length: 999999999999\r\n\r\n")
        sys.stdout.buffer.flush()
    elif method == "workspace/symbol" and ":" in message["params"]["query"]:
        told = attempt(*message["params"]["query"].split(":"))
        uri = message["params"].get("uri", "file:///x")
        place = {"uri": uri, "range": {"start": {"line": 0, "character": 0}}}
        send({"id": number, "result": [{"name": told, "kind": 12, "location": place}]})
    elif number is not None and method:
        send({"id": number, "result": answer(method, message["params"])})
