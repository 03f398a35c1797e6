"""Every operation has an address, and the description of the API is the committed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from openapi_spec_validator import validate

from holdfast.errors import list_errors
from holdfast.journal import list_known_kinds
from holdfast.operations import ALIASES, ROUTES, list_operations, list_routes
from holdfast.server.openapi import make_document

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"


def test_every_operation_has_a_route_and_every_route_an_operation() -> None:
    assert set(ROUTES) == set(list_operations())
    assert set(ALIASES.values()) <= set(ROUTES)


def test_no_two_operations_share_an_address() -> None:
    assert len(list_routes()) == len(ROUTES) + len(ALIASES)


def test_paths_and_defaults_name_fields_of_their_requests() -> None:
    operations = list_operations()
    for name, route in ROUTES.items():
        fields = {one.name for one in msgspec.structs.fields(operations[name].request)}
        named = {*route.parameters, *route.defaults, *filter(None, [route.upload])}
        assert named <= fields, name
        assert route.path.startswith("/v1/")


def test_the_committed_description_is_up_to_date() -> None:
    # In a process of its own: what other tests have loaded is not part of the API.
    code = "import sys; from holdfast.server.openapi import make_document as m; "
    code += "sys.stdout.buffer.write(m())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert COMMITTED.read_bytes() == made, "run: python scripts/reference.py"


def test_the_description_is_openapi_and_describes_every_event_and_problem() -> None:
    document = msgspec.json.decode(make_document())
    validate(document)
    rooms = {kind: cls.__module__.split(".")[:2] for kind, cls in list_known_kinds().items()}
    kinds = {k for k, room in rooms.items() if room[0] == "holdfast" and room[1] != "testing"}
    assert set(document["x-events"]) == kinds
    problems = document["components"]["schemas"]["ProblemDetails"]["x-problems"]
    ours = {c for c, cls in list_errors().items() if cls.__module__.startswith("holdfast.")}
    assert set(problems) == ours
    described = {one["operationId"] for at in document["paths"].values() for one in at.values()}
    assert set(ROUTES) <= described
