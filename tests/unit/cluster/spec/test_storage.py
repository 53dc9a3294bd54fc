"""Storage in a job file: what is allowed, and what becomes of it on a host."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.cluster.spec import check_job
from slipstream.cluster.spec.storage import check_places, storage_buckets, storage_mounts
from slipstream.errors import ConfigError, UsageError


def job_fields(**storage: Any) -> dict[str, Any]:
    return {"name": "a", "command": "a", "storage": {"data": storage}}


@pytest.mark.parametrize(
    ("storage", "argv"),
    [
        ({"nfs": "nas:/x", "path": "/d"}, "mount -t nfs -- nas:/x /d"),
        (
            {"nfs": "nas:/x", "path": "d", "filesystem": "nfs4", "options": "ro"},
            "mount -t nfs4 -o ro -- nas:/x /code/d",
        ),
        ({"disk": "LABEL=data", "path": "/d"}, "mount -- LABEL=data /d"),
        ({"folder": "/mnt/shared", "path": "/d"}, "mount --bind -- /mnt/shared /d"),
    ],
)
def test_mount_gets_source_path_and_options(storage: dict[str, Any], argv: str) -> None:
    job = check_job(job_fields(**storage), "the job")
    (mount,) = storage_mounts(job.storage, "/code")
    assert " ".join(mount.argv) == argv
    assert storage_buckets(job.storage, "/code") == ()


def test_a_bucket_is_a_folder_of_the_code() -> None:
    job = check_job(job_fields(bucket="s3://b/c", path="out", send_back=False), "the job")
    (bucket,) = storage_buckets(job.storage, "/code")
    assert (bucket.folder, bucket.url, bucket.is_sent_back) == ("/code/out", "s3://b/c", False)
    assert storage_mounts(job.storage, "/code") == ()


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ({"path": "/d"}, "names no source; allowed: one of nfs, disk, folder, bucket"),
        ({"path": "/d", "nfs": "a:/", "disk": "b"}, "names nfs and disk"),
        ({"path": "/d", "bucket": "s3://b", "options": "ro"}, "not for a bucket"),
        ({"path": "/d", "nfs": "a:/", "send_back": False}, "send_back is for buckets"),
        ({"nfs": "a:/"}, "storage.data.path: Field required"),
    ],
)
def test_wrong_storage_is_refused(storage: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_job(job_fields(**storage), "the job")
    assert words in str(caught.value)


@pytest.mark.parametrize("engine", ["slurm", "k8s", "ray"])
def test_engines_whose_hosts_others_set_up_refuse_storage(engine: str) -> None:
    fields = {**job_fields(nfs="a:/", path="/d"), "on": engine}
    with pytest.raises(UsageError, match=f"in clouds, not by {engine}"):
        check_job(fields, "the job")


@pytest.mark.parametrize("path", ["/", "//", "/etc", "/etc/x", "/tmp/", "../x", "/d/../etc", "."])
def test_a_place_that_hides_other_files_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="allowed: a path of its own"):
        check_job(job_fields(bucket="s3://b", path=path), "the job")


@pytest.mark.parametrize("path", ["", ".", "./", "..", "a/../..", "/", "/data"])
def test_data_outside_of_a_folder_below_the_code_is_refused(path: str) -> None:
    fields = {"name": "a", "command": "a", "data": [{"source": "d", "path": path}]}
    with pytest.raises(UsageError, match=r"data.*path"):
        check_job(fields, "the job")


@pytest.mark.parametrize("paths", [("in", "/code/in/"), ("in", "in/sub"), ("in/sub", "in")])
def test_two_storages_at_one_place_are_refused(paths: tuple[str, str]) -> None:
    storage = {
        name: {"bucket": "s3://b", "path": path} for name, path in zip("ab", paths, strict=True)
    }
    job = check_job({"name": "a", "command": "a", "storage": storage}, "the job")
    with pytest.raises(ConfigError, match="give each a path of its own"):
        check_places(job.storage, "/code")
