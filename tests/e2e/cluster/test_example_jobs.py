"""The job files of the examples run; here with fewer images and smaller buffers."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_hosts import Hosts, open_hosts
from run_jobs import HOME, PYTHON, REPOSITORY, SLIPSTREAM

from slipstream.cluster.spec import read_job

JOBS = REPOSITORY / "examples/07_jobs"


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_job_names_files_that_exist(path: Path) -> None:
    job = read_job(path)
    assert job.deadline is not None
    if not job.module:
        assert (JOBS / job.code.folder / job.command[0]).exists()
    page = (REPOSITORY / "docs/benchmarks.md").read_text()
    assert f"examples/07_jobs/{path.name}" in page, "docs/benchmarks.md lists all job files"


def run(name: str, command: str, tmp_path: Path) -> str:
    """Run a job of the examples with another command; return what it prints."""
    done = subprocess.run(
        [SLIPSTREAM, "run", JOBS / f"{name}.yaml", "--set", f"command={command}"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLIPSTREAM_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.multiprocess
@pytest.mark.slow("job of an example")
@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        (
            "fashion_mnist",
            "01_fashion_mnist/train.py --epochs 1 --limit 512 --output demo-output/short",
            "test accuracy",
        ),
        ("shared_memory", "slipstream.cli bench comm --local 2 --sizes 4k --rounds 3", "gloo"),
        ("forecasts", "slipstream.cli bench forecast --published", "AIACC"),
        (
            "greennet",
            "benchmarks/greennet.py --epochs 1 --seeds 1 --workers 1 --limit 512"
            " --output build/greennet-short",
            "the claim holds",
        ),
    ],
)
def test_a_job_runs_on_this_host(name: str, command: str, words: str, tmp_path: Path) -> None:
    assert words in run(name, command, tmp_path)


@pytest.mark.netns
@pytest.mark.multiprocess
@pytest.mark.slow("job of an example")
def test_a_job_measures_in_a_lab(tmp_path: Path) -> None:
    command = "slipstream.cli bench comm --num-hosts 2 --sizes 64k --rounds 3 --peers gloo"
    assert "gloo" in run("wire", command, tmp_path)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Yield a desk and two hosts behind ssh."""
    with open_hosts(tmp_path) as hosts:
        hosts.start(2)
        yield hosts


@pytest.mark.netns
@pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync")
@pytest.mark.multiprocess
@pytest.mark.slow("job of an example")
def test_a_job_with_a_codec_runs_on_two_hosts(hosts: Hosts) -> None:
    for path in ("01_fashion_mnist", "07_jobs"):
        for file in (REPOSITORY / "examples" / path).glob("*.*"):
            hosts.desk.write(f"{HOME}/examples/{path}/{file.name}", file.read_text())
    command = "01_fashion_mnist/train.py --epochs 1 --limit 512 --codec int8 --output int8-output"
    software = json.dumps({"python": str(PYTHON), "environment": "existing"})
    done = hosts.desk.run(
        SLIPSTREAM,
        "run",
        "examples/07_jobs/fashion_mnist_int8.yaml",
        "--set",
        "ssh.hosts=[host1,host2]",
        "--set",
        f"command={command}",
        "--set",
        f"software={software}",
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    result = hosts.desk.path(f"{HOME}/examples/int8-output/result.json")
    assert json.loads(result.read_text())["workers"] == 2
