"""The record of a named group of machines: a file on this machine, written before it is created."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from slipstream.cluster.control.certificate import make_ssh_key
from slipstream.cluster.providers.protocol import ClusterRequest
from slipstream.errors import UsageError

FILE_NAME = "group.json"
KEY, INNER_KEY = "ssh_key", "inner_key"
# Fields in which a later request for the same group may differ.
_FREE = ("deadline_at", "public_key", "open_to", "num_machines")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupRecord:
    """A group as this machine knows it.

    Args:
        provider: Name of the provider, such as "aws".
        region: Region of the provider.
        request: Machines that were asked for, and their deadline.
        created_at: Time of the first request in seconds since 1970.
        most: Largest cost in US dollars that was estimated, or None if it is not known.
    """

    provider: str
    region: str
    request: ClusterRequest
    created_at: float
    most: float | None = None

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.request.name


class GroupFolder:
    """The folders of one group on this machine, which need not exist.

    Args:
        home: Folder of the records.
        name: Name of the group.
    """

    def __init__(self, home: Path, name: str) -> None:
        self._folder = home / "groups" / name
        self._keys = home / "keys" / "groups" / name

    @property
    def known_hosts(self) -> Path:
        """File with the keys of its machines."""
        return self._folder / "known_hosts"

    @property
    def key(self) -> Path:
        """File with the private key with which machines are reached."""
        return self._keys / KEY

    def read(self) -> GroupRecord | None:
        """Return the record, or None if there is none."""
        path = self._folder / FILE_NAME
        if not path.exists():
            return None
        values: dict[str, Any] = json.loads(path.read_text())
        request = values.pop("request")
        request["open_to"] = tuple(request["open_to"])
        return GroupRecord(request=ClusterRequest(**request), **values)

    def write(self, record: GroupRecord) -> None:
        """Write the record in one step."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / FILE_NAME
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(record), indent=1))
        temporary.replace(path)

    def keys(self, name: str) -> tuple[str, str]:
        """Return a private key and its public key, which are made at the first call.

        Args:
            name: Name of the pair, KEY or INNER_KEY.
        """
        private, public = self._keys / name, self._keys / f"{name}.pub"
        if not private.exists():
            for folder in (self._keys.parents[1], self._keys.parent, self._keys):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            texts = make_ssh_key()
            for path, text in zip((public, private), reversed(texts), strict=True):
                temporary = path.with_suffix(".new")
                temporary.touch(mode=0o600)
                temporary.write_text(text)
                temporary.replace(path)
        return private.read_text(), public.read_text()

    def forget(self) -> None:
        """Delete the record and the keys of a group whose machines are gone."""
        shutil.rmtree(self._keys, ignore_errors=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def find_group(home: Path, name: str) -> GroupRecord:
    """Return the record of a group.

    Args:
        home: Folder of the records.
        name: Name of the group, or of one of its machines, such as "task0.NAME".

    Raises:
        UsageError: there is no such group.
    """
    record = GroupFolder(home, name.partition(".")[2] or name).read()
    if record is None:
        known = ", ".join(group.name for group in all_groups(home)) or "none"
        raise UsageError(f"there is no group of machines {name!r}; known: {known}")
    return record


def all_groups(home: Path) -> list[GroupRecord]:
    """Return the records of all groups, the oldest first."""
    names = [path.parent.name for path in (home / "groups").glob(f"*/{FILE_NAME}")]
    records = [GroupFolder(home, name).read() for name in names]
    return sorted((record for record in records if record), key=lambda record: record.created_at)


def merged(known: GroupRecord | None, asked: GroupRecord) -> GroupRecord:
    """Return the record of a group that is asked for, perhaps again.

    The deadline of a group whose time is not over stays, and machines can be added.

    Args:
        known: Record of the group, or None.
        asked: Record that the caller wants.

    Raises:
        UsageError: the group exists with other machines.
    """
    if known is None or known.request.deadline_at <= time.time():
        return asked
    differing = _differing(known, asked)
    if differing:
        raise UsageError(
            f"the group {known.name} exists with {', '.join(differing)}; ask for the same, or end"
            f" it first: slipstream cluster down {known.name}"
        )
    request = replace(
        asked.request,
        deadline_at=known.request.deadline_at,
        num_machines=max(known.request.num_machines, asked.request.num_machines),
        open_to=tuple(dict.fromkeys((*known.request.open_to, *asked.request.open_to))),
    )
    return replace(asked, request=request, created_at=known.created_at, most=known.most)


def _differing(known: GroupRecord, asked: GroupRecord) -> Sequence[str]:
    """Return in words in what a group differs from what is asked for."""
    names = [field.name for field in fields(ClusterRequest) if field.name not in _FREE]
    pairs = [(name, getattr(known.request, name), getattr(asked.request, name)) for name in names]
    places = [(name, getattr(known, name), getattr(asked, name)) for name in ("provider", "region")]
    return [f"{name} {ours!r}" for name, ours, wanted in (*places, *pairs) if ours != wanted]
