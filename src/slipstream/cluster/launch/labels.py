"""The names with which a display shows the processes of a job: `0`, `a:0` or `a:slot 0`."""

from collections.abc import Sequence


class Labels:
    """The labels of the processes of a job, by the number of each rank or slot.

    Args:
        hosts: Host name of each rank; empty for an elastic job, whose slots are named one by one.
        with_hosts: Whether labels name the host; by default, if there are several.
    """

    def __init__(self, hosts: Sequence[str], *, with_hosts: bool | None = None) -> None:
        self._with_hosts = len(set(hosts)) > 1 if with_hosts is None else with_hosts
        self._labels: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._width = 0
        for rank, host in enumerate(hosts):
            self.name(rank, host, rank)

    @property
    def width(self) -> int:
        """Number of columns of the prefix of each rank."""
        return self._width

    def name(self, number: int, host: str, rank: int | None) -> None:
        """Name the process that starts with a rank, or the process of a slot if it has no rank."""
        label = f"slot {number}" if rank is None else str(rank)
        self._names[number] = f"slot {number}" if rank is None else f"rank {rank}"
        self._labels[number] = f"{host}:{label}" if self._with_hosts else label
        if rank is not None:  # a label that is longer must not move the lines of all others
            self._width = max(self._width, len(self._labels[number]) + 3)

    def prefix(self, number: int) -> str:
        """Return the text before each line of a process."""
        return f"[{self._labels[number]}] ".ljust(self._width)

    def who(self, number: int) -> str:
        """Return the name of a process in messages."""
        return self._names[number]
