"""Files for operators fit their schemas, and keep what the seeds and the docs promise."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.settings import load_settings

ROOT = Path(__file__).parents[2]
SYSTEMD = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
KUBERNETES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_compose(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def list_objects() -> list[dict[str, Any]]:
    return [
        one
        for path in KUBERNETES
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        if one["kind"] != "Kustomization"
    ]


def find_pods() -> list[dict[str, Any]]:
    found = [one for one in list_objects() if one["kind"] == "Deployment"]
    assert found
    return [one["spec"]["template"]["spec"] for one in found]


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.compose-spec", [ROOT / "docker-compose.yml", ROOT / "compose.fleet.yml"]),
        ("vendor.github-workflows", WORKFLOWS),
    ],
)
def test_files_fit_their_schemas(schema: str, files: list[Path]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stdout


def test_one_machine_has_the_names_of_the_seed() -> None:
    compose = read_compose("docker-compose.yml")
    agent = compose["services"]["agent"]
    assert agent["container_name"] == "dev-agent"
    assert agent["extra_hosts"] == ["host.docker.internal:host-gateway"]
    chosen = agent["environment"]
    assert chosen["OPENAI_BASE_URL"].endswith("http://host.docker.internal:1234/v1}")
    assert chosen["AGENT_MODEL"] == "${AGENT_MODEL:-gpt-4o-mini}"
    assert "state" in compose["volumes"]
    assert {"/workspace", "/state", "/tools"} == {
        volume.rpartition(":")[2] for volume in agent["volumes"]
    }


@pytest.mark.parametrize("name", ["docker-compose.yml", "compose.fleet.yml"])
def test_compose_publishes_on_this_machine_only_and_drops_rights(name: str) -> None:
    for service in read_compose(name)["services"].values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")
        if str(service["image"]).startswith("holdfast"):
            assert service["user"] == "1000:1000"
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]


def test_fleet_has_a_database_workers_and_monitoring() -> None:
    services = read_compose("compose.fleet.yml")["services"]
    assert {"server", "worker", "postgres", "redis", "prometheus", "grafana"} <= set(services)
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["worker"]["command"] == ["worker"]
    url = services["server"]["environment"]["HOLDFAST_STORAGE__URL"]
    assert url.startswith("postgresql://")
    for service in services.values():
        for volume in service.get("volumes", ()):
            place = volume.partition(":")[0]
            if place.startswith("./"):
                assert (ROOT / place).exists(), f"{place} is mounted and does not exist"


def test_pods_are_confined_and_probed() -> None:
    for pod in find_pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 1000
        assert pod["automountServiceAccountToken"] is False
        [container] = pod["containers"]
        inside = container["securityContext"]
        assert inside["readOnlyRootFilesystem"] is True
        assert inside["allowPrivilegeEscalation"] is False
        assert inside["capabilities"]["drop"] == ["ALL"]
        assert "memory" in container["resources"]["limits"]
        if "ports" in container:
            assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
            assert container["livenessProbe"]["httpGet"]["path"] == "/health"


def test_cluster_has_budgets_a_network_policy_and_scales_on_the_queue() -> None:
    kinds = [one["kind"] for one in list_objects()]
    assert kinds.count("PodDisruptionBudget") == 2
    assert "NetworkPolicy" in kinds
    [scaler] = [one for one in list_objects() if one["kind"] == "HorizontalPodAutoscaler"]
    assert "queued" in scaler["spec"]["metrics"][0]["external"]["metric"]["name"]
    listed = yaml.safe_load((ROOT / "deploy/kubernetes/kustomization.yaml").read_text("utf-8"))
    assert set(listed["resources"]) == {
        path.name for path in KUBERNETES if path.name != "kustomization.yaml"
    }


@pytest.mark.parametrize("path", SYSTEMD, ids=lambda path: path.name)
def test_units_start_a_command_that_exists_without_rights(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    service = unit["Service"]
    assert re.fullmatch(r"/opt/holdfast/bin/holdfast (serve|worker)", service["ExecStart"])
    assert (service["User"], service["NoNewPrivileges"]) == ("holdfast", "yes")
    assert service["ProtectSystem"] == "strict"


def test_image_is_built_from_the_lock_in_two_stages_for_uid_1000() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert text.count("\nFROM ${BASE}") == 2
    assert "--require-hashes -r requirements-image.lock" in text
    assert "\nUSER 1000:1000\n" in text
    assert "HEALTHCHECK" in text
    for name in ("OPENAI_BASE_URL", "AGENT_MODEL", "AGENT_STATE_DIR", "AGENT_TOOLS_DIR"):
        assert f"    {name}=" in text


def test_example_of_the_environment_names_what_compose_reads() -> None:
    read = set()
    for name in ("docker-compose.yml", "compose.fleet.yml"):
        read |= set(re.findall(r"\$\{([A-Z_]+)", (ROOT / name).read_text(encoding="utf-8")))
    known = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#? ?([A-Z_]+)=", known, re.MULTILINE))
    assert read - named <= {"IMAGE_TAG"}


def fill_in(text: str) -> str:
    """Put in what compose puts in, with a word where it insists on one."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    return re.sub(r"\$\{\w+:\?[^}]*\}", "given", text)


def list_environments() -> dict[str, dict[str, str]]:
    """The environments that deployed processes get, by where they stand."""
    found = {}
    for name in ("docker-compose.yml", "compose.fleet.yml"):
        for service, one in read_compose(name)["services"].items():
            if str(one["image"]).startswith("holdfast"):
                given = one["environment"]
                found[f"{name} {service}"] = {key: fill_in(str(given[key])) for key in given}
    [config] = [one for one in list_objects() if one["kind"] == "ConfigMap"]
    found["kubernetes"] = config["data"]
    for path in SYSTEMD:
        lines = re.findall(r"^Environment=(\w+)=(.*)$", path.read_text("utf-8"), re.MULTILINE)
        found[path.name] = dict(lines)
    return found


@pytest.mark.parametrize("place", list_environments())
def test_settings_that_are_deployed_are_taken(place: str, tmp_path: Path) -> None:
    environ = list_environments()[place]
    here = {f"AGENT_{name}": str(tmp_path) for name in ("WORKSPACE", "STATE_DIR", "TOOLS_DIR")}
    loaded = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path), **environ, **here})
    assert loaded.find_source("workspace") == "environment AGENT_WORKSPACE"


def test_no_password_stands_in_a_deployed_file() -> None:
    for place, environ in list_environments().items():
        for name, value in environ.items():
            if any(word in name for word in ("PASSWORD", "TOKEN", "SECRET")):
                assert value == "given", f"{name} of {place}"
