"""A script for FastGPU runs unchanged: the fake of Alibaba Cloud makes machines, which are hosts.

The script calls what the public demo scripts of FastGPU call, in their order. Its `mpirun` is one
of a few lines, which starts a program on each host by ssh, as root.
"""

from collections.abc import Iterator
from subprocess import CompletedProcess

import pytest
from cluster_hosts import NETWORK, Hosts
from engine_contract import PYTHON
from host_boot import HOME
from listed_machines import AliyunStandIn
from machine_room import ADDRESS, MachineRoom, open_machine_room

pytestmark = [
    pytest.mark.netns,
    pytest.mark.launcher("sshd", "ssh", "ssh-keygen", "tmux", "rsync"),
    pytest.mark.multiprocess,
]

MPIRUN = """\
#!/bin/bash
while test $1 != python3; do test $1 = --host && hosts=$2; shift; done
for host in ${hosts//,/ }; do ssh ${host%:*} "cd $PWD && $*"; done
"""
IMAGE_FILES = {
    "/root/.profile": "export PATH=$HOME/bin:$PATH\nconda() { export ENVIRONMENT=$2; }\n",
    "/root/bin/mpirun": MPIRUN,
}
TYPE = "ecs.gn6i-c4g1.xlarge"
SCRIPT = """\
import argparse, os
import fastgpu
from fastgpu import fastgpu_globals
fastgpu_globals.set_should_disable_nas(True)
fastgpu.set_backend("aliyun")
assert fastgpu.get_region() == "cn-test"
parser = argparse.ArgumentParser()
parser.add_argument("--name", default="demo")
parser.add_argument("--machines", type=int, default=1)
args = parser.parse_args()
os.environ["ALIYUN_DATA_DISK_SIZE"] = "20"
job = fastgpu.make_job(name=args.name, run_name=f"{args.name}-{args.machines}",
                       num_tasks=args.machines, instance_type="TYPE", image_type="Ubuntu",
                       spot=False, disable_nas=True, install_script="echo once >> ~/installed")
for task in job.tasks:
    print(task.instance.instance_name(), task.instance.instance_id().startswith("i-"))
job.run("id -un | grep -qx root && apt-get --version > /dev/null && mkdir -p /root/work")
job.upload("code", "/root/work/code")
job.upload("single.txt", "/root/work")
job.run("cd /root/work/code && conda activate torch")
hosts = ",".join(task.ip + ":1" for task in job.tasks)
cmd = f"mpirun --allow-run-as-root -np 2 --host {hosts} --bind-to none python3 train.py"
job.tasks[0].run(f"echo {cmd} > {job.logdir}/task-cmd")
job.tasks[0].run(cmd, show_realtime=True)
job.tasks[0].run("sleep 0.2; echo $ENVIRONMENT > result", non_blocking=True)
job.tasks[0].join()
job.tasks[0].download("/root/work/code/result")
print(open("result").read().strip(), job.logdir, job.tasks[0].num_gpus)
print(job.run_with_output("cat ~/installed; echo wrong >&2"))
print(job.tasks[1].read("/root/work/single.txt"), job.exists("/root/work"), job.exists("nothing"))
os.environ["TOKEN"] = "a secret"
job.propagate_env(["TOKEN", "NOT_SET"])
print(job.tasks[1].run("echo $TOKEN", return_output=True))
try:
    job.tasks[1].run("false")
except RuntimeError as error:
    print(error)
again = fastgpu.make_job(name=args.name, run_name=f"{args.name}-{args.machines}",
                         num_tasks=args.machines, instance_type="TYPE", image_type="Ubuntu",
                         disable_nas=True, install_script="echo once >> ~/installed")
assert [task.instance.instance_id() for task in again.tasks] == [
    task.instance.instance_id() for task in job.tasks]
print("the same machines, logs in", again.logdir)
job.stop()
"""


@pytest.fixture(scope="module")
def room(hosts: Hosts) -> Iterator[MachineRoom]:
    """Yield the fake of Alibaba Cloud whose machines are hosts."""
    with open_machine_room(hosts, AliyunStandIn(ADDRESS), IMAGE_FILES) as room:
        hosts.desk.write(f"{HOME}/train.py", SCRIPT.replace("TYPE", TYPE))
        hosts.desk.write(f"{HOME}/single.txt", "one file")
        hosts.desk.write(f"{HOME}/code/train.py", "import socket; print(socket.gethostname())\n")
        yield room


def fastgpu(room: MachineRoom, *arguments: str) -> "CompletedProcess[str]":
    """Call `python -m slipstream.fastgpu` at the desk."""
    wishes = {"FASTGPU_SKIP_COST_CONFORM": "1", "FASTGPU_OPEN_TO": f"{NETWORK}.1/32"}
    environ = {**room.environ, **wishes}
    argv = (PYTHON, "-m", "slipstream.fastgpu", *arguments)
    return room.hosts.desk.run(*argv, environ=environ, seconds=120.0)


@pytest.mark.slow("scripts of fastgpu")
def test_a_script_runs_unchanged(room: MachineRoom) -> None:
    done = fastgpu(room, "train.py", "--machines", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == ["task0.demo True", "task1.demo True", "vm1", "vm2"]
    assert lines[4:8] == [
        "torch /fastgpu/runs/demo-2 1",
        "[('once\\n', 'wrong\\n'), ('once\\n', 'wrong\\n')]",
        "one file True False",
        "a secret",
    ]
    assert "task1.demo: 'false' failed with exit code 1:" in lines[9]
    assert lines[-1] == "the same machines, logs in /fastgpu/runs/demo-2.01"
    assert "a secret" not in done.stderr
    room.wait_for(0)  # the script has stopped them
    assert len(room.by_id) == 2
    assert fastgpu(room, "kill", "{demo}").returncode == 0
    assert not room.by_id


@pytest.mark.slow("scripts of fastgpu", represents=False)
def test_commands_create_use_and_end_a_group(room: MachineRoom) -> None:
    config = f"[ncluster]\nname=filed\nmachines=2\ninstance_type={TYPE}\nspot=False\n"
    room.hosts.desk.write(f"{HOME}/create.cfg", config)
    done = fastgpu(room, "create", "-c", "create.cfg")
    assert done.returncode == 0, done.stderr
    assert "task1.filed" in done.stdout
    (first, second) = room.wait_for(2)
    assert fastgpu(room, "ssh", "task1.filed", "hostname").stdout == f"{second.name}\n"
    assert fastgpu(room, "scp", "single.txt", "task0.filed:/root/copy.txt").returncode == 0
    assert first.path("/root/copy.txt").read_text() == "one file"
    assert fastgpu(room, "addip", "task0.filed").returncode == 0
    assert "are stopped together: {filed}" in fastgpu(room, "stop", "task0.filed").stderr
    assert fastgpu(room, "stop", "{filed}").returncode == 0
    room.wait_for(0)
    assert "task0.filed" not in fastgpu(room, "ls").stdout
    assert "stopped" in fastgpu(room, "ls", "-a").stdout
    assert fastgpu(room, "start", "{filed}").returncode == 0
    assert fastgpu(room, "kill", "task1.filed").returncode == 0
    room.wait_for(1)
    assert fastgpu(room, "querygpu", "T4").stdout.count("NVIDIA T4") == 1
    assert "ubuntu_22_04" in fastgpu(room, "queryimage", "22_04").stdout
    assert fastgpu(room, "kill", "filed").returncode == 0
    missing = fastgpu(room, "ssh", "task0.filed", "true")
    assert missing.stderr.startswith("fastgpu: there is no group of machines 'task0.filed'; known:")
