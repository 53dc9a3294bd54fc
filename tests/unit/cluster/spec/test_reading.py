"""Job files: what is allowed, and what the message says about the rest."""

from pathlib import Path
from typing import Any

import pytest

from slipstream.cluster.spec import JobSpec, read_job
from slipstream.cluster.spec.page import job_page
from slipstream.cluster.spec.reading import name_of
from slipstream.errors import UsageError


def read(tmp_path: Path, text: str, *overrides: str) -> JobSpec:
    path = tmp_path / "My Job.yaml"
    path.write_text(text)
    return read_job(path, overrides)


def test_only_the_command_is_required(tmp_path: Path) -> None:
    job = read(tmp_path, "command: train.py --lr 0.1")
    assert job.name == "my-job"
    assert job.command == ("train.py", "--lr", "0.1")
    assert (job.on, job.hosts.min, job.hosts.max, job.processes) == ("local", 1, 1, "gpu")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2:4", (2, 4)),
        ("3", (3, 3)),
        ("'5'", (5, 5)),
        ("{min: 1, max: 2}", (1, 2)),
    ],
)
def test_hosts_are_a_number_or_a_range(
    tmp_path: Path, text: str, expected: tuple[int, int]
) -> None:
    job = read(tmp_path, f"command: a\nhosts: {text}")
    assert (job.hosts.min, job.hosts.max) == expected


def test_values_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    text = "command: a\non: ssh\nenv: {A: 'on', B: 1:30, C: no, D: 0x1F}\nmodule: true"
    job = read(tmp_path, text)
    assert job.on == "ssh"
    assert job.env == {"A": "on", "B": "1:30", "C": "no", "D": "0x1F"}
    assert job.module is True


def test_durations_and_sizes_have_units(tmp_path: Path) -> None:
    text = (
        "command: a\ndeadline: 8h\nretry: {hang: 30m, backoff: [2, 1m]}\n"
        "resources: {memory: 32GiB, gpu_memory: 512MiB}"
    )
    job = read(tmp_path, text)
    assert job.deadline == 8 * 3600
    assert job.retry.hang == 1800
    assert job.retry.backoff == (2, 60)
    assert (job.resources.memory, job.resources.gpu_memory) == (32, 0.5)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("train", "train"),
        ("My Job_2", "my-job-2"),
        ("2nd", "job-2nd"),
        ("---", "job"),
        ("x" * 50, "x" * 32),
        ("a" * 31 + "_b", "a" * 31),
    ],
)
def test_a_file_name_becomes_a_name(text: str, name: str) -> None:
    assert name_of(text) == name
    assert JobSpec(name=name, command=("a",)).name == name


