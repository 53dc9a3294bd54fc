"""Which labs there are: one file each under /run, which is empty after a reboot as labs are gone.

A lab has an owner, the process that will take it down, or none: then it stays until `down`. What
the owner left when it was killed is found by its file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.lab.network import Network
from slipstream.lab.spec import LabSpec

FOLDER = Path("/run/slipstream/labs")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A lab as its file has it.

    Args:
        name: told by the user, or the identifier.
        network: Namespaces and links that belong to the lab.
        owner: process that takes it down, as number and start time; None if it stays.
        boot: Boot identifier of the kernel under which the lab was made.
    """

    name: str
    network: Network
    owner: tuple[int, int] | None
    boot: str

    @property
    def is_stale(self) -> bool:
        """Whether nobody will take the lab down, or it is gone already."""
        if self.boot != boot_identifier():
            return True
        if self.owner is not None:
            return start_time(self.owner[0]) != self.owner[1]
        return not self.network.exists()


def check_name(name: str) -> str:
    """Return a name that can be that of a lab.

    Raises:
        UsageError: it cannot.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name) is None:
        raise UsageError(f"the lab's name is {name!r}; allowed: up to 32 letters, digits, - and _")
    return name


def boot_identifier() -> str:
    """Return what is different after every boot."""
    return _BOOT.read_text().strip()


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since boot, or None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def this_process() -> tuple[int, int]:
    """Return number and start time of this process."""
    pid = os.getpid()
    started = start_time(pid)
    assert started is not None
    return pid, started


def store(record: Record, *, is_new: bool) -> None:
    """Write the file of a lab.

    Raises:
        UsageError: `is_new`, and there is a lab of that name.
    """
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    fields: dict[str, Any] = {
        "identifier": record.network.identifier,
        "spec": dataclasses.asdict(record.network.spec),
        "owner": record.owner,
        "boot": record.boot,
    }
    path, draft = _path(record.name), FOLDER / f".{record.name}.{os.getpid()}"
    draft.write_text(json.dumps(fields))
    try:
        if is_new:
            os.link(draft, path)
        else:
            draft.replace(path)
    except FileExistsError:
        raise UsageError(
            f"there is a lab named {record.name!r}; end it with `slipstream lab down --name"
            f" {record.name}`, or choose another name"
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def load(name: str) -> Record | None:
    """Return the lab of a name, or None."""
    try:
        fields = json.loads(_path(name).read_text())
    except FileNotFoundError:
        return None
    owner = fields["owner"]
    spec = {key: _tuple(value) for key, value in fields["spec"].items()}
    return Record(
        name=name,
        network=Network(identifier=fields["identifier"], spec=LabSpec(**spec)),
        owner=(owner[0], owner[1]) if owner else None,
        boot=fields["boot"],
    )


def load_all() -> list[Record]:
    """Return all labs, by name."""
    names = sorted(path.stem for path in FOLDER.glob("[!.]*.json"))
    return [record for name in names if (record := load(name)) is not None]


def remove(name: str) -> None:
    """Forget a lab."""
    _path(name).unlink(missing_ok=True)


def take_down(record: Record) -> None:
    """Kill what runs in a lab, remove it and forget it, as far as it is there."""
    record.network.destroy()
    remove(record.name)


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore
