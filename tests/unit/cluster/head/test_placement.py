"""The placement: it survives its file, which nobody else may read, and a wrong one is named."""

from pathlib import Path

import pytest

from slipstream.cluster.head.placement import RetryRules, RunPlacement, read_placement
from slipstream.cluster.head.roles import RolePart, awaited_ranks, role_variables
from slipstream.errors import ConfigError

PLACEMENT = RunPlacement(
    run="train-3",
    program=("train.py", "--lr", "0.1"),
    cwd="/home/me/code",
    hosts=("a", "b"),
    min_hosts=1,
    max_hosts=2,
    environ={"TOKEN": "secret"},
    roles=(RolePart(name="worker", count=2, argv=("x",)),),
    heads=("10.0.0.1", "fe80::1"),
    head_port=2900,
    certificate="C",
    private_key="K",
    retry=RetryRules(scope="worker", permanent_codes=(2, 3)),
    deadline_at=12.5,
)


def test_a_placement_survives_its_file(tmp_path: Path) -> None:
    PLACEMENT.write(tmp_path)
    assert read_placement(tmp_path) == PLACEMENT
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"run": 1}'])
def test_a_file_of_another_version_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "placement.json").write_text(text)
    with pytest.raises(ConfigError, match="install the same version"):
        read_placement(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"placement\.json cannot be read"):
        read_placement(tmp_path)


ROLES = (
    RolePart(name="scheduler", count=1, argv=("s",)),
    RolePart(name="server", count=2, argv=("v",)),
    RolePart(name="worker", count=2, argv=("w",)),
)
ADDRESSES = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3")


def test_each_rank_has_its_role_and_finds_the_others() -> None:
    import json

    role, variables = role_variables(ROLES, ADDRESSES, 3)
    assert role.name == "worker"
    assert (variables["ROLE_RANK"], variables["ROLE_WORLD_SIZE"]) == ("0", "2")
    config = json.loads(variables["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 0}
    assert config["cluster"]["server"] == ["10.0.0.1:30101", "10.0.0.2:30102"]
    assert variables["DMLC_PS_ROOT_URI"] == "10.0.0.1"
    assert variables["DMLC_PS_ROOT_PORT"] == "30100"
    assert (variables["DMLC_NUM_SERVER"], variables["DMLC_NUM_WORKER"]) == ("2", "2")
    assert [role_variables(ROLES, ADDRESSES, rank)[0].name for rank in range(5)] == [
        "scheduler",
        "server",
        "server",
        "worker",
        "worker",
    ]


def test_servers_are_not_awaited() -> None:
    assert awaited_ranks(ROLES) == {3, 4}
