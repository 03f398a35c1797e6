"""Checks of models: what is configured, what answers on this machine."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.cli.doctor_check import DoctorCheck, Patient

LOCAL_SERVERS: Final = {"LM Studio": 1234, "Ollama": 11434, "llama.cpp": 8080}

_TIMEOUT_S: Final = 0.5
_MAX_ANSWER: Final = 1024 * 1024


def check_provider(patient: Patient) -> DoctorCheck:
    """Say which model a run would use, as far as the settings decide it."""
    settings = patient.loaded.settings
    configured = [
        label
        for label, value in (
            (
                f"OpenAI-compatible at {settings.model.openai_base_url}",
                settings.model.openai_base_url,
            ),
            ("an OpenAI key", settings.secrets.openai_api_key),
            ("an Anthropic key", settings.secrets.anthropic_api_key),
        )
        if value is not None
    ]
    if not configured:
        return DoctorCheck(
            name="model",
            status="warn",
            found="no provider is configured",
            means="A local server is used if one answers, else the built-in offline model, "
            "which is no LLM.",
            fix="Set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENAI_BASE_URL, or start LM Studio, "
            "Ollama or llama.cpp.",
        )
    name = f"; model {settings.model.name}" if settings.model.name else ""
    return DoctorCheck(name="model", status="ok", found=", ".join(configured) + name)


def check_local_servers(_patient: Patient) -> DoctorCheck:
    """Look for model servers on loopback, all at once and briefly."""
    with ThreadPoolExecutor(max_workers=len(LOCAL_SERVERS)) as pool:
        answers = list(pool.map(probe, LOCAL_SERVERS.values()))
    found = [
        f"{name} on port {port} ({', '.join(models[:3]) or 'no model loaded'})"
        for (name, port), models in zip(LOCAL_SERVERS.items(), answers, strict=True)
        if models is not None
    ]
    if found:
        return DoctorCheck(name="local models", status="ok", found="; ".join(found))
    ports = ", ".join(f"{name} {port}" for name, port in LOCAL_SERVERS.items())
    return DoctorCheck(name="local models", status="ok", found=f"none answers ({ports})")


def probe(port: int, *, timeout_s: float = _TIMEOUT_S) -> list[str] | None:
    """The models that a server on loopback offers, or None if none answers there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/v1/models", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        body = answer.read(_MAX_ANSWER)
        parsed: object = json.loads(body) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()
    # Something else may listen there; only a list of models counts.
    models = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(models, list):
        return None
    return [str(model.get("id"))[:100] for model in models if isinstance(model, dict)]
