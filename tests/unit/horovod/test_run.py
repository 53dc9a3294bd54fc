"""horovodrun's options become those of `slipstream run`."""

import subprocess
import sys

import pytest

from slipstream.errors import UsageError
from slipstream.horovod.run import command_for


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        ("-np 2 python train.py --lr 0.1", "--num-proc 2 -- python train.py --lr 0.1"),
        ("-np 3 -H a:2,b:2 python t.py", "--num-proc 3 --hosts a:2,b:2 -- python t.py"),
        ("--hostfile hosts python t.py", "--hostfile hosts -- python t.py"),
        (
            "-np 1 --fusion-threshold-mb 32 --cycle-time-ms 2.5 ./t",
            "--num-proc 1 --env HOROVOD_FUSION_THRESHOLD=33554432 --env HOROVOD_CYCLE_TIME=2.5"
            " -- ./t",
        ),
        (
            "-np 1 --output-filename logs ./t",
            "--num-proc 1 --output-filename logs -- ./t",
        ),
        (
            "-np 1 -p 2222 -i key --network-interfaces eth0 --start-timeout 9 ./t",
            "--num-proc 1 --ssh-port 2222 --ssh-identity-file key"
            " --env SLIPSTREAM_CONNECT_TIMEOUT=9 --env SLIPSTREAM_IFACE==eth0 -- ./t",
        ),
        (
            "-np 2 --min-np 1 -H a:2,b:2 python t.py",
            "--hosts a:2,b:2 --whole-hosts --min 1 -- python t.py",
        ),
        (
            "-np 2 --host-discovery-script ./hosts --max-np 8 --slots-per-host 4"
            " --elastic-timeout 60 --reset-limit 3 --blacklist-cooldown-range 1 60 python t.py",
            "--whole-hosts --min 2 --max 8 --hosts-from ./hosts --ranks-per-host 4 --max-changes 3"
            " --wait 90 --cooldown 1.0,60.0 -- python t.py",
        ),
        (
            "-np 1 --stall-check-shutdown-time-seconds 90 ./t",
            "--num-proc 1 --env HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=90 -- ./t",
        ),
        (
            "-np 1 --no-stall-check --timeline-filename t.json --timeline-mark-cycles ./t",
            "--num-proc 1 --env HOROVOD_TIMELINE=t.json --env HOROVOD_STALL_CHECK_DISABLE=1"
            " --env HOROVOD_TIMELINE_MARK_CYCLES=1 -- ./t",
        ),
    ],
)
def test_options_have_their_meaning(given: str, becomes: str) -> None:
    command, without_meaning = command_for(given.split())
    assert command == becomes.split()
    assert not without_meaning


def test_options_without_a_meaning_are_named() -> None:
    given = "-np 1 --gloo --hierarchical-allreduce --num-nccl-streams 2 ./t"
    _, without_meaning = command_for(given.split())
    assert without_meaning == ["--gloo", "--hierarchical-allreduce", "--num-nccl-streams"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("-np 2", "the command is missing"),
        ("-np 1 --config-file options.yaml ./t", "--config-file is not supported yet"),
    ],
)
def test_what_cannot_be_is_refused(given: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        command_for(given.split())


def test_questions_about_the_build_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "--check-build"):
        with pytest.raises(SystemExit, match="0"):
            command_for([option])
        assert "lipstream" in capsys.readouterr().out


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
    assert "options without effect here: --gloo" in ended.stderr
