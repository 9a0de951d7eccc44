"""What lies in deploy/ray names only what exists: commands, options, variables, fields of a RayJob."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from packer.cli import build_command
from shardferry import __version__

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/ray"
MANIFESTS = sorted(DEPLOY.glob("*.yaml"))

# from the CustomResourceDefinition of KubeRay 1.2 to 1.7
RAY_JOB = {
    "entrypoint",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "backoffLimit",
    "submitterPodTemplate",
    "rayClusterSpec",
}
RAY_CLUSTER = {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
HEAD_GROUP = {"rayStartParams", "template"}
WORKER_GROUP = HEAD_GROUP | {"groupName", "replicas", "minReplicas", "maxReplicas"}

RAYS_OWN = {"RAY_USAGE_STATS_ENABLED"}
AWS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}


@pytest.fixture(params=MANIFESTS, ids=lambda path: path.name)
def job(request):
    return yaml.safe_load(request.param.read_text())


def pods(job):
    spec = job["spec"]["rayClusterSpec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [job["spec"]["submitterPodTemplate"]["spec"], *(group["template"]["spec"] for group in groups)]


def containers(job):
    return [container for pod in pods(job) for container in pod["containers"]]


def test_there_are_manifests():
    assert len(MANIFESTS) == 2


def test_fields_are_those_of_a_ray_job(job):
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert set(spec) <= RAY_JOB
    cluster = spec["rayClusterSpec"]
    assert set(cluster) <= RAY_CLUSTER
    assert set(cluster["headGroupSpec"]) <= HEAD_GROUP
    for group in cluster["workerGroupSpecs"]:
        assert set(group) <= WORKER_GROUP
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_entrypoint_is_a_command_that_exists(job):
    words = shlex.split(job["spec"]["entrypoint"])
    context = build_command.make_context("build", words[2:])
    assert words[:2] == ["pack", "build"]
    assert context.params["source"]
    assert context.meta["packer.options"]["engine"] == "ray"


def test_variables_exist(job):
    ours = {variable for option in build_command.params for variable in [option.envvar] if variable}
    for container in containers(job):
        for entry in container.get("env", ()):
            assert entry["name"] in ours | RAYS_OWN | AWS
    secrets = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
    assert all("value" not in entry for c in containers(job) for entry in c.get("env", ()) if entry["name"] in secrets)


def test_driver_and_workers_see_the_same_files_and_variables(job):
    _, head, *workers = pods(job)
    for worker in workers:
        assert worker["volumes"] == head["volumes"]
        assert worker["containers"][0]["volumeMounts"] == head["containers"][0]["volumeMounts"]
        assert worker["containers"][0]["env"] == head["containers"][0]["env"]
    assert {mount["name"] for mount in head["containers"][0]["volumeMounts"]} == {v["name"] for v in head["volumes"]}


def test_pods_are_modest(job):
    for pod in pods(job):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
    for container in containers(job):
        assert set(container["resources"]) == {"requests", "limits"}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_one_version_of_ray_and_of_shardferry(job):
    (pinned,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == pinned
    assert f"FROM rayproject/ray:{pinned}-py311" in (DEPLOY / "Dockerfile").read_text()
    assert {container["image"].rpartition(":")[2] for container in containers(job)} == {__version__}


def test_image_has_all_packages():
    text = (DEPLOY / "Dockerfile").read_text()
    packages = re.search(r'^packages = \["shards".*\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert packages
    for name in re.findall(r'"(\w+)"', packages[0]):
        assert f"shardferry/{name}\n" in text
