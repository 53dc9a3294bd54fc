"""horovodrun's options become those of `slipstream run`."""

import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.horovod.run import command_for


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("-np 2 python train.py --lr 0.1", "-H localhost:2 -- python train.py --lr 0.1"),
        ("-np 3 -H a:2,b:2 python t.py", "-H a:2,b:1 -- python t.py"),
        ("-H a:2,b python t.py", "-H a:2,b:1 -- python t.py"),
        ("-np 1 -H a:2,b:2 python t.py", "-H a:1 -- python t.py"),
        (
            "-np 1 --fusion-threshold-mb 32 --cycle-time-ms 2.5 ./t",
            "-H localhost:1 --env HOROVOD_FUSION_THRESHOLD=33554432 --env HOROVOD_CYCLE_TIME=2.5"
            " -- ./t",
        ),
        (
            "-np 1 -p 2222 -i key --network-interfaces eth0 --start-timeout 9 ./t",
            "-H localhost:1 --env SLIPSTREAM_CONNECT_TIMEOUT=9 --env SLIPSTREAM_IFACE=eth0"
            " --ssh-option Port=2222 --ssh-option IdentityFile=key -- ./t",
        ),
        (
            "-np 1 --no-stall-check --timeline-filename t.json ./t",
            "-H localhost:1 --env HOROVOD_TIMELINE=t.json --env HOROVOD_STALL_CHECK_DISABLE=1"
            " -- ./t",
        ),
    ],
)
def test_options_have_their_meaning(given: str, becomes: str) -> None:
    command, without_meaning = command_for(given.split())
    assert command == becomes.split()
    assert not without_meaning


def test_a_hostfile_names_hosts_and_slots(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# ours\na slots=2\n\nb   slots=4  # the large one\nc\n")
    command, _ = command_for(["--hostfile", str(hostfile), "./t"])
    assert command == ["-H", "a:2,b:4,c:1", "--", "./t"]


def test_options_without_a_meaning_are_named() -> None:
    given = "-np 1 --gloo --hierarchical-allreduce --num-nccl-streams 2 ./t"
    _, without_meaning = command_for(given.split())
    assert without_meaning == ["--gloo", "--hierarchical-allreduce", "--num-nccl-streams"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("./t", "neither -np nor -H"),
        ("-np 2", "no command"),
        ("-np 5 -H a:2,b:2 ./t", "-np is 5; allowed: 1 to 4"),
        ("-np 1 -H a:x ./t", "the host is 'a:x'"),
        ("-np 1 --hostfile /nowhere ./t", "hostfile cannot be read"),
        ("-np 1 --min-np 1 ./t", "--min-np is not there yet"),
        ("-np 1 --host-discovery-script ./hosts ./t", "--host-discovery-script is not there yet"),
    ],
)
def test_what_cannot_be_is_refused(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        command_for(given.split())


def test_a_program_runs() -> None:
    script = (
        "import os; print('rank', os.environ['HOROVOD_RANK'], 'of', os.environ['HOROVOD_SIZE'])"
    )
    command = [sys.executable, "-m", "slipstream.horovod.run", "-np", "2", "--gloo"]
    ended = subprocess.run(
        [*command, sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert "rank 0 of 2" in ended.stdout
    assert "rank 1 of 2" in ended.stdout
    assert "these have no meaning here: --gloo" in ended.stderr
