"""How long the stages of a creation take, by the times that earlier ones took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager

from slipstream.cluster.control.stages import StageListener
from slipstream.cluster.records import ResourceLedger

# In this time FastGPU had a cluster ready.
GOAL_SECONDS = 300.0


class CreationStages:
    """The stages of one creation.

    Args:
        ledger: Ledger, which has the times of earlier creations.
        place: Names of the provider and of its region.
        listener: Listener that is told of each stage.
    """

    def __init__(
        self, ledger: ResourceLedger, place: tuple[str, str], listener: StageListener
    ) -> None:
        self._ledger = ledger
        self._listener = listener
        self._expected = expected_seconds(ledger, place)
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measured(self, name: str) -> Generator[None]:
        """Measure one stage."""
        self._listener.stage_begins(name, "", self._expected.get(name))
        begun_at = time.monotonic()
        yield
        self._seconds[name] = round(time.monotonic() - begun_at, 3)
        self._listener.stage_ends(name, "", self._seconds[name])

    def keep(self, cluster: str) -> None:
        """Write the times into the ledger, with the machines that were created in them."""
        for entry in self._ledger.resources(cluster):
            if entry.kind == "machine" and "stages" not in entry.facts:
                facts = {"stages": self._seconds}
                self._ledger.created(entry.token, entry.external_id, facts)


def expected_seconds(ledger: ResourceLedger, place: tuple[str, str]) -> dict[str, float]:
    """Return the median time of each stage of earlier creations, in seconds.

    Args:
        ledger: Ledger.
        place: Names of the provider and of its region.

    Returns:
        Seconds by the name of the stage; nothing if none was created there.
    """
    samples: dict[str, list[float]] = {}
    for entry in ledger.resources(all_states=True):
        if (entry.provider, entry.region) == place:
            for name, seconds in entry.facts.get("stages", {}).items():
                samples.setdefault(name, []).append(float(seconds))
    return {name: statistics.median(values) for name, values in samples.items()}
