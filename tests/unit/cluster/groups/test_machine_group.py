"""Records of groups of machines: what may be asked for again, and what is kept about them."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.cluster.groups.creation_stages import expected_seconds
from slipstream.cluster.groups.group_record import (
    INNER_KEY,
    KEY,
    GroupFolder,
    GroupRecord,
    all_groups,
    find_group,
    merged,
)
from slipstream.cluster.providers.protocol import ClusterRequest
from slipstream.cluster.records import ResourceLedger, Store
from slipstream.errors import UsageError

NOW = time.time()
REQUEST = ClusterRequest(
    name="lab",
    num_machines=2,
    instance_type="g4dn.xlarge",
    public_key="",
    open_to=("192.0.2.1/32",),
    deadline_at=NOW + 3600.0,
)
RECORD = GroupRecord(provider="aws", region="us-east-1", request=REQUEST, created_at=NOW, most=4.0)


def asked(**changes: object) -> GroupRecord:
    """Return a later request for the same group, with some changes."""
    request = replace(REQUEST, deadline_at=NOW + 7200.0, **changes)  # pyright: ignore[reportArgumentType]
    return GroupRecord(provider="aws", region="us-east-1", request=request, created_at=NOW + 1.0)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path, "lab")
    assert folder.read() is None
    folder.write(RECORD)
    assert folder.read() == RECORD
    assert all_groups(tmp_path) == [RECORD]
    assert find_group(tmp_path, "task1.lab") == RECORD
    folder.forget()
    assert all_groups(tmp_path) == []


def test_an_unknown_group_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    GroupFolder(tmp_path, "lab").write(RECORD)
    with pytest.raises(UsageError, match="no group of machines 'bal'; known: lab"):
        find_group(tmp_path, "bal")


def test_keys_are_made_once_and_are_secret(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path, "lab")
    private, public = folder.keys(KEY)
    assert private.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public.startswith("ssh-ed25519 ")
    assert folder.keys(KEY) == (private, public)
    assert folder.keys(INNER_KEY) != (private, public)
    for path in (tmp_path / "keys").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_group_that_is_asked_for_again_keeps_its_deadline_and_grows() -> None:
    known = merged(RECORD, asked(num_machines=4, open_to=("192.0.2.2/32",)))
    assert known.request.deadline_at == REQUEST.deadline_at
    assert known.request.num_machines == 4
    assert known.request.open_to == ("192.0.2.1/32", "192.0.2.2/32")
    assert (known.created_at, known.most) == (RECORD.created_at, RECORD.most)
    assert merged(RECORD, asked(num_machines=1)).request.num_machines == 2


def test_a_group_that_is_asked_for_with_other_machines_is_refused() -> None:
    with pytest.raises(UsageError, match=r"exists with instance_type 'g4dn.xlarge', is_spot False"):
        merged(RECORD, asked(instance_type="p4d.24xlarge", is_spot=True))


def test_a_group_whose_time_is_over_begins_anew() -> None:
    over = replace(RECORD, request=replace(REQUEST, deadline_at=NOW - 1.0))
    again = asked(instance_type="p4d.24xlarge")
    assert merged(over, again) == again
    assert merged(None, again) == again


def test_stages_are_expected_to_take_their_median(tmp_path: Path) -> None:
    ledger = ResourceLedger(Store(tmp_path))
    for number, seconds in enumerate((10.0, 30.0, 20.0)):
        token = f"token{number}"
        place = ("aws", "us-east-1")
        ledger.intend(token=token, cluster=f"c{number}", place=place, kind="machine", name="m")
        ledger.created(token, f"i-{number}", {"stages": {"boot": seconds}})
        ledger.released(token)
    assert expected_seconds(ledger, ("aws", "us-east-1")) == {"boot": 20.0}
    assert expected_seconds(ledger, ("aws", "eu-west-1")) == {}
