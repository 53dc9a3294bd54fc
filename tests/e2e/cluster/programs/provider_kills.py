"""Kill a client before and after each of its calls to a cloud, and see that nothing is left behind.

The arguments are the name of the cloud, "up" or "down", and the share of the calls, such as "0/4".
Every client is a fork of this program that really dies by SIGKILL. After each death, one cluster is
completed and deleted by another client; another cluster is left to the collection that follows
after its deadline, with the ledger or without it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from slipstream.cluster.outside import num_outside_calls
from slipstream.cluster.providers import ClusterRequest, Pace, cloud_provider, collect
from slipstream.cluster.providers.cloud_provider import CloudProvider
from slipstream.cluster.records import ResourceLedger, Store

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me"
PACE = Pace(poll_seconds=0.01, settle_seconds=0.0, limit_seconds=30.0)
TYPES = {"aws": ("g4dn.xlarge", "ami-785db401"), "aliyun": ("ecs.gn6i-c4g1.xlarge", "")}
NUM_MACHINES = 2


class Trial:
    """One cluster and its ledger.

    Args:
        cloud: Name of the cloud.
        name: Name of the cluster.
    """

    def __init__(self, cloud: str, name: str) -> None:
        instance_type, image = TYPES[cloud]
        self.cloud = cloud
        self.home = Path(tempfile.mkdtemp())
        self.request = ClusterRequest(
            name=name,
            num_machines=NUM_MACHINES,
            instance_type=instance_type,
            public_key=KEY,
            open_to=("192.0.2.1/32",),
            deadline_at=time.time() + 3600.0,
            image=image,
            shared_folder=True,
            data_disk_gib=20,
        )

    def provider(self) -> CloudProvider:
        return cloud_provider(self.cloud, pace=PACE)

    def up(self) -> None:
        store = Store(self.home)
        self.provider().up(self.request, ResourceLedger(store), ignore)
        store.close()

    def down(self) -> None:
        store = Store(self.home)
        self.provider().down(self.request.name, ResourceLedger(store), ignore)
        store.close()

    def parts(self) -> Counter[str]:
        """Return the number of resources of the cluster by kind."""
        found = self.provider().found()
        return Counter(item.kind for item in found if item.cluster == self.request.name)

    def collect(self, home: Path) -> None:
        """Delete what is old after the deadline, with the ledger in a folder."""
        store = Store(home)
        after = self.request.deadline_at + 1.0
        report = collect([self.provider()], ResourceLedger(store), after, pace=PACE)
        store.close()
        assert not report.leaks, report.leaks

    def is_closed(self) -> bool:
        """Return whether the ledger has no open entry."""
        store = Store(self.home)
        entries = ResourceLedger(store).resources(self.request.name)
        store.close()
        return not entries


def ignore(_: str) -> None:
    """Take a notice."""


def forked(action: Callable[[], object], stop_at: str = "") -> tuple[int, int]:
    """Run in a child; return its wait status, and the number of its calls when it lives."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        first = num_outside_calls()
        if stop_at:
            moment, _, number = stop_at.partition(":")
            os.environ["SLIPSTREAM_STOP_AT"] = f"{moment}:{first + int(number)}"
        action()
        os.write(write, str(num_outside_calls() - first).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answers:
        text = answers.read()
    return os.waitpid(child, 0)[1], int(text or 0)


def check(cloud: str, phase: str, stop_at: str, whole: Counter[str]) -> None:
    """Kill a client at one call; see that each way on leaves nothing behind."""
    number = int(stop_at.partition(":")[2])
    for way in ("again", ("ledger", "tags")[number % 2]):
        trial = Trial(cloud, f"{phase}-{stop_at.replace(':', '-')}-{way}")
        if phase == "down":
            trial.up()
        status, _ = forked(trial.up if phase == "up" else trial.down, stop_at)
        assert os.WIFSIGNALED(status), (stop_at, status)
        assert os.WTERMSIG(status) == signal.SIGKILL
        if way == "again":
            if phase == "up":
                trial.up()
                assert trial.parts() == whole, (stop_at, trial.parts())
            trial.down()
            assert trial.is_closed(), stop_at
        else:
            trial.collect(trial.home if way == "ledger" else Path(tempfile.mkdtemp()))
            assert way == "tags" or trial.is_closed(), stop_at
        assert not trial.parts(), (stop_at, way, trial.parts())


def main(cloud: str, phase: str, share: str) -> None:
    """Count the calls of a whole client, then kill one at each call of the share."""
    trial = Trial(cloud, "whole")
    status, num_up = forked(trial.up)
    assert status == 0
    whole = trial.parts()
    assert whole["machine"] == NUM_MACHINES
    status, num_down = forked(trial.down)
    assert status == 0
    index, _, num_shares = share.partition("/")
    calls = range(num_up if phase == "up" else num_down)
    points = [f"{moment}:{call}" for call in calls for moment in ("before", "after")]
    chosen = points[int(index) :: int(num_shares)]
    for stop_at in chosen:
        check(cloud, phase, stop_at, whole)
    print(f"{len(chosen)} of {len(points)} kills: nothing left behind")


if __name__ == "__main__":
    _, cloud_name, phase_name, share_text = sys.argv
    main(cloud_name, phase_name, share_text)
