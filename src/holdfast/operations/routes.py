"""Where each operation is found over HTTP: one line of method and path per operation.

Server, remote client and OpenAPI are made from this table and the table of operations. Fields of
a request that its path names are in the path; the others are in the query where the method is
GET or DELETE, else in a JSON body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

_PARAMETER = re.compile(r"{(\w+)}")


class Route(msgspec.Struct, frozen=True, eq=False):
    """How an operation is asked for over HTTP."""

    method: str
    path: str
    status: int = 200
    """That of a good answer."""
    defaults: Mapping[str, Any] = {}
    """Values of fields that may be left out here, though the operation asks for them."""
    media_type: str = ""
    """Of an answer that is bytes."""
    upload: str = ""
    """The field that is the body itself, as a file; the others are in the query then."""
    missing: str = ""
    """What there is none of where the answer is nothing: 404 then."""
    is_secret: bool = False
    """The answer holds a secret that is shown once: it is kept under no idempotency key."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields that the path names."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def has_body(self) -> bool:
        """Whether the other fields come in a body, rather than in the query."""
        return self.method not in {"GET", "DELETE"}


_NEW_RUN: Final = {"agent_name": "", "session_id": ""}
_RESULT: Final = {"raise_on_failure": False}
_S: Final = "/v1/sessions/{session_id}"
_R: Final = "/v1/runs/{run_id}"
_M: Final = "/v1/memory"

