"""`slipstream queue`: the daemon and the commands of docs/queue.md, as a user types them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from cli import in_process, usage_error

from slipstream.cluster.groups.group_record import GroupFolder, GroupRecord
from slipstream.cluster.providers.protocol import ClusterRequest

LIMIT_SECONDS = 60.0
MACHINE = "machines add a --local --gpus 2 --gpu H100 --gpu-memory 80GiB --cpus 8 --memory 64GiB"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder for the queue, which is the working directory, too."""
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def queue(*words):
    """Run a command with --json, and return what it prints."""
    done = in_process("queue", *" ".join(words).split(), "--json")
    assert done.code == 0, done
    return json.loads(done.stdout)


def submit(*words, program=("true",)):
    """Submit a job; return its number."""
    done = in_process("queue", "submit", *" ".join(words).split(), "--json", *program)
    assert done.code == 0, done
    return json.loads(done.stdout)["job"]


@contextmanager
def daemon(*options):
    """Run `slipstream queue serve`, and end it as systemd would."""
    command = [sys.executable, "-m", "slipstream.cli", "queue", "serve", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "serving the queue" in process.stderr.readline()
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_SECONDS)


def wait_for(number, state):
    """Wait until a job has a state, and return it."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while (job := queue(f"show {number}"))["state"] != state:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return job


@pytest.mark.multiprocess
@pytest.mark.slow("queue")
def test_jobs_of_the_page_run_and_a_killed_daemon_is_continued(home, tmp_path):
    queue(MACHINE)
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:], flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.02)\n"
    )
    first = submit("--gpus 2", program=("train.py", "--lr", "0.1"))
    with daemon() as process:
        assert wait_for(first, "running")["allocation"][0]["machine"] == "a"
        process.send_signal(signal.SIGKILL)
        process.wait()
    share = submit("--gpus 1 --gpu-memory 20GiB --time 2h", program=("train.py",))
    waiting = queue(f"show {share}")
    assert waiting["message"].startswith("waits for 1 free GPU with 20 GiB; free now: 0; starts")
    (tmp_path / "go").touch()
    with daemon("--keep", "7d", "--keep-starts", "1000") as process:
        done = wait_for(first, "succeeded")
        wait_for(share, "succeeded")
    assert process.returncode == 128 + signal.SIGTERM
    with open(done["output"]) as file:
        assert file.read() == "0,1 ['--lr', '0.1']\n"
    assert [event["kind"] for event in queue(f"events {first}")] == ["submit", "start", "end"]


def test_jobs_are_listed_held_released_and_cancelled(home):
    queue(MACHINE)
    numbers = [submit("--gpus 1"), submit("--gpus 1 --hold --priority 3")]
    assert [(job["number"], job["state"]) for job in queue("ls")] == [(1, "waiting"), (2, "held")]
    assert queue("release 2") == [{"job": 2, "state": "waiting"}]
    assert queue("top 1") == {"job": 1, "priority": 4}
    assert queue("hold 1") == [{"job": 1, "state": "held"}]
    assert queue("cancel", *map(str, numbers)) == [
        {"job": 1, "state": "cancelled"},
        {"job": 2, "state": "cancelled"},
    ]
    assert queue("ls") == []
    assert len(queue("ls --all")) == 2
    shown = in_process("queue", "ls", "--all").stdout
    assert "cancelled" in shown
    assert "1 GPU, 1 CPU" in shown


def test_a_job_keeps_all_that_it_asked_for(home):
    queue(MACHINE)
    number = submit(
        "--gpus 1 --gpu H100 --gpu-memory 1500MiB --cpus 4 --memory 8GiB --accelerator fpga=1",
        "--min-hosts 2 --max-hosts 8 --preemptible --grace 2m --time 2h --priority 2 --name night",
    )
    job = queue(f"show {number}")
    assert job["request"] == {
        "gpus": 1,
        "gpu": "H100",
        "gpu_memory_mib": 1500,
        "cpus": 4,
        "memory_mib": 8192,
        "accelerators": {"fpga": 1},
        "min_hosts": 2,
        "max_hosts": 8,
        "on": "local",
    }
    assert (job["name"], job["priority"], job["preemptible"]) == ("night", 2, True)
    assert job["expected_seconds"] == 7200.0
    assert job["message"].startswith("never starts: 0 of 1 machines have 1.465 GiB of 1 GPU")


def test_without_a_daemon_a_command_says_so(home, monkeypatch):
    done = in_process("queue", "submit", "true")
    assert "no daemon serves the queue; start it with: slipstream queue serve" in done.stderr


def test_a_job_that_fits_no_machine_is_told_at_once(home):
    queue(MACHINE)
    done = in_process("queue", "submit", "--gpus", "3", "true")
    assert "job 1 never starts: 0 of 1 machines have 3 GPUs, 1 CPU" in done.stderr


def test_machines_and_quotas(home):
    queue(MACHINE)
    queue("machines close a")
    assert [machine["is_open"] for machine in queue("machines")] == [False]
    queue("machines open a")
    table = in_process("queue", "machines").stdout
    assert "2 H100" in table
    assert "80 80 GiB" in table
    queue("quota ann --max-gpus 4")
    queue("quota ben --weight 2")
    found = queue("quota vision --team --max-gpus 16 --max-jobs 10")["quotas"]
    assert [(one["kind"], one["name"], one["max_gpus"]) for one in found] == [
        ("user", "ann", 4.0),
        ("user", "ben", None),
        ("team", "vision", 16.0),
    ]
    assert "ann" in in_process("queue", "quota").stdout
    queue("machines remove a")
    assert queue("machines") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("submit --accelerator fpga true", "--accelerator is 'fpga'; allowed: NAME=N"),
        ("submit --env NOT_SET_HERE true", "--env is 'NOT_SET_HERE'; allowed: NAME=VALUE"),
        ("submit --gpu-memory many true", "the --gpu-memory is 'many'"),
        ("submit --min-hosts 2 --max-hosts 1 true", "asks for 2 to 1 hosts"),
        ("show 7", "there is no job 7; the queue has had no job"),
        ("machines rename a", "allowed: add, close, open, remove, and at least one host"),
        ("machines add", "`machines add` was called with 0 hosts"),
        ("submit --set hosts=2 true", "--set hosts=2 is for jobs over machines; add some first"),
        ("submit --gpus 1 job.yaml", "resources of a job file are in the file"),
        ("autoscale pool --waiting-price -1", "--price is None, --waiting-price -1; allowed"),
        ("submit --set on=aws job.yaml", "the job runs on aws, but the queue runs jobs on its own"),
        ("submit job.yaml more", "'more' follows the job file job.yaml"),
        ("scale --max-machines 2 --price 0", "allowed: a price above 0, one from 0 on"),
        ("machines add a --local --gpus 1", "the GPUs of machine a have no memory"),
    ],
)
def test_wrong_usage(home, tmp_path, words, message):
    (tmp_path / "job.yaml").write_text("command: train.py\n")
    assert message in usage_error("queue", *words.split())


def test_scaling_says_how_many_machines_the_jobs_are_worth(home):
    queue(MACHINE)
    submit("--gpus 1 --min-hosts 1 --max-hosts 4")
    submit("--gpus 1 --min-hosts 9 --max-hosts 9")
    plan = queue("scale --max-machines 8 --price 3.50 --waiting-price 10")
    assert (plan["machines"], plan["hosts"]) == (1, {"1": 1, "2": 0})
    assert plan["reasons"]["1"] == "runs on 1 machine until its speed is known"
    assert "1 machine; idle ones are kept for" in (
        in_process("queue", "scale", "--max-machines", "8", "--price", "3.50").stdout
    )


def test_a_job_file_says_what_it_needs(home, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN", "hidden")
    (tmp_path / "job.yaml").write_text(
        "command: train.py\nhosts: 2:4\nresources: {gpus: 1, gpu_memory: 20GiB, memory: 8GiB}\n"
        "secrets: TOKEN\ngrace: 2m\ncheckpoint: kept\nssh: {hosts: [a]}\n"
    )
    done = in_process("queue", "submit", "--preemptible", "--set", "hosts=2:3", "job.yaml")
    assert "job 1 never starts: 0 of 0 machines behind ssh have 20 GiB of 1 GPU" in done.stderr
    assert "the checkpoint kept is on the first host only" in done.stderr
    assert "ssh.hosts is not used" in done.stderr
    request = queue("show 1")["request"]
    assert (request["gpus"], request["gpu_memory_mib"], request["memory_mib"]) == (1, 20480, 8192)
    assert (request["min_hosts"], request["max_hosts"], request["on"]) == (2, 3, "ssh")
    assert "hidden" not in in_process("queue", "show", "1", "--json").stdout
    monkeypatch.delenv("TOKEN")
    done = in_process("queue", "submit", "job.yaml")
    assert done.code == 2
    assert "TOKEN" in done.stderr


def test_a_group_is_scaled_only_when_somebody_says_so(home, monkeypatch):
    assert queue("autoscale") == {"group": None}
    unknown = usage_error("queue", "autoscale", "pool", "--max-machines", "8", "--yes")
    assert "there is no group of machines 'pool'" in unknown
    make_group(home, monkeypatch)
    turned = usage_error("queue", "autoscale", "pool", "--min-machines", "3", "--price", "1")
    assert "--min-machines is 3, --max-machines 1; allowed" in turned
    words = "autoscale pool --max-machines 8 --price 3.50 --waiting-price 10 --idle 5m"
    refused = in_process("queue", *words.split())
    assert refused.code == 2
    assert "up to 8 machines of pool for 28.00 US dollars an hour" in refused.stderr
    assert "nobody can be asked for the cost here; allow it with --yes" in refused.stderr
    assert queue("autoscale") == {"group": None}
    found = queue(f"{words} --min-machines 1 --yes")
    assert (found["group"], found["min_machines"], found["max_machines"]) == ("pool", 1, 8)
    assert (found["machine_price"], found["waiting_price"]) == (3.5, 10.0)
    assert (found["idle_seconds"], found["lease_seconds"]) == (300.0, 7200.0)
    shown = in_process("queue", "autoscale").stdout
    assert "none (1 to 8)" in shown
    assert "kept for 5 min" in shown
    assert queue("autoscale --off") == {"group": None}


def make_group(home, monkeypatch):
    """Write the record of a group of machines that a cloud has made."""
    request = ClusterRequest(
        name="pool",
        num_machines=1,
        instance_type="g4dn.xlarge",
        public_key="",
        open_to=("192.0.2.1/32",),
        deadline_at=time.time() + 3600.0,
    )
    fields = {"provider": "aws", "region": "us-east-1", "created_at": time.time()}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "example")
    GroupFolder(home, "pool").write(GroupRecord(request=request, **fields))


def test_without_the_extra_the_command_says_what_to_install():
    script = "import sys; sys.modules['sqlalchemy'] = None; from slipstream import cli; cli.main()"
    command = [sys.executable, "-c", script, "queue", "ls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream: the queue needs the package sqlalchemy")


def test_variables_of_a_job_are_in_no_output(home):
    os.environ.pop("SECRET_OF_TEST", None)
    submit("--env SECRET_OF_TEST=hidden")
    for command in ("ls", "show 1", "events"):
        for json_option in ([], ["--json"]):
            assert "hidden" not in in_process("queue", *command.split(), *json_option).stdout
