"""The policies of AWS and Alibaba Cloud allow what the code calls, and nothing else."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from slipstream.cluster import providers

SERVICES = {"aws": {"ec2", "efs", "pricing"}, "aliyun": {"ecs", "vpc", "nas"}}
# Name of the service in policies, where it is not that of the API.
IN_POLICIES = {"efs": "elasticfilesystem"}
# Service of operations that are named without one.
PLAIN = {"aws": "ec2", "aliyun": ""}
# One call tags resources of all services of Alibaba Cloud.
TAGGING = {"aws": set[str](), "aliyun": {f"{name}:TagResources" for name in SERVICES["aliyun"]}}


def called(cloud: str) -> set[str]:
    """Return the operations that the code of a cloud names."""
    found: set[str] = set()
    for path in files(providers).joinpath(cloud).iterdir():
        if path.name.endswith(".py"):
            for node in ast.walk(ast.parse(path.read_text())):
                found.update(operations(node, cloud))
    return found | TAGGING[cloud]


def operations(node: ast.AST, cloud: str) -> Iterator[str]:
    """Yield the operations in a call such as `call("ec2", "RunInstances")`, or in a tuple."""
    items = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
    texts = [item.value for item in items if isinstance(item, ast.Constant)]
    for service, operation in zip([PLAIN[cloud], *texts], texts, strict=False):
        is_named = service in SERVICES[cloud] and str(operation)[:1].isupper()
        is_listing = service == PLAIN[cloud] and str(operation).startswith("Describe")
        if (is_named and service in texts) or is_listing:
            yield f"{IN_POLICIES.get(service, service)}:{operation}"


def statements(cloud: str) -> list[dict[str, Any]]:
    text = files(providers).joinpath("policies", f"{cloud}.json").read_text()
    return json.loads(text)["Statement"]


def actions(statement: dict[str, Any]) -> set[str]:
    action = statement["Action"]
    return {action} if isinstance(action, str) else set(action)


@pytest.mark.parametrize("cloud", ["aws", "aliyun"])
def test_a_policy_allows_what_is_called_and_no_more(cloud: str) -> None:
    allowed = set[str]().union(*(actions(statement) for statement in statements(cloud)))
    # The second element of these pairs is the name of a kind of resource.
    assert called(cloud) - {"vpc:VPC", "vpc:VSWITCH"} == allowed


def test_changes_at_aws_need_the_tag() -> None:
    for statement in statements("aws"):
        names = {action.partition(":")[2] for action in actions(statement)}
        is_reading = all(name.startswith(("Describe", "Get")) for name in names)
        is_bounded = statement["Resource"] != "*" or "Condition" in statement
        assert is_reading or is_bounded, statement["Sid"]