def test_the_command_line_overrides_fields(tmp_path: Path) -> None:
    job = read(tmp_path, "command: a", "hosts=2:4", "retry.max_restarts=0", "ssh.hosts=[a, b]")
    assert (job.hosts.min, job.hosts.max) == (2, 4)
    assert job.retry.max_restarts == 0
    assert job.ssh.hosts == ("a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no fields"),
        ("- a", "has no fields"),
        ("command: [", "is no YAML"),
        ("name: a", "command: Field required"),
        ("command: ''", "command is ''"),
        ("command: a 'b", "cannot be split into words"),
        ("command: a\nnam: b", "there is no field nam; allowed: checkpoint, cloud"),
        ("command: a\nretry: {max: 3}", "there is no field retry.max; allowed: backoff"),
        ("command: a\nname: A B", "name is 'A B'"),
        ("command: a\nhosts: 4:2", "has its least number above its largest one"),
        ("command: a\nhosts: many", "allowed: 4 or 2:4"),
        ("command: a\nprocesses: 0", "allowed: 1 to 1024, or gpu"),
        ("command: a\ndeadline: soon", "allowed: a number with a unit"),
        ("command: a\ndeadline: -5", "deadline is -5"),
        ("command: a\nresources: {memory: 8GiX}", "the size is '8GiX'"),
        ("command: a\non: mars", "on is 'mars'"),
        ("command: a\ncode: {commit: abc}", "commit is 'abc' without git"),
        ("command: a\nsoftware: {environment: existing, packages: b}", "leave one of them out"),
        ("command: a\nsoftware: {index: b, wheels: c}", "index and wheels are given"),
        ("command: a\nroles: {ps: {}, worker: {}}", "roles need a number of processes"),
        ("command: a\nprocesses: 3\nroles: {ps: {}}", "the roles have 1 ranks, and 1 hosts with 3"),
        ('command: "a\\0b"', "command.0 is 'a\\x00b'"),
        ('command: a\nenv: {A: "x\\0y"}', "env.A is 'x\\x00y'"),
        ('command: a\nenv: {A: "\\ud800"}', "without NUL and lone surrogates"),
        ("command: a\nenv: {A=B: x}", "'A=B' is no name of a variable"),
        ("command: a\nenv: {'': x}", "'' is no name of a variable"),
        ("command: a\nssh: {hosts: [b, b]}", "hosts has b more than once"),
        ("command: a\nssh: {hosts: [u@b, v@b]}", "hosts has b more than once"),
        ("command: a\nssh: {hosts: ['']}", "hosts has ''"),
        ("command: a\nssh: {hosts: [b c]}", "hosts has 'b c'"),
        ("command: a\nssh: {hosts: [-oProxyCommand=id]}", "without - at the start"),
        ("command: a\nssh: {hosts: [b], gpus: {c: [0]}}", "gpus has 'c'; allowed: b"),
        ("command: a\nssh: {hosts: [b], host_options: {c: x}}", "host_options has 'c'; allowed: b"),
        ("command: a\nssh: {home: there}", "home is 'there'; allowed: an absolute path"),
        ("command: a\ncode: {git: --upload-pack=b}", "code.git is '--upload-pack=b'"),
        ("command: a\nprocesses: 1000000000", "allowed: 1 to 1024, or gpu"),
        ("command: a\nhosts: 99999999999999999999", "less than or equal to 10000"),
        (f"command: a\nhosts: {'9' * 5000}", "is no YAML"),
        ("command: a\ndeadline: 1e400", "deadline is inf"),
        ("command: a\ncost_cap: inf", "cost_cap is 'inf'"),
        ("command: a\ncost_cap: true", "cost_cap is True: it is a truth value"),
        ("command: a\nretry: {backoff: [60, 1]}", "retry.backoff is 60 s and 1 s"),
        ("command: a\nhosts: 1\nhosts: 2", "the key 'hosts' of line 2 is in line 3 again"),
        ("command: a\nresources: {accelerators: {../b: 1}}", "has the name '../b'"),
        ("command: a\nresources: {accelerators: {b: -1}}", "resources.accelerators.b is -1"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)


def test_aliases_do_not_make_a_refusal_long(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 30):
        lines.append(f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]")
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "command: a\n" + "\n".join(lines) + "\nenv: {A: *a29}")
    assert "there is no field a29" in str(caught.value)
    assert len(str(caught.value)) < 20000


def test_merged_fields_and_homes_are_allowed(tmp_path: Path) -> None:
    text = "command: a\nssh: {home: ~/x}\nenv: {<<: {A: b, B: c}, B: d}"
    job = read(tmp_path, text)
    assert (job.env, job.ssh.home) == ({"A": "b", "B": "d"}, "~/x")


@pytest.mark.parametrize("override", ["hosts", "=3", "command.x=1", "hosts=[", "hosts=0"])
def test_a_wrong_override_is_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "command: a", override)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing\.yaml cannot be read: No such file"):
        read_job(tmp_path / "nothing.yaml")


def test_a_record_of_a_job_gives_the_same_job(tmp_path: Path) -> None:
    text = "command: a\nhosts: 2:4\nretry: {hang: 30m}\nprocesses: 2\nresources: {memory: 8GiB}"
    job = read(tmp_path, text)
    fields: dict[str, Any] = job.model_dump(mode="json")
    assert JobSpec.model_validate(fields) == job


def test_the_page_is_up_to_date(pytestconfig: pytest.Config) -> None:
    page = pytestconfig.rootpath / "docs" / "job-file.md"
    assert page.read_text() == job_page(), "python -m slipstream.cluster.spec > docs/job-file.md"
