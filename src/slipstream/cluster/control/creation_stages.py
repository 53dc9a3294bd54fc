"""How long the stages of a creation took, and so how long they will take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from slipstream.cluster.records import ResourceLedger

# In this time FastGPU had a cluster ready.
GOAL_SECONDS = 300.0


def keep_stages(ledger: ResourceLedger, cluster: str, seconds: Mapping[str, float]) -> None:
    """Write the times of a creation into the ledger, with the machines that it created.

    Args:
        ledger: ResourceLedger.
        cluster: Name of the cluster.
        seconds: Time of each stage in seconds.
    """
    for entry in ledger.resources(cluster):
        if entry.kind == "machine" and "stages" not in entry.facts:
            ledger.created(entry.token, entry.external_id, {"stages": dict(seconds)})


def expected_seconds(ledger: ResourceLedger, provider: str, region: str) -> dict[str, float]:
    """Return the median time of each stage of earlier creations, in seconds.

    Args:
        ledger: ResourceLedger.
        provider: Name of the provider.
        region: Region of the provider.

    Returns:
        Seconds by the name of the stage; nothing if none was created there.
    """
    samples: dict[str, list[float]] = {}
    for entry in ledger.resources(all_states=True):
        if (entry.provider, entry.region) == (provider, region):
            for name, seconds in entry.facts.get("stages", {}).items():
                samples.setdefault(name, []).append(float(seconds))
    return {name: statistics.median(values) for name, values in samples.items()}
