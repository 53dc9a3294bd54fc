"""Registry of the labs on this machine, with one file per lab under /run.

A reboot removes both the labs and their files. The owner of a lab is the process that will remove
it. A lab without an owner stays until `down` is called. If the owner is killed, the remains of its
lab can still be found with the lab's file.
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
    """Content of a lab's file.

    Args:
        name: Name that the user chose, or the identifier of the network.
        network: Namespaces and links of the lab.
        owner: Process id and start time of the process that will remove the lab; None if there is
            no owner.
        boot: Boot identifier of the kernel when the lab was made.
    """

    name: str
    network: Network
    owner: tuple[int, int] | None
    boot: str

    @property
    def is_stale(self) -> bool:
        """Whether the owner of the lab has died, or the lab no longer exists."""
        if self.boot != boot_identifier():
            return True
        if self.owner is not None:
            return start_time(self.owner[0]) != self.owner[1]
        return not self.network.exists()


def check_name(name: str) -> str:
    """Return the name if it is valid for a lab.

    Raises:
        UsageError: the name is not valid.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name) is None:
        raise UsageError(
            f"the name of the lab is {name!r}; allowed: up to 32 letters, digits, - and _"
        )
    return name


def boot_identifier() -> str:
    """Return an identifier that changes with every boot."""
    return _BOOT.read_text().strip()


def start_time(pid: int) -> int | None:
    """Return a process's start time in ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def this_process() -> tuple[int, int]:
    """Return the process id and the start time of this process."""
    pid = os.getpid()
    started = start_time(pid)
    assert started is not None
    return pid, started


def store(record: Record, *, is_new: bool) -> None:
    """Write the file of a lab.

    Args:
        record: Content of the file.
        is_new: Whether the lab is new. If False, an existing file is replaced.

    Raises:
        UsageError: `is_new` is true, but a file for a lab with this name exists already.
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
    """Return the record of the lab with this name; None if there is no such lab."""
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
    """Return the records of all labs, sorted by name."""
    names = sorted(path.stem for path in FOLDER.glob("[!.]*.json"))
    return [record for name in names if (record := load(name)) is not None]


def remove(name: str) -> None:
    """Remove the file of a lab."""
    _path(name).unlink(missing_ok=True)


def take_down(record: Record) -> None:
    """Kill the processes in a lab, and remove its existing namespaces and its file."""
    record.network.destroy()
    remove(record.name)


def _path(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore
