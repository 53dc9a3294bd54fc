"""The manifests are what Kubernetes' published schemas allow, and have no secret outside of one."""

import base64
import json
from collections.abc import Callable

import pytest

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.engines.kubernetes.manifests import manifests

MakePlan = Callable[..., RunPlan]

FIELDS = {
    "on": "k8s",
    "hosts": "2:4",
    "k8s": {"image": "me/train:1", "claims": {"datasets": "/data"}, "node_selector": {"a": "b"}},
    "resources": {"gpus": 2, "cpus": 8, "memory": "32GiB", "accelerators": {"xilinx.com/u250": 1}},
}


def test_the_resources_of_a_pod(plan_of: MakePlan) -> None:
    job, secret, service = manifests(plan_of(**FIELDS))
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {
        "nvidia.com/gpu": "2",
        "cpu": "8",
        "memory": "32768Mi",
        "xilinx.com/u250": "1",
    }
    assert pod["subdomain"] == service["metadata"]["name"] == "train-1"
    placement = json.loads(base64.b64decode(secret["data"]["placement.json"]))
    assert placement["heads"] == ["train-1-0.train-1.default.svc"]
    assert "PRIVATE KEY" not in json.dumps([job, service])


def test_the_published_schemas_allow_them(plan_of: MakePlan) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for manifest in manifests(plan_of(**FIELDS)):
        validate.validate(manifest, "1.31", strict=True)
