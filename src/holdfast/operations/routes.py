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


class HttpRoute(msgspec.Struct, frozen=True, eq=False):
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
    deprecated_at: float = 0.0
    """Since when it should not be used, as the time of a clock; said in `Deprecation`."""
    sunset_at: float = 0.0
    """From when on it may be gone, at least six months later; said in `Sunset`."""
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
_A: Final = "/v1/artifacts/{artifact_id}"
_BYTES: Final = "application/octet-stream"

ROUTES: Final[dict[str, HttpRoute]] = {
    "agents.list": HttpRoute("GET", "/v1/agents"),
    "agents.get": HttpRoute("GET", "/v1/agents/{name}", missing="agent"),
    "agents.remove": HttpRoute("DELETE", "/v1/agents/{name}"),
    "agents.check": HttpRoute("GET", "/v1/agent-warnings"),
    "agents.state": HttpRoute("GET", "/v1/agents/{agent}/state"),
    "approvals.list": HttpRoute("GET", "/v1/approvals"),
    "approvals.get": HttpRoute("GET", "/v1/approvals/{approval_id}"),
    "approvals.approve": HttpRoute("POST", "/v1/approvals/{approval_id}/approve"),
    "approvals.deny": HttpRoute("POST", "/v1/approvals/{approval_id}/deny"),
    "approvals.terms": HttpRoute("GET", "/v1/approval-terms"),
    "approvals.questions": HttpRoute("GET", "/v1/questions"),
    "approvals.answer": HttpRoute("POST", f"{_S}/calls/{{call_id}}/answer"),
    "approvals.decide_outcome": HttpRoute("POST", f"{_S}/calls/{{call_id}}/outcome"),
    "artifacts.save": HttpRoute("POST", "/v1/artifacts", 201),
    "artifacts.write": HttpRoute("POST", "/v1/artifacts/content", 201, upload="source"),
    "artifacts.list": HttpRoute("GET", "/v1/artifacts"),
    "artifacts.usage": HttpRoute("GET", "/v1/artifacts/usage"),
    "artifacts.verify": HttpRoute("POST", "/v1/artifacts/verify"),
    "artifacts.collect": HttpRoute("POST", "/v1/artifacts/collect"),
    "artifacts.rekey": HttpRoute("POST", "/v1/artifacts/rekey"),
    "artifacts.shared": HttpRoute("GET", "/v1/artifact-links/{token}"),
    "artifacts.stream_shared": HttpRoute(
        "GET", "/v1/artifact-links/{token}/content", media_type=_BYTES
    ),
    "artifacts.get": HttpRoute("GET", _A),
    "artifacts.delete": HttpRoute("DELETE", _A, 204),
    "artifacts.versions": HttpRoute("GET", f"{_A}/versions"),
    "artifacts.stream": HttpRoute("GET", f"{_A}/content", media_type=_BYTES),
    "artifacts.load": HttpRoute("GET", f"{_A}/bytes", media_type=_BYTES),
    "artifacts.grants": HttpRoute("GET", f"{_A}/grants"),
    "artifacts.grant": HttpRoute("POST", f"{_A}/grants", 201),
    "artifacts.revoke": HttpRoute("POST", f"{_A}/revoke", 204),
    "artifacts.share": HttpRoute("POST", f"{_A}/links", 201, is_secret=True),
    "audit.anchor": HttpRoute("POST", "/v1/audit/anchor"),
    "audit.heads": HttpRoute("GET", "/v1/audit/heads", media_type="application/json"),
    "audit.list": HttpRoute("GET", "/v1/audit"),
    "audit.verify_trail": HttpRoute("POST", "/v1/audit/verify-trail"),
    "audit.verify": HttpRoute("POST", "/v1/audit/verify"),
    "events.watch": HttpRoute("GET", "/v1/events"),
    "events.stream": HttpRoute("GET", "/v1/events/stream"),
    "events.timeline": HttpRoute("GET", "/v1/events/timeline"),
    "events.list": HttpRoute("GET", f"{_S}/events"),
    "events.count": HttpRoute("GET", f"{_S}/events/count"),
    "hooks.list": HttpRoute("GET", "/v1/hooks"),
    "hooks.trust": HttpRoute("POST", "/v1/hooks/trust"),
    "keys.create": HttpRoute("POST", "/v1/keys", 201, is_secret=True),
    "keys.list": HttpRoute("GET", "/v1/keys"),
    "keys.rotate": HttpRoute("POST", "/v1/keys/{key_id}/rotate", 201, is_secret=True),
    "keys.revoke": HttpRoute("DELETE", "/v1/keys/{key_id}"),
    "keys.list_logins": HttpRoute("GET", "/v1/logins"),
    "keys.end_login": HttpRoute("DELETE", "/v1/logins/{login_id}"),
    "loops.run": HttpRoute("POST", "/v1/loops/wait"),
    "loops.submit": HttpRoute("POST", "/v1/loops/submit", 202),
    "loops.stream": HttpRoute("POST", "/v1/loops/stream"),
    "loops.load": HttpRoute("POST", "/v1/loops/import", 201, upload="source"),
    "loops.state": HttpRoute("GET", "/v1/loops/{run_id}"),
    "loops.report": HttpRoute("GET", "/v1/loops/{run_id}/report"),
    "loops.replay": HttpRoute("GET", "/v1/loops/{run_id}/replay"),
    "mcp.endpoints": HttpRoute("GET", "/v1/mcp"),
    "mcp.health": HttpRoute("GET", "/v1/mcp/health"),
    "mcp.trust": HttpRoute("POST", "/v1/mcp/{name}/trust"),
    "mcp.grant": HttpRoute("POST", "/v1/mcp/{name}/grant"),
    "mcp.log_out": HttpRoute("DELETE", "/v1/mcp/{name}/login"),
    "mcp.forget": HttpRoute("DELETE", "/v1/mcp/{name}", 204),
    "mcp.tools": HttpRoute("GET", "/v1/mcp/{endpoint}/tools"),
    "mcp.list_resources": HttpRoute("GET", "/v1/mcp/{endpoint}/resources"),
    "mcp.list_prompts": HttpRoute("GET", "/v1/mcp/{endpoint}/prompts"),
    "mcp.accept": HttpRoute("POST", "/v1/mcp/{endpoint}/accept"),
    "mcp.invoke": HttpRoute("POST", "/v1/mcp/{endpoint}/tools/{tool}/invoke"),
    "memory.store": HttpRoute("POST", _M, 201, {"session_id": ""}),
    "memory.list": HttpRoute("GET", _M),
    "memory.search": HttpRoute("POST", f"{_M}/search", 200, {"session_id": ""}),
    "memory.relevant": HttpRoute("POST", f"{_M}/relevant", 200, {"session_id": ""}),
    "memory.summarize": HttpRoute("POST", f"{_M}/summary", 200, {"session_id": ""}),
    "memory.forget": HttpRoute("POST", f"{_M}/forget"),
    "memory.stats": HttpRoute("GET", f"{_M}/stats"),
    "memory.reindex": HttpRoute("POST", f"{_M}/reindex"),
    "memory.lines": HttpRoute("GET", f"{_M}/export", media_type="application/x-ndjson"),
    "memory.load": HttpRoute("POST", f"{_M}/import", upload="source"),
    "memory.get": HttpRoute("GET", f"{_M}/{{memory_id}}"),
    "memory.history": HttpRoute("GET", f"{_M}/{{memory_id}}/history"),
    "memory.update": HttpRoute("PATCH", f"{_M}/{{memory_id}}"),
    "memory.pin": HttpRoute("POST", f"{_M}/{{memory_id}}/pin", 204),
    "memory.delete": HttpRoute("DELETE", f"{_M}/{{memory_id}}", 204),
    "memory.remember_session": HttpRoute("POST", f"{_S}/remember"),
    "messages.add": HttpRoute("POST", f"{_S}/messages", 201),
    "messages.list": HttpRoute("GET", f"{_S}/messages"),
    "messages.get": HttpRoute("GET", f"{_S}/messages/{{message_id}}"),
    "messages.update_part": HttpRoute("PUT", f"{_S}/messages/{{message_id}}/parts"),
    "messages.delete": HttpRoute("DELETE", f"{_S}/messages/{{message_id}}", 204),
    "policies.get": HttpRoute("GET", "/v1/policies"),
    "policies.status": HttpRoute("GET", "/v1/policies/status"),
    "policies.validate": HttpRoute("POST", "/v1/policies/validate"),
    "policies.explain": HttpRoute("POST", "/v1/policies/explain"),
    "policies.replay": HttpRoute("POST", "/v1/policies/replay"),
    "policies.reload": HttpRoute("POST", "/v1/policies/reload"),
    "providers.list": HttpRoute("GET", "/v1/providers"),
    "runs.start": HttpRoute("POST", "/v1/runs", 202, _NEW_RUN),
    "runs.execute": HttpRoute("POST", "/v1/runs/wait", 200, _NEW_RUN),
    "runs.stream": HttpRoute("POST", "/v1/runs/stream", 200, _NEW_RUN),
    "runs.find": HttpRoute("GET", "/v1/runs"),
    "runs.list": HttpRoute("GET", "/v1/runs/latest"),
    "runs.interrupted": HttpRoute("GET", "/v1/runs/interrupted"),
    "runs.get": HttpRoute("GET", _R),
    "runs.result": HttpRoute("GET", f"{_R}/result", 200, _RESULT),
    "runs.follow": HttpRoute("GET", f"{_R}/stream", 200, _RESULT),
    "runs.events": HttpRoute("GET", f"{_R}/events"),
    "runs.request": HttpRoute("GET", f"{_R}/request"),
    "runs.cancel": HttpRoute("POST", f"{_R}/cancel"),
    "runs.steer_run": HttpRoute("POST", f"{_R}/steer"),
    "runs.fork": HttpRoute("POST", f"{_R}/fork", 201),
    "runs.waiting": HttpRoute("GET", f"{_R}/waiting"),
    "runs.wake": HttpRoute("POST", f"{_R}/wake"),
    "runs.answer_calls": HttpRoute("POST", f"{_R}/calls/answer"),
    "runs.await_answer": HttpRoute("GET", f"{_R}/answer"),
    "runs.children": HttpRoute("GET", f"{_R}/children"),
    "runs.cancel_children": HttpRoute("POST", f"{_R}/children/cancel"),
    "runs.steer": HttpRoute("POST", f"{_S}/steer"),
    "runs.family_events": HttpRoute("GET", f"{_S}/family/events"),
    "runs.watch_family": HttpRoute("GET", f"{_S}/family/stream"),
    "sessions.create": HttpRoute("POST", "/v1/sessions", 201),
    "sessions.list": HttpRoute("GET", "/v1/sessions"),
    "sessions.most_recent": HttpRoute("GET", "/v1/sessions/most-recent"),
    "sessions.load": HttpRoute("POST", "/v1/sessions/import", 201, upload="source"),
    "sessions.get": HttpRoute("GET", _S),
    "sessions.update": HttpRoute("PATCH", _S),
    "sessions.delete": HttpRoute("DELETE", _S, 204),
    "sessions.change_state": HttpRoute("POST", f"{_S}/state"),
    "sessions.archive": HttpRoute("POST", f"{_S}/archive"),
    "sessions.restore": HttpRoute("POST", f"{_S}/restore"),
    "sessions.fork": HttpRoute("POST", f"{_S}/fork", 201),
    "sessions.revert": HttpRoute("POST", f"{_S}/revert"),
    "sessions.undo": HttpRoute("POST", f"{_S}/undo"),
    "sessions.lines": HttpRoute("GET", f"{_S}/export", media_type="application/x-ndjson"),
    "sessions.context": HttpRoute("GET", f"{_S}/context"),
    "sessions.compact": HttpRoute("POST", f"{_S}/compact"),
    "skills.list": HttpRoute("GET", "/v1/skills"),
    "skills.trust": HttpRoute("POST", "/v1/skills/{name}/trust"),
    "state.get": HttpRoute("POST", "/v1/state/get"),
    "state.entry": HttpRoute("GET", "/v1/state/value", missing="value"),
    "state.set": HttpRoute("PUT", "/v1/state/value"),
    "state.delete": HttpRoute("DELETE", "/v1/state/value"),
    "state.list": HttpRoute("GET", "/v1/state"),
    "state.history": HttpRoute("GET", "/v1/state/history"),
    "state.watch": HttpRoute("GET", "/v1/state/changes"),
    "state.snapshot": HttpRoute("GET", "/v1/state/snapshot"),
    "state.restore": HttpRoute("POST", "/v1/state/restore"),
    "state.forget": HttpRoute("POST", "/v1/state/forget"),
    "state.sweep": HttpRoute("POST", "/v1/state/sweep"),
    "storage.stats": HttpRoute("GET", "/v1/storage"),
    "storage.clean_up": HttpRoute("POST", "/v1/storage/clean-up"),
    "storage.status": HttpRoute("GET", "/v1/storage/schema"),
    "storage.migrate": HttpRoute("POST", "/v1/storage/migrate"),
    "storage.mend": HttpRoute("POST", "/v1/storage/mend"),
    "storage.rebuild": HttpRoute("POST", "/v1/storage/rebuild"),
    "tenants.create": HttpRoute("POST", "/v1/tenants", 201),
    "tenants.list": HttpRoute("GET", "/v1/tenants"),
    "tenants.usage": HttpRoute("GET", "/v1/tenants/usage"),
    "tenants.suspend": HttpRoute("POST", "/v1/tenants/{name}/suspend"),
    "tenants.resume": HttpRoute("POST", "/v1/tenants/{name}/resume"),
    "tenants.delete": HttpRoute("DELETE", "/v1/tenants/{name}"),
    "tenants.export": HttpRoute(
        "GET", "/v1/tenants/{name}/export", media_type="application/x-ndjson"
    ),
    "tenants.erase_user": HttpRoute("POST", "/v1/users/{subject}/erase"),
    "tools.list": HttpRoute("GET", "/v1/tools"),
    "tools.describe": HttpRoute("GET", "/v1/tools/{name}/schema"),
    "tools.call": HttpRoute("POST", "/v1/tools/{name}/call"),
    "tools.history": HttpRoute("GET", f"{_S}/calls"),
    "tools.output": HttpRoute(
        "GET", f"{_S}/outputs/{{handle}}", media_type="application/octet-stream"
    ),
    "runs.submit": HttpRoute("POST", "/v1/runs/submit", 202, defaults=_NEW_RUN),
    "runs.wait": HttpRoute("GET", f"{_R}/wait"),
    "workers.list": HttpRoute("GET", "/v1/workers"),
    "workers.list_dead": HttpRoute("GET", "/v1/workers/dead"),
    "workers.retry": HttpRoute("POST", "/v1/workers/dead/{letter_id}/retry"),
    "triggers.add": HttpRoute("POST", "/v1/triggers", 201),
    "triggers.list": HttpRoute("GET", "/v1/triggers"),
    "triggers.firings": HttpRoute("GET", "/v1/triggers/firings"),
    "triggers.run": HttpRoute("POST", "/v1/triggers/run", 204),
    "triggers.remove": HttpRoute("DELETE", "/v1/triggers/{name}", 204),
    "usage.get": HttpRoute("GET", "/v1/usage"),
    "usage.metrics": HttpRoute("GET", "/v1/usage/metrics"),
    "webhooks.add": HttpRoute("POST", "/v1/webhooks", 201, is_secret=True),
    "webhooks.list": HttpRoute("GET", "/v1/webhooks"),
    "webhooks.deliver": HttpRoute("POST", "/v1/webhooks/deliver"),
    "webhooks.deliveries": HttpRoute("GET", "/v1/webhooks/deliveries"),
    "webhooks.redeliver": HttpRoute("POST", "/v1/webhooks/deliveries/{message_id}/redeliver"),
    "webhooks.remove": HttpRoute("DELETE", "/v1/webhooks/{webhook_id}", 204),
    "workflows.list": HttpRoute("GET", "/v1/workflows"),
    "workflows.validate": HttpRoute("GET", "/v1/workflows/{workflow}"),
    "workflows.run": HttpRoute("POST", "/v1/workflows/{workflow}/runs"),
    "workflows.runs": HttpRoute("GET", "/v1/workflow-runs"),
    "workflows.get": HttpRoute("GET", "/v1/workflow-runs/{run_id}"),
    "workflows.resume": HttpRoute("POST", "/v1/workflow-runs/{run_id}/resume"),
}
"""Every operation, by name."""

ALIASES: Final[dict[tuple[str, str], str]] = {
    ("POST", "/policies/reload"): "policies.reload",
    ("POST", "/runs"): "runs.start",
    ("GET", "/runs"): "runs.find",
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


__all__ = ["ALIASES", "ROUTES", "HttpRoute", "list_routes"]
