"""Tags in the forms in which ECS, VPC and NAS take and return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.cluster.providers.cloud import Tags
from slipstream.cluster.providers.protocol import CLUSTER_TAG


def as_tags(tags: Tags) -> list[dict[str, str]]:
    """Return tags as a list of keys and values."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_in(item: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a listed resource; ECS calls their fields otherwise than VPC and NAS."""
    tags = item.get("Tags", {}).get("Tag", [])
    return {
        tag.get("TagKey", tag.get("Key", "")): tag.get("TagValue", tag.get("Value", ""))
        for tag in tags
    }


def own_filter(cluster: str) -> list[dict[str, str]]:
    """Return the filter for the resources of a cluster; with "" for those of all clusters."""
    return [{"Key": CLUSTER_TAG, "Value": cluster}]
