"""The files in deploy/: their schemas, and that they agree with the server and each other."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped] # No stubs are installed.
from lightkube.codecs import load_all_yaml
from prometheus_client.parser import text_string_to_metric_families

from aiomlc.cli.app import app
from tests.unit.serve.asgi import serving

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
STANDARD_KINDS = {"Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"}
PROGRAM: Any = typer.main.get_command(app)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
IMAGE = f"aiomlc:{VERSION}"


def read_all(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def manifest(kind: str) -> dict[str, Any]:
    """Return the only manifest of a kind."""
    (found,) = (m for path in KUBERNETES for m in read_all(path) if m.get("kind") == kind)
    return found


def container() -> dict[str, Any]:
    (found,) = manifest("Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def compose() -> dict[str, Any]:
    (file,) = read_all(DEPLOY / "compose.yaml")
    return dict(file["services"]["aiomlc"])


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def entry_point() -> list[str]:
    """Return the arguments of `aiomlc serve` in the image."""
    (words,) = re.findall(r'^ENTRYPOINT \["aiomlc", "serve", (.*)\]$', dockerfile(), re.M)
    return [word.strip('" ') for word in words.split(",")]


def parse(arguments: list[str]) -> dict[str, Any]:
    """Parse the arguments of `aiomlc serve` as the program does."""
    command = PROGRAM.commands["serve"]
    parameters: dict[str, Any] = command.make_context("serve", list(arguments)).params
    return parameters


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.compose-spec", "deploy/compose.yaml"),
        ("vendor.github-workflows", ".github/workflows/release.yml"),
    ],
)
def test_files_fit_their_schemas(schema: str, path: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_manifests_have_only_fields_of_the_api() -> None:
    """The classes keep what the API has, and drop the rest."""
    kinds = set()
    for path in KUBERNETES:
        for raw in read_all(path):
            if raw.get("kind") in STANDARD_KINDS:
                resources: list[Any] = list(load_all_yaml(yaml.safe_dump(raw)))
                assert [resource.to_dict() for resource in resources] == [raw]
                kinds.add(raw["kind"])
    assert kinds == STANDARD_KINDS


def test_the_server_accepts_its_arguments() -> None:
    for arguments in (container()["args"], compose()["command"], ["--mode", "server"]):
        assert parse([*entry_point(), *arguments])["mode"] == "server"


def test_names_ports_and_versions_agree() -> None:
    (port,) = container()["ports"]
    number = parse(entry_point())["port"]
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    pool, pod_monitor = manifest("InferencePool"), manifest("PodMonitor")

    assert {container()["image"], compose()["image"]} == {IMAGE}
    assert f"-t {IMAGE} ." in dockerfile()
    assert f"EXPOSE {number}\n" in dockerfile()
    assert f"http://127.0.0.1:{number}/health" in dockerfile()
    assert port["containerPort"] == number
    assert compose()["ports"] == [f"127.0.0.1:{number}:{number}"]
    assert pool["spec"]["targetPorts"] == [{"number": number}]
    assert manifest("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    assert pod_monitor["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
    assert manifest("Service")["spec"]["selector"] == labels
    for kind in ("Deployment", "PodMonitor", "InferencePool", "PodDisruptionBudget"):
        assert manifest(kind)["spec"]["selector"]["matchLabels"] == labels
    target = manifest("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert target["name"] == manifest("Deployment")["metadata"]["name"]
    (route,) = manifest("HTTPRoute")["spec"]["rules"]
    assert route["backendRefs"][0]["name"] == pool["metadata"]["name"]


def test_what_runs_has_no_rights_and_writes_only_to_volumes() -> None:
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    writable = {mount["mountPath"] for mount in container()["volumeMounts"]}
    variables = {item["name"]: item.get("value") for item in container()["env"]}
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert f"USER {user}\n" in dockerfile()
    assert f"VOLUME {variables['AIOMLC_HOME']}\n" in dockerfile()
    assert {variables["AIOMLC_HOME"], "/tmp"} == writable
    assert str(variables["HF_HOME"]).startswith(str(variables["AIOMLC_HOME"]))
    assert compose()["read_only"] is True
    assert compose()["volumes"] == [f"cache:{variables['AIOMLC_HOME']}"]
    assert "value" not in next(v for v in container()["env"] if v["name"] == "AIOMLC_API_KEY")


def test_the_last_stage_has_no_compiler() -> None:
    *_, last = dockerfile().split("\nFROM ")
    assert "apt-get" not in last
    assert re.search(r"^COPY --from=build /opt/aiomlc ", last, re.M)


def test_grace_periods_are_longer_than_the_drain() -> None:
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    (_, delay) = container()["lifecycle"]["preStop"]["exec"]["command"]
    drain = parse([*entry_point(), *container()["args"]])["drain_timeout"]

    assert pod["terminationGracePeriodSeconds"] > int(delay) + drain
    drain = parse([*entry_point(), *compose()["command"]])["drain_timeout"]
    assert int(compose()["stop_grace_period"].removesuffix("s")) > drain


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_probes_and_gauges_exist() -> None:
    paths = {container()[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe")}
    (adapter,) = read_all(DEPLOY / "kubernetes" / "prometheus-adapter.yaml")
    (rule,) = adapter["rules"]["custom"]
    (metric,) = manifest("HorizontalPodAutoscaler")["spec"]["metrics"]
    documented = re.findall(
        r"^\| `(vllm:\w+)` \|", (ROOT / "docs" / "deploy.md").read_text("utf-8"), re.M
    )

    async with serving() as (_, client):
        statuses = {path: (await client.get(path)).status_code for path in paths}
        text = (await client.get("/metrics")).text

    gauges = {f.name for f in text_string_to_metric_families(text) if f.type == "gauge"}
    assert statuses == {"/health": 200, "/ready": 200}
    assert container()["startupProbe"]["httpGet"]["path"] == "/ready"
    assert rule["seriesQuery"].partition("{")[0] in gauges
    assert rule["name"]["as"] == metric["pods"]["metric"]["name"]
    assert len(documented) == 3
    assert set(documented) <= gauges
