"""Tags in the forms in which EC2 and EFS take and return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.cluster.providers.cloud import Tags
from slipstream.cluster.providers.protocol import CLUSTER_TAG


def as_tags(tags: Tags) -> list[dict[str, str]]:
    """Return tags as a list of keys and values, with a name for the console."""
    name = {"Name": f"slipstream-{tags[CLUSTER_TAG]}"} if CLUSTER_TAG in tags else {}
    return [{"Key": key, "Value": value} for key, value in {**name, **tags}.items()]


def specification(tags: Tags, *kinds: str) -> list[dict[str, Any]]:
    """Return the argument that tags resources of these kinds in the call that creates them."""
    return [{"ResourceType": kind, "Tags": as_tags(tags)} for kind in kinds]


def tags_in(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a listed resource."""
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags", [])}


def own_filter(cluster: str) -> list[dict[str, Any]]:
    """Return the filter for the resources of a cluster; with "" for those of all clusters."""
    if cluster:
        return [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    return [{"Name": "tag-key", "Values": [CLUSTER_TAG]}]
