"""Everything that a folder of flight records tells about a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import UsageError, reason_of
from slipstream.flight import launcher, record
from slipstream.flight.codec import T, from_json
from slipstream.flight.files import epoch_folder, launcher_path
from slipstream.flight.launcher import LauncherRecord, RankEnd
from slipstream.flight.record import FlightRecord, RecordedEngine

# Records come from other hosts, and an account has a row for each rank.
_MOST_RANKS = 1 << 20
_LATEST = 32503680000.0  # the year 3000, in seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The records of a job.

    Args:
        records: Record of each rank that has written one.
        crashes: Stacks of ranks that a fatal signal ended, as the interpreter wrote them.
        launcher: Record of the launcher, or None.
        problems: Files that could not be read, with the reasons.
    """

    records: dict[int, FlightRecord]
    crashes: dict[int, str] = field(default_factory=dict[int, str])
    launcher: LauncherRecord | None = None
    problems: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        """Number of ranks of the job."""
        sizes = [record.world_size for record in self.records.values()]
        if self.launcher is not None:
            sizes.append(len(self.launcher.ranks))
        return max([*sizes, *(rank + 1 for rank in self.ranks)], default=0)

    @property
    def ranks(self) -> list[int]:
        """Ranks of which anything is known, in order."""
        ended = [] if self.launcher is None else [end.rank for end in self.launcher.ranks]
        return sorted({*self.records, *self.crashes, *ended})

    def end_of(self, rank: int) -> RankEnd | None:
        """Return how a rank ended, if a launcher has told."""
        ends = () if self.launcher is None else self.launcher.ranks
        return next((end for end in ends if end.rank == rank), None)

    def engine_of(self, rank: int) -> RecordedEngine | None:
        """Return the engine of a rank that explains most: the first one with a fault."""
        engines = self.records[rank].engines if rank in self.records else ()
        troubled = (each for each in engines if any(e.kind == "failed" for e in each.events))
        return next(troubled, engines[-1] if engines else None)

    def host_of(self, rank: int) -> str:
        """Return the name of a rank's host; "" if it is unknown."""
        if rank in self.records:
            return self.records[rank].host
        for engine in filter(None, map(self.engine_of, self.records)):
            for peer in engine.peers:
                if peer.rank == rank and peer.host:
                    return peer.host
        end = self.end_of(rank)
        return "" if end is None else end.host

    def pid_of(self, rank: int) -> int | None:
        """Return the process number of a rank, or None if it is unknown."""
        if rank in self.records:
            return self.records[rank].pid
        end = self.end_of(rank)
        return None if end is None else end.pid


def read_folder(folder: Path) -> Evidence:
    """Read the records in a folder.

    Raises:
        UsageError: there is no such folder, or it has no record.
    """
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {str(folder)!r}; pass the folder that `slipstream run` has printed"
        )
    problems: list[str] = []
    records = [_read(path, FlightRecord, problems) for path in sorted(folder.glob("rank-*.json"))]
    by_rank = {each.rank: each for each in records if each is not None}
    newest = max(by_rank.values(), key=lambda each: each.clock.wall, default=None)
    stale = [rank for rank in by_rank if newest is not None and rank >= newest.world_size]
    for rank in stale:
        problems.append(f"{folder / f'rank-{rank:04}.json'} belongs to an earlier, larger job")
        del by_rank[rank]
    found = Evidence(
        records=by_rank,
        crashes=_read_crashes(folder, problems),
        launcher=_read_launcher(folder, list(by_rank.values()), problems),
        problems=tuple(problems),
    )
    if not found.ranks:
        detail = "".join(f"; {problem}" for problem in problems)
        raise UsageError(
            f"the folder {str(folder)!r} has no flight record (rank-0000.json, launcher.json)"
            f"{detail}; pass the folder that `slipstream run` has printed, or set"
            " SLIPSTREAM_FLIGHT_DIR on all ranks and run the job again"
        )
    return found


def _read(path: Path, kind: type[T], problems: list[str]) -> T | None:
    """Return the record in a file; None, and a problem, if the file is no such record."""
    expected = record.FORMAT if kind is FlightRecord else launcher.FORMAT
    try:
        value = from_json(kind, path.read_text(encoding="utf-8"))
        if getattr(value, "format", "") != expected:
            raise ValueError(f"its format is {getattr(value, 'format', '')!r}, not {expected!r}")
        _check(value)
    except OSError as error:
        problems.append(f"{path} cannot be read: {reason_of(error)}")
    except (ValueError, OverflowError, RecursionError) as error:
        problems.append(f"{path} is not a {expected}: {error}")
    else:
        return value
    return None


def read_launcher(folder: Path) -> LauncherRecord | None:
    """Return the launcher's record of a whole job, or None if it has none that can be read."""
    path = launcher_path(folder)
    return _read(path, LauncherRecord, []) if path.exists() else None


def _check(value: object) -> None:
    """Check the numbers of a record; raise ValueError if no process writes such numbers."""
    ranks, size, times = [0], _MOST_RANKS, [0.0]
    if isinstance(value, FlightRecord):
        events = (event for engine in value.engines for event in engine.events)
        ranks, size = [value.rank], value.world_size
        times = [each.wall for each in (value.clock, *value.occasions, *events)]
    elif isinstance(value, LauncherRecord):
        ranks = [end.rank for end in value.ranks]
        times = [value.started, *(value.started + seconds for seconds in value.new_starts)]
    if not (all(0 <= rank < size for rank in ranks) and size <= _MOST_RANKS):
        raise ValueError(f"it has ranks {ranks[:5]} of {size}; allowed: up to {_MOST_RANKS} ranks")
    if not all(0 <= wall < _LATEST for wall in times):
        raise ValueError("it has times that no clock shows; allowed: from 1970 to 3000")


def _read_launcher(
    folder: Path, records: list[FlightRecord], problems: list[str]
) -> LauncherRecord | None:
    """Return the launcher's record; that of an epoch lies in the folder of the job."""
    path = launcher_path(folder)
    epoch = next((each.epoch for each in records if each.epoch is not None), None)
    if path.exists() or epoch is None:
        found = _read(path, LauncherRecord, problems) if path.exists() else None
        return found if found is None or records else found.in_last_epoch()
    path = launcher_path(folder.absolute().parent)
    whole = None
    if folder.absolute().name == epoch_folder(epoch.number, epoch.title) and path.exists():
        whole = _read(path, LauncherRecord, problems)
    if whole is None:
        return None
    wall = min(each.occasions[0].wall if each.occasions else each.clock.wall for each in records)
    return whole.in_epoch(epoch.number, epoch.slots, wall)


def _read_crashes(folder: Path, problems: list[str]) -> dict[int, str]:
    """Return the stacks at fatal signals; those of an epoch lie in the folder of the job."""
    crashes: dict[int, str] = {}
    here = folder.absolute()
    beside = here.parent.glob(f"{here.name}.rank-*.crash.txt")
    for path in (*sorted(folder.glob("rank-*.crash.txt")), *sorted(beside)):
        name = path.name.removeprefix(f"{here.name}.")
        number = name.removeprefix("rank-").removesuffix(".crash.txt")
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            problems.append(f"{path} cannot be read: {reason_of(error)}")
            continue
        if text.strip() and number.isdecimal() and int(number) < _MOST_RANKS:
            crashes[int(number)] = text
    return crashes
