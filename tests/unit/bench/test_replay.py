"""The driver of replays, its table and its command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from slipstream.bench.limits import Limit
from slipstream.bench.replay.job import ReplayJob, ReplaySamples
from slipstream.bench.replay.measure import (
    ReplayRow,
    ReplaySpec,
    default_peers,
    limits,
    peers,
    replay,
)
from slipstream.bench.replay.table import as_json, table
from slipstream.cli.bench import replay as bench_replay
from slipstream.errors import UsageError

LIMIT = Limit(compute_only=1.0, within=2.0, across=1.25)


def row(peer: str, seconds: tuple[float, ...]) -> ReplayRow:
    return ReplayRow(
        model="vgg16", peer=peer, wire="fp32", steps=ReplaySamples(seconds=seconds), limit=LIMIT
    )


def shown(spec: ReplaySpec, rows: list[ReplayRow]) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table(spec, rows))
    return captured.get()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hosts": 1}, "hosts is 1; allowed: at least 2"),
        ({"steps": 0}, "steps is 0; allowed: at least 1"),
        ({"preset": "k80"}, "the preset is 'k80'"),
        ({"models": ("lenet",)}, "the model is 'lenet'"),
    ],
)
def test_a_replay_that_cannot_be_is_a_wrong_call(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ReplaySpec(**{"models": ("vgg16",), **wrong})


def test_a_peer_that_does_not_exist_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="'mpi'; allowed: gloo"):
        peers(["gloo", "mpi"])


def test_hooks_are_left_out_for_sparse_gradients() -> None:
    dense = default_peers(ReplaySpec(models=("bert-base",)))
    sparse = default_peers(ReplaySpec(models=("bert-base",), sparse=True))
    assert {peer.strategy for peer in dense} >= {"ddp", "ddp-fp16"}
    assert [peer.name for peer in sparse] == ["gloo", "slipstream"]
    assert "across-untuned" not in [peer.name for peer in dense]


def test_compute_is_as_slow_as_the_lab() -> None:
    assert ReplaySpec(models=("vgg16",)).network().bits_per_second == 1e9
    replayed = ReplaySpec(models=("vgg16",), rate="500mbit")
    (first, *_) = limits(replayed)
    assert first.limit.compute_only == pytest.approx(60 * 0.097)


def test_a_job_arrives_as_it_was_sent() -> None:
    job = ReplayJob(
        model="vgg16",
        strategy="ddp",
        backend="gloo",
        wire="fp32",
        compute_seconds=0.1,
        steps=1,
        warmup=3,
        busy=False,
        sparse=True,
        output="/there/it is",
    )
    assert ReplayJob.from_text(job.as_text()) == job


def test_rounds_are_measured_together(tmp_path: Path) -> None:
    ReplaySamples(seconds=(1.0, 2.0)).write(str(tmp_path / "steps"))
    read = ReplaySamples.read(str(tmp_path / "steps"))
    merged = ReplaySamples.merged([read, ReplaySamples(seconds=(9.0,))])
    assert merged.median == 2.0
    assert merged.mean == 4.0


def test_the_table_shows_efficiencies_beside_the_limits() -> None:
    spec = ReplaySpec(models=("vgg16",))
    rows = [row("compute only", (1.0, 1.1, 0.9)), row("DDP over gloo", (2.5, 2.4, 2.6))]
    text = shown(spec, rows)
    assert "30 times slower" in " ".join(text.split())
    (gloo,) = [line for line in text.splitlines() if "DDP over gloo" in line]
    assert gloo.split() == [
        "DDP", "over", "gloo", "fp32", "2.500", "2.500", "2.600", "0.400", "0.500", "0.800",
    ]  # fmt: skip


def test_the_json_has_every_step() -> None:
    spec = ReplaySpec(models=("vgg16",))
    written = json.loads(json.dumps(as_json(spec, [row("DDP over gloo", (2.0, 4.0))])))
    assert written["rows"][0]["seconds"] == [2.0, 4.0]
    assert written["rows"][0]["efficiency"] == pytest.approx(1 / 3)
    assert written["compute_seconds"] == {"vgg16": pytest.approx(2.91)}
    assert written["spec"]["rate"] == "1gbit"


def test_the_command_prints_limits_without_running_anything(tmp_path: Path) -> None:
    app = typer.Typer()
    bench_replay.add_to(app)
    file = tmp_path / "limits.json"
    done = CliRunner().invoke(app, ["vgg16", "bert-base", "--limits", "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert "within   across" in done.output
    rows = json.loads(file.read_text())["rows"]
    assert [(each["model"], each["wire"]) for each in rows] == [
        (name, wire) for name in ("vgg16", "bert-base") for wire in ("fp32", "fp16", "int8")
    ]


def test_the_command_does_not_import_pytorch() -> None:
    program = "import sys, slipstream.cli.bench.replay; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.netns
@pytest.mark.alone
@pytest.mark.slow("benchmark in a lab")
@pytest.mark.multiprocess
def test_a_replay_in_the_lab_sends_all_gradients() -> None:
    pytest.importorskip("torch")
    # A link that is twice as fast as the usual one asks for compute that takes half as long.
    spec = ReplaySpec(models=("resnet50",), hosts=2, rate="2gbit", steps=2, rounds=1)
    told: list[str] = []
    compute_only, gloo = replay(spec, peers(["gloo"]), told.append)
    assert len(told) == 2
    assert compute_only.efficiency == 1
    assert compute_only.steps is not None
    assert compute_only.steps.median >= 0.55
    # It cannot be better than the limit unless bytes are missing; on a busy machine it is worse.
    assert gloo.efficiency is not None
    assert 0.3 < gloo.efficiency < gloo.limit.efficiency_within + 0.05