ROUTES: Final[dict[str, Route]] = {
    "agents.list": Route("GET", "/v1/agents"),
    "agents.get": Route("GET", "/v1/agents/{name}", missing="agent"),
    "agents.remove": Route("DELETE", "/v1/agents/{name}"),
    "agents.state": Route("GET", "/v1/agents/{agent}/state"),
    "approvals.list": Route("GET", "/v1/approvals"),
    "approvals.get": Route("GET", "/v1/approvals/{approval_id}"),
    "approvals.approve": Route("POST", "/v1/approvals/{approval_id}/approve"),
    "approvals.deny": Route("POST", "/v1/approvals/{approval_id}/deny"),
    "approvals.terms": Route("GET", "/v1/approval-terms"),
    "approvals.questions": Route("GET", "/v1/questions"),
    "approvals.answer": Route("POST", f"{_S}/calls/{{call_id}}/answer"),
    "approvals.decide_outcome": Route("POST", f"{_S}/calls/{{call_id}}/outcome"),
    "audit.heads": Route("GET", "/v1/audit/heads", media_type="application/json"),
    "audit.verify": Route("POST", "/v1/audit/verify"),
    "events.watch": Route("GET", "/v1/events"),
    "events.stream": Route("GET", "/v1/events/stream"),
    "events.timeline": Route("GET", "/v1/events/timeline"),
    "events.list": Route("GET", f"{_S}/events"),
    "events.count": Route("GET", f"{_S}/events/count"),
    "hooks.list": Route("GET", "/v1/hooks"),
    "hooks.trust": Route("POST", "/v1/hooks/trust"),
    "keys.create": Route("POST", "/v1/keys", 201, is_secret=True),
    "keys.list": Route("GET", "/v1/keys"),
    "keys.rotate": Route("POST", "/v1/keys/{key_id}/rotate", 201, is_secret=True),
    "keys.revoke": Route("DELETE", "/v1/keys/{key_id}"),
    "loops.run": Route("POST", "/v1/loops/wait"),
    "loops.stream": Route("POST", "/v1/loops/stream"),
    "loops.load": Route("POST", "/v1/loops/import", 201, upload="source"),
    "loops.state": Route("GET", "/v1/loops/{run_id}"),
    "loops.report": Route("GET", "/v1/loops/{run_id}/report"),
    "loops.replay": Route("GET", "/v1/loops/{run_id}/replay"),
    "mcp.endpoints": Route("GET", "/v1/mcp"),
    "mcp.health": Route("GET", "/v1/mcp/health"),
    "mcp.trust": Route("POST", "/v1/mcp/{name}/trust"),
    "mcp.forget": Route("DELETE", "/v1/mcp/{name}", 204),
    "mcp.tools": Route("GET", "/v1/mcp/{endpoint}/tools"),
    "mcp.accept": Route("POST", "/v1/mcp/{endpoint}/accept"),
    "mcp.invoke": Route("POST", "/v1/mcp/{endpoint}/tools/{tool}/invoke"),
    "memory.store": Route("POST", _M, 201, {"session_id": ""}),
    "memory.list": Route("GET", _M),
    "memory.search": Route("POST", f"{_M}/search", 200, {"session_id": ""}),
    "memory.relevant": Route("POST", f"{_M}/relevant", 200, {"session_id": ""}),
    "memory.summarize": Route("POST", f"{_M}/summary", 200, {"session_id": ""}),
    "memory.forget": Route("POST", f"{_M}/forget"),
    "memory.stats": Route("GET", f"{_M}/stats"),
    "memory.reindex": Route("POST", f"{_M}/reindex"),
    "memory.lines": Route("GET", f"{_M}/export", media_type="application/x-ndjson"),
    "memory.load": Route("POST", f"{_M}/import", upload="source"),
    "memory.get": Route("GET", f"{_M}/{{memory_id}}"),
    "memory.history": Route("GET", f"{_M}/{{memory_id}}/history"),
    "memory.update": Route("PATCH", f"{_M}/{{memory_id}}"),
    "memory.pin": Route("POST", f"{_M}/{{memory_id}}/pin", 204),
    "memory.delete": Route("DELETE", f"{_M}/{{memory_id}}", 204),
    "memory.remember_session": Route("POST", f"{_S}/remember"),
    "messages.add": Route("POST", f"{_S}/messages", 201),
    "messages.list": Route("GET", f"{_S}/messages"),
    "messages.get": Route("GET", f"{_S}/messages/{{message_id}}"),
    "messages.update_part": Route("PUT", f"{_S}/messages/{{message_id}}/parts"),
    "messages.delete": Route("DELETE", f"{_S}/messages/{{message_id}}", 204),
    "policies.reload": Route("POST", "/v1/policies/reload"),
    "providers.list": Route("GET", "/v1/providers"),
    "runs.start": Route("POST", "/v1/runs", 202, _NEW_RUN),
    "runs.execute": Route("POST", "/v1/runs/wait", 200, _NEW_RUN),
    "runs.stream": Route("POST", "/v1/runs/stream", 200, _NEW_RUN),
    "runs.list": Route("GET", "/v1/runs"),
    "runs.interrupted": Route("GET", "/v1/runs/interrupted"),
    "runs.get": Route("GET", _R),
    "runs.result": Route("GET", f"{_R}/result", 200, _RESULT),
    "runs.follow": Route("GET", f"{_R}/stream", 200, _RESULT),
    "runs.events": Route("GET", f"{_R}/events"),
    "runs.request": Route("GET", f"{_R}/request"),
    "runs.cancel": Route("POST", f"{_R}/cancel"),
    "runs.steer_run": Route("POST", f"{_R}/steer"),
    "runs.fork": Route("POST", f"{_R}/fork", 201),
    "runs.await_answer": Route("GET", f"{_R}/answer"),
    "runs.children": Route("GET", f"{_R}/children"),
    "runs.cancel_children": Route("POST", f"{_R}/children/cancel"),
    "runs.steer": Route("POST", f"{_S}/steer"),
    "runs.family_events": Route("GET", f"{_S}/family/events"),
    "runs.watch_family": Route("GET", f"{_S}/family/stream"),
    "sessions.create": Route("POST", "/v1/sessions", 201),
    "sessions.list": Route("GET", "/v1/sessions"),
    "sessions.most_recent": Route("GET", "/v1/sessions/most-recent"),
    "sessions.load": Route("POST", "/v1/sessions/import", 201, upload="source"),
    "sessions.get": Route("GET", _S),
    "sessions.update": Route("PATCH", _S),
    "sessions.delete": Route("DELETE", _S, 204),
    "sessions.change_state": Route("POST", f"{_S}/state"),
    "sessions.archive": Route("POST", f"{_S}/archive"),
    "sessions.restore": Route("POST", f"{_S}/restore"),
    "sessions.fork": Route("POST", f"{_S}/fork", 201),
    "sessions.revert": Route("POST", f"{_S}/revert"),
    "sessions.lines": Route("GET", f"{_S}/export", media_type="application/x-ndjson"),
    "sessions.context": Route("GET", f"{_S}/context"),
    "sessions.compact": Route("POST", f"{_S}/compact"),
    "skills.list": Route("GET", "/v1/skills"),
    "skills.trust": Route("POST", "/v1/skills/{name}/trust"),
    "storage.stats": Route("GET", "/v1/storage"),
    "storage.clean_up": Route("POST", "/v1/storage/clean-up"),
    "storage.rebuild": Route("POST", "/v1/storage/rebuild"),
    "tenants.create": Route("POST", "/v1/tenants", 201),
    "tenants.list": Route("GET", "/v1/tenants"),
    "tenants.suspend": Route("POST", "/v1/tenants/{name}/suspend"),
    "tenants.resume": Route("POST", "/v1/tenants/{name}/resume"),
    "tenants.delete": Route("DELETE", "/v1/tenants/{name}"),
    "tenants.export": Route("GET", "/v1/tenants/{name}/export", media_type="application/x-ndjson"),
    "tenants.erase_user": Route("POST", "/v1/users/{subject}/erase"),
    "tools.call": Route("POST", "/v1/tools/{name}/call"),
    "tools.history": Route("GET", f"{_S}/calls"),
    "tools.output": Route("GET", f"{_S}/outputs/{{handle}}", media_type="application/octet-stream"),
    "triggers.add": Route("POST", "/v1/triggers", 201),
    "triggers.list": Route("GET", "/v1/triggers"),
    "triggers.firings": Route("GET", "/v1/triggers/firings"),
    "triggers.run": Route("POST", "/v1/triggers/run", 204),
    "triggers.remove": Route("DELETE", "/v1/triggers/{name}", 204),
    "usage.get": Route("GET", "/v1/usage"),
    "webhooks.add": Route("POST", "/v1/webhooks", 201, is_secret=True),
    "webhooks.list": Route("GET", "/v1/webhooks"),
    "webhooks.deliver": Route("POST", "/v1/webhooks/deliver"),
    "webhooks.deliveries": Route("GET", "/v1/webhooks/deliveries"),
    "webhooks.redeliver": Route("POST", "/v1/webhooks/deliveries/{message_id}/redeliver"),
    "webhooks.remove": Route("DELETE", "/v1/webhooks/{webhook_id}", 204),
    "workflows.list": Route("GET", "/v1/workflows"),
    "workflows.validate": Route("GET", "/v1/workflows/{workflow}"),
    "workflows.run": Route("POST", "/v1/workflows/{workflow}/runs"),
    "workflows.runs": Route("GET", "/v1/workflow-runs"),
    "workflows.get": Route("GET", "/v1/workflow-runs/{run_id}"),
    "workflows.resume": Route("POST", "/v1/workflow-runs/{run_id}/resume"),
}
"""Every operation, by name."""

ALIASES: Final[dict[tuple[str, str], str]] = {
    ("POST", "/policies/reload"): "policies.reload",
    ("POST", "/runs"): "runs.start",
    ("GET", "/runs"): "runs.list",
    ("GET", "/runs/{run_id}"): "runs.get",
    ("GET", "/logs/{run_id}"): "runs.events",
    ("GET", "/checkpoints/{run_id}"): "loops.replay",
    ("POST", "/v1/runs/{run_id}/resume"): "runs.result",
    ("GET", "/v1/runs/{run_id}/report"): "loops.report",
    ("GET", "/v1/runs/{run_id}/replay"): "loops.replay",
}
"""Other addresses of operations: names that people know from elsewhere."""


@cache
def list_routes() -> dict[tuple[str, str], str]:
    """Return the name of the operation at each method and path, aliases included."""
    return {(one.method, one.path): name for name, one in ROUTES.items()} | ALIASES


__all__ = ["ALIASES", "ROUTES", "Route", "list_routes"]
