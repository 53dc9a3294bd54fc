"""The group of machines that the daemon scales, with its limits, as the database has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy.orm import Session

from slipstream.cluster.queue.autoscaling.sizes import ScalingPolicy
from slipstream.cluster.queue.shapes import QueueGpu, QueueMachine
from slipstream.cluster.queue.store import QueueStore, ScaledGroupRow

ONLY_ROW = 1
# Begin of the names of machines that may come, which sorts after all others: of equally free
# machines, one that exists is used first.
COMING = "~"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledGroup:
    """A group whose machines are created and released as jobs need them.

    Args:
        group: Name of the group of machines.
        min_machines: Smallest number of its machines.
        max_machines: Largest number of its machines.
        machine_price: Price of a machine in US dollars per hour.
        waiting_price: Price of an hour in which a job has not ended, in US dollars.
        idle_seconds: Time for which an idle machine is kept.
        lease_seconds: Time by which the daemon moves the deadline of the group on, when less than
            half of it is left.
        settle_seconds: Time for which a job runs on a number of machines before it is changed
            (default 120, several reports of its speed).
        like: Machine like those of the group, or None if none was seen yet.
        problem: Reason why the newest change failed, or "".
    """

    group: str
    min_machines: int
    max_machines: int
    machine_price: float
    waiting_price: float
    idle_seconds: float
    lease_seconds: float
    settle_seconds: float = 120.0
    like: QueueMachine | None = None
    problem: str = ""

    def coming(self, machines: Sequence[QueueMachine]) -> tuple[QueueMachine, ...]:
        """Return machines that may be created; none before one of the group was seen.

        Args:
            machines: All machines of the queue.
        """
        num_members = sum(machine.group == self.group for machine in machines)
        if self.like is None:
            return ()
        return tuple(
            replace(self.like, name=f"{COMING}{number}", is_open=True, resting_until=0.0)
            for number in range(self.max_machines - num_members)
        )

    def policy(self, num_others: int) -> ScalingPolicy:
        """Return the policy for all machines of the queue.

        Args:
            num_others: Number of machines that do not belong to the group.
        """
        return ScalingPolicy(
            min_machines=self.min_machines,
            max_machines=num_others + self.max_machines,
            machine_price=self.machine_price,
            waiting_price=self.waiting_price,
        )


def read_scaled_group(session: Session) -> ScaledGroup | None:
    """Return the group that is scaled, or None."""
    row = session.get(ScaledGroupRow, ONLY_ROW)
    if row is None:
        return None
    fields: dict[str, Any] = dict(row.settings)
    like: dict[str, Any] | None = fields.pop("like")
    if like is None:
        return ScaledGroup(**fields)
    gpus = tuple(QueueGpu(**gpu) for gpu in like.pop("gpus"))
    options = tuple(like.pop("ssh_options"))
    return ScaledGroup(like=QueueMachine(**like, gpus=gpus, ssh_options=options), **fields)


def write_scaled_group(store: QueueStore, chosen: ScaledGroup | None) -> None:
    """Choose the group that is scaled; None for no group."""
    with store.transaction("scaled group") as session:
        row = session.get(ScaledGroupRow, ONLY_ROW)
        if row is not None:
            session.delete(row)
            session.flush()
        if chosen is not None:
            session.add(ScaledGroupRow(number=ONLY_ROW, settings=asdict(chosen)))


def change_scaled_group(store: QueueStore, name: str, **changes: Any) -> None:
    """Change some fields of the group that is scaled, if it is still that one.

    Args:
        store: Database of the queue.
        name: Name of the group.
        changes: New values by the names of the fields.
    """
    with store.transaction("scaled group") as session:
        chosen = read_scaled_group(session)
        if chosen is not None and chosen.group == name:
            row = session.get_one(ScaledGroupRow, ONLY_ROW)
            row.settings = asdict(replace(chosen, **changes))
