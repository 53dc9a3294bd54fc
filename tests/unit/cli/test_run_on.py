"""`slipstream run --on ENGINE train.py`: options become fields of the job, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli import in_process, usage_error

from slipstream.cli.run_on import ProgramOptions, name_hosts, program_in, program_job
from slipstream.errors import UsageError


def options(**fields: object) -> ProgramOptions:
    defaults: dict[str, object] = {
        "hosts": (),
        "module": False,
        "variables": {},
        "cwd": None,
        "python": None,
        "ssh_options": (),
        "processes": None,
    }
    return ProgramOptions(**{**defaults, **fields})  # pyright: ignore[reportArgumentType]


def test_a_program_is_a_job_with_everything_at_its_default(tmp_path: Path) -> None:
    (tmp_path / "My_Train.py").touch()
    job = program_job(
        ("My_Train.py", "--lr", "0.1"),
        [*options(cwd=tmp_path).as_assignments(), "on=ssh"],
        is_module=False,
    )
    assert (job.name, job.command, job.on) == ("my-train", ("My_Train.py", "--lr", "0.1"), "ssh")
    assert (job.hosts.max, job.processes) == (1, "gpu")


def test_options_become_fields_and_set_overrides_them(tmp_path: Path) -> None:
    hosts, processes = name_hosts("a:2,me@b:2", None, None)
    chosen = options(
        hosts=hosts,
        processes=processes,
        module=True,
        variables={"A": "yes", "B": "1:30"},
        cwd=tmp_path,
        python="python3.12",
        ssh_options=("Port=2222",),
    )
    overrides = [*chosen.as_assignments(), "hosts=1:2", "retry.max_restarts=0", "on=ssh"]
    job = program_job(("package.train",), overrides, is_module=True)
    assert (job.name, job.module, job.env) == ("package-train", True, {"A": "yes", "B": "1:30"})
    assert (job.hosts.min, job.hosts.max, job.processes) == (1, 2, 2)
    assert (job.ssh.hosts, job.ssh.options) == (("a", "me@b"), ("Port=2222",))
    assert (job.software.python, job.code.folder) == ("python3.12", str(tmp_path))
    assert job.retry.max_restarts == 0


@pytest.mark.parametrize(
    ("listed", "ranks_per_host", "expected"),
    [
        (None, None, None),
        (None, 3, 3),
        ("a,b", None, None),
        ("a,b", 2, 2),
        ("a:1,b:1", None, 1),
        ("a,b:2", 2, 2),
        ("[fd00::1],[fd00::2]", None, None),
        ("[fd00::1]:4", None, 4),
    ],
)
def test_the_number_of_ranks_is_left_to_the_engine_unless_it_is_given(
    listed: str | None, ranks_per_host: int | None, expected: int | None
) -> None:
    assert name_hosts(listed, None, ranks_per_host)[1] == expected


def test_a_script_is_named_relative_to_the_folder_that_is_brought(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").touch()
    absolute = (str(tmp_path / "sub" / "a.py"), "x")
    assert program_in(tmp_path, absolute, stays_here=False) == ("sub/a.py", "x")
    assert program_in(tmp_path, absolute, stays_here=True) == absolute
    assert program_in(tmp_path, ("nvidia-smi",), stays_here=False) == ("nvidia-smi",)
    (tmp_path / "b.py").touch()
    with pytest.raises(UsageError, match="is not in"):
        program_in(tmp_path / "sub", ("../b.py",), stays_here=False)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run --on ssh none.py", "none.py does not exist; allowed: a path below"),
        ("run --on mars x.py", "on is 'mars'"),
        ("run --on local -H a,b -m x", "hosts are named with -H or --hostfile, and the engine is"),
        ("run --on ssh -H a:1,b:2 -m x", "different numbers of ranks (a:1, b:2)"),
        (
            "run --on ssh --tty x.py",
            "--tty is not for engines (--on, --plan, job files); leave it out",
        ),
        ("run --on ssh --min 2 x.py", "say --set hosts=2:4 for 2 to 4 hosts"),
        (
            "run --on ssh -np 4 x.py",
            "--num-proc is not for engines (--on, --plan, job files); say -n",
        ),
        ("run --tty job.yaml", "--tty is not for engines"),
        ("run -n 1 --set hosts=2 x.py", "--set is given without an engine; say --on ssh"),
        ("run -n 1 --detach x.py", "--detach is given without an engine"),
        ("run --on ssh -m x --set hosts=1", "ssh.hosts names 0 hosts, and the job needs 1"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(
    command: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    assert words in usage_error(*command.split())


def test_all_files_of_a_home_are_never_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    assert "would be brought to every host" in usage_error("run", "--on", "ssh", "train.py")


def test_options_before_a_job_file_change_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    (tmp_path / "job.yaml").write_text("command: sh -c 'echo $RANK of $WORLD_SIZE, $A'\n")
    job = str(tmp_path / "job.yaml")
    done = in_process("run", "-n", "3", "--env", "A=yes", job, "--set", "processes=2")
    assert done.code == 0, done.stderr
    logs = sorted((tmp_path / "home" / "runs" / "job-1" / "logs").rglob("stdout"))
    assert [log.read_text() for log in logs] == ["0 of 2, yes\n", "1 of 2, yes\n"]
