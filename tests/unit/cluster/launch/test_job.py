"""What each rank gets: its program and its environment."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.cluster.launch import Host, Job, parse_hosts
from slipstream.cluster.launch.job import (
    forwarded_environment,
    job_environment,
    program_argv,
    rank_environments,
)
from slipstream.errors import ConfigError, UsageError


def job(hosts: str = "a:2,b", chosen: Mapping[str, str] | None = None, **environ: str) -> Job:
    """Return a job whose other hosts have another Python."""
    return Job(
        hosts=parse_hosts(hosts),
        program=("true",),
        cwd="/",
        python="/there/python",
        environ=environ,
        chosen=chosen or {},
    )


@pytest.mark.parametrize(
    ("program", "module", "argv"),
    [
        (("train.py", "--lr", "1"), False, ("PYTHON", "train.py", "--lr", "1")),
        (("package.train", "x"), True, ("PYTHON", "-m", "package.train", "x")),
        (("./program", "x.py"), False, ("./program", "x.py")),
    ],
)
def test_files_and_modules_run_under_the_python_of_their_host(
    program: tuple[str, ...], module: bool, argv: tuple[str, ...]
) -> None:
    mixed = replace(job("localhost,b"), program=program, module=module)
    for host, python in zip(mixed.hosts, (sys.executable, "/there/python"), strict=True):
        expected = tuple(python if word == "PYTHON" else word for word in argv)
        assert program_argv(mixed, host) == expected


def test_ranks_are_numbered_host_by_host() -> None:
    ranks = [
        (each["RANK"], each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"], each["GROUP_RANK"])
        for index in (0, 1)
        for each in rank_environments(job(), index, 29400)
    ]
    assert ranks == [("0", "0", "2", "0"), ("1", "1", "2", "0"), ("2", "0", "1", "1")]


def test_every_rank_is_told_where_rank_0_is() -> None:
    for index in (0, 1):
        for each in rank_environments(job(), index, 29400):
            found = (each["WORLD_SIZE"], each["MASTER_ADDR"], each["MASTER_PORT"])
            assert found == ("3", "a", "29400")


def test_an_address_and_port_of_the_user_go_before_ours() -> None:
    chosen = job(MASTER_ADDR="10.0.0.1", MASTER_PORT="5000")
    (each,) = rank_environments(chosen, 1, 29400)
    assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("10.0.0.1", "5000")


def test_each_job_gets_a_key_of_its_own() -> None:
    first, second = (job_environment(job())["SLIPSTREAM_JOB_KEY"] for _ in range(2))
    assert first != second
    assert len(bytes.fromhex(first)) == 32


def test_a_key_of_the_user_is_handed_on_and_its_file_is_not(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef\n")
    environ = job_environment(job(SLIPSTREAM_KEY_FILE=str(path)))
    assert environ["SLIPSTREAM_JOB_KEY"] == "0123456789abcdef"
    assert environ["SLIPSTREAM_KEY_FILE"] == ""


def test_a_bad_setting_stops_the_launch_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="SLIPSTREAM_STREAMS"):
        job_environment(job(SLIPSTREAM_STREAMS="many"))


def test_a_chosen_address_and_port_go_before_those_of_the_environment() -> None:
    chosen = {"MASTER_ADDR": "10.0.0.5", "MASTER_PORT": "6000"}
    for each in rank_environments(job(chosen=chosen, MASTER_ADDR="10.0.0.1"), 0, 29400):
        assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("10.0.0.5", "6000")


def test_a_chosen_key_is_the_jobs_key(tmp_path: Path) -> None:
    chosen = {"SLIPSTREAM_JOB_KEY": "fedcba9876543210"}
    environ = job_environment(job(chosen=chosen, SLIPSTREAM_JOB_KEY="0123456789abcdef"))
    assert environ["SLIPSTREAM_JOB_KEY"] == "fedcba9876543210"
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef\n")
    environ = job_environment(job(chosen={"SLIPSTREAM_KEY_FILE": str(path)}))
    assert environ["SLIPSTREAM_JOB_KEY"] == "0123456789abcdef"


def test_a_bad_chosen_setting_stops_the_launch_too() -> None:
    with pytest.raises(ConfigError, match="SLIPSTREAM_STREAMS"):
        job_environment(job(chosen={"SLIPSTREAM_STREAMS": "many"}))


def test_chosen_variables_go_before_what_the_launcher_sets_for_comfort() -> None:
    assert job_environment(job())["PYTHONUNBUFFERED"] == "1"
    assert job_environment(job(chosen={"PYTHONUNBUFFERED": ""}))["PYTHONUNBUFFERED"] == ""


@pytest.mark.parametrize(
    "name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"]
)
def test_what_follows_from_the_hosts_cannot_be_chosen(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is chosen as '7'"):
        job(chosen={name: "7"})


def test_another_host_gets_our_settings_and_not_our_paths() -> None:
    here = {"SLIPSTREAM_STREAMS": "4", "NCCL_DEBUG": "INFO", "PATH": "/x", "HOME": "/y"}
    assert forwarded_environment(Host(name="a"), here) == {
        "SLIPSTREAM_STREAMS": "4",
        "NCCL_DEBUG": "INFO",
    }
    assert forwarded_environment(Host(name="localhost"), here) == {}


@pytest.mark.parametrize("prefix", ["SLIPSTREAM", "HOROVOD", "OMP", "MKL", "NCCL", "GLOO", "TORCH"])
def test_another_host_gets_the_variables_of_the_libraries_of_training(prefix: str) -> None:
    here = {f"{prefix}_X": "1", f"MY_{prefix}_X": "2", prefix: "3"}
    assert forwarded_environment(Host(name="a"), here) == {f"{prefix}_X": "1"}


def test_another_host_gets_two_variables_by_their_whole_names() -> None:
    here = {"PYTHONPATH": "/p", "NO_COLOR": "1", "PYTHONPATH_2": "/q"}
    assert forwarded_environment(Host(name="a"), here) == {"PYTHONPATH": "/p", "NO_COLOR": "1"}


def test_a_job_counts_its_ranks_and_leaves_them_three_seconds_to_end() -> None:
    plain = job(hosts="a:2,b:3")
    assert (plain.world_size, plain.grace_seconds, plain.module) == (5, 3.0, False)
    assert (plain.ssh_options, plain.chosen) == ((), {})


@pytest.mark.parametrize("chosen", [{"": "x"}, {"A=B": "x"}, {"A": "x\0"}, {"A": "\ud800"}])
def test_variables_that_no_program_can_get_are_refused(chosen: Mapping[str, str]) -> None:
    with pytest.raises(UsageError, match="allowed"):
        job(chosen=chosen)


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_no_program_can_get_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="without NUL and without lone surrogates"):
        replace(job(), program=("true", word))


def test_bytes_of_the_command_line_that_are_no_text_are_passed_on() -> None:
    assert replace(job(), program=("true", "\udcff")).program == ("true", "\udcff")
