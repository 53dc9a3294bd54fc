"""Storage in a job description: what every host mounts, and buckets whose files it gets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import Field, model_validator

from slipstream.cluster.head.storage.buckets import StorageBucket
from slipstream.cluster.head.storage.mounts import StorageMount
from slipstream.cluster.spec.model import SpecModel
from slipstream.errors import ConfigError

KINDS = ("nfs", "disk", "folder", "bucket")

# Folders of a host that are not for storage with all that is in them, and those that are not alone.
_SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_TOP = ("/", "//", "/dev", "/home", "/root", "/run", "/tmp", "/var")


class JobStorage(SpecModel):
    """Storage that the ranks of every host see: one of nfs, disk, folder and bucket."""

    path: str = Field(min_length=1)
    """Path at which the ranks see it; absolute, or relative to the code, and no other storage's."""
    nfs: str = ""
    """Server and path of a network file system (NAS, CPFS, EFS), such as `nas.local:/export`."""
    disk: str = ""
    """Disk of the hosts: a device such as `/dev/nvme1n1`, `LABEL=data`, `UUID=...`, or a file with
    a file system."""
    folder: str = ""
    """Folder of the hosts that the ranks see at `path`, such as `/mnt/shared`, at which a cloud's
    shared folder is mounted (`cloud.shared_folder`)."""
    bucket: str = ""
    """URL of a bucket or a folder in it (fsspec), such as `s3://bucket/results`, whose files are
    copied to every host before the start."""
    send_back: bool = True
    """Whether the first host writes new and changed files to the bucket at the end; nothing in it
    is deleted."""
    filesystem: str = ""
    """Type of the file system to mount, such as `nfs4` or `ext4`; by default the one that mount
    finds."""
    options: str = ""
    """Options for mount, such as `ro,nconnect=8`."""

    @model_validator(mode="after")
    def _has_own_place(self) -> JobStorage:
        path = PurePosixPath(self.path)
        is_system = any(path.is_relative_to(folder) for folder in _SYSTEM)
        if ".." in path.parts or not path.parts or str(path) in _TOP or is_system:
            raise ValueError(
                f"path is {self.path!r}; allowed: a path of its own, such as /data, or `data` for a"
                " folder below the code, without `..` and outside of the system's folders"
            )
        return self

    @model_validator(mode="after")
    def _has_one_source(self) -> JobStorage:
        named = [kind for kind in KINDS if getattr(self, kind)]
        if len(named) != 1:
            raise ValueError(
                f"it names {' and '.join(named) or 'no source'}; allowed: one of {', '.join(KINDS)}"
            )
        if self.bucket and (self.filesystem or self.options):
            raise ValueError("filesystem and options are for what is mounted, not for a bucket")
        if not self.bucket and not self.send_back:
            raise ValueError("send_back is for buckets; say options: ro for what is mounted")
        return self


def check_places(storage: Mapping[str, JobStorage], cwd: str) -> None:
    """Check that no storage hides another one, and that no bucket has another storage's files.

    Args:
        storage: Storage of a job, by its names.
        cwd: Absolute path of the folder of the code on the host.

    Raises:
        ConfigError: two of them have one path, or one is in the folder of a bucket.
    """
    places = {name: PurePosixPath(cwd) / item.path for name, item in storage.items()}
    for name, other in itertools.permutations(places, 2):
        is_inside = bool(storage[other].bucket) and places[name].is_relative_to(places[other])
        if places[name] == places[other] or is_inside:
            raise ConfigError(
                f"the storage {name} is at {storage[name].path}, and {other} is at"
                f" {storage[other].path}; give each a path of its own, outside of buckets"
            )


def storage_mounts(storage: Mapping[str, JobStorage], cwd: str) -> tuple[StorageMount, ...]:
    """Return what a host mounts.

    Args:
        storage: Storage of a job, by its names.
        cwd: Absolute path of the folder of the code on the host.
    """
    return tuple(
        StorageMount(
            name=name,
            kind="nfs" if item.nfs else "disk" if item.disk else "folder",
            source=item.nfs or item.disk or item.folder,
            target=str(PurePosixPath(cwd) / item.path),
            filesystem=item.filesystem,
            options=item.options,
        )
        for name, item in storage.items()
        if not item.bucket
    )


def storage_buckets(storage: Mapping[str, JobStorage], cwd: str) -> tuple[StorageBucket, ...]:
    """Return the buckets whose files a host gets.

    Args:
        storage: Storage of a job, by its names.
        cwd: Absolute path of the folder of the code on the host.
    """
    return tuple(
        StorageBucket(
            name=name,
            url=item.bucket,
            folder=str(PurePosixPath(cwd) / item.path),
            is_sent_back=item.send_back,
        )
        for name, item in storage.items()
        if item.bucket
    )
