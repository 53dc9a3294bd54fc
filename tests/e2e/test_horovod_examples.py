"""The commands of the Horovod guide, made short: their scripts train as they should."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from slipstream.settings import HorovodSettings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "02_horovod"
PAGE = (ROOT / "docs" / "horovod.md").read_text(encoding="utf-8")
# Every rank is a host of its own, so that gradients travel over TCP, and encoded.
HOST_EACH = ("/bin/sh", "-c", 'SLIPSTREAM_HOST_ID="host $RANK" exec "$0" "$@"', sys.executable)


@pytest.fixture
def printed(tmp_path: Path) -> Callable[..., str]:
    """Run a command to its end in a folder with the examples, and return what it printed."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(command: str, *more: str) -> str:
        done = subprocess.run(
            [*shlex.split(command), *more],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.multiprocess
@pytest.mark.slow("shown example")
def test_digits_are_told_apart(printed) -> None:
    options = ("--epochs", "3", "--fp16-allreduce")
    text = printed("slipstream run -n 2", *HOST_EACH, "examples/02_horovod/digits.py", *options)
    accuracies = [float(each) for each in re.findall(r"test accuracy ([\d.]+)", text)]
    assert len(accuracies) == 3, text  # of rank 0 only
    assert accuracies[-1] > 0.95


@pytest.mark.multiprocess
@pytest.mark.slow("shown example")
def test_resnet50_goes_on_from_its_checkpoint(printed, tmp_path) -> None:
    command = "slipstream run -n 2 examples/02_horovod/resnet50.py images --generate"
    tiny = ("--image-size", "32", "--images", "16", "--classes", "2", "--width", "8")
    passes = ("--batch-size", "4", "--batches-per-allreduce", "2", "--sync-batch-norm")
    first = printed(command, *tiny, *passes, "--epochs", "1")
    assert re.search(r"epoch 1: loss [\d.]+, validation accuracy [\d.]+", first), first
    before = torch.load(tmp_path / "images" / "checkpoint-1.pt", weights_only=True)

    second = printed(command, *tiny, *passes, "--epochs", "2")
    assert "continues after epoch 1" in second
    assert "epoch 1: " not in second
    assert "epoch 2: " in second
    after = torch.load(tmp_path / "images" / "checkpoint-2.pt", weights_only=True)
    # Two steps of two passes in each epoch: 32 images, 16 of each rank.
    counts = [each["model"]["1.num_batches_tracked"].item() for each in (before, after)]
    assert counts == [4, 8]
    assert before["optimizer"]["state"].keys() == after["optimizer"]["state"].keys()


@pytest.mark.multiprocess
@pytest.mark.slow("shown example")
def test_two_models_train_in_two_process_sets(printed) -> None:
    text = printed("slipstream run -n 4 examples/02_horovod/process_sets.py")
    even, odd, both = (float(each) for each in sorted_losses(text))
    assert text.count("weights are equal") == 2, text
    assert even < 0.1
    assert odd < 0.1
    assert both == pytest.approx((even + odd) / 2, abs=1e-4)


def sorted_losses(text: str) -> list[str]:
    """Return the losses of the even ranks, of the odd ones and of all."""
    whose = (r"even ranks, sine", r"odd ranks, absolute value", r"4 ranks")
    found = [re.search(rf"{each}: loss ([\d.]+)", text) for each in whose]
    assert all(found), text
    return [each[1] for each in found if each]


@pytest.mark.slow("shown example")
@pytest.mark.multiprocess
def test_a_timeline_has_the_names_of_gradients(printed, tmp_path) -> None:
    timeline = "--env HOROVOD_TIMELINE=timeline-{rank}.json"
    printed(
        f"slipstream run -n 2 {timeline} examples/02_horovod/digits.py",
        *("--epochs", "1", "--images", "256"),
    )
    for rank in range(2):
        events = json.loads((tmp_path / f"timeline-{rank}.json").read_text())["traceEvents"]
        titles = {
            each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"
        }
        assert set(titles.values()) == {f"rank {rank}", f"tensors of rank {rank}"}
        assert titles[rank] == f"rank {rank}"
        # An operation has the name of the first tensor that it fuses; each tensor has a row.
        assert any(each["name"].startswith("allreduce.") for each in events if each["pid"] == rank)
        rows = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
        assert any("allreduce.0.weight" in row for row in rows), rows
        assert "NEGOTIATE_ALLREDUCE" in {each["name"] for each in events if each["pid"] != rank}


@pytest.mark.parametrize("name", ["digits", "resnet50", "process_sets"])
def test_a_script_knows_slipstream_by_one_line(name: str) -> None:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    lines = ast.unparse(tree.body[1:]).splitlines()
    assert [line for line in lines if "slipstream" in line.lower()] == [
        "import slipstream.horovod.torch as hvd"
    ]


def test_the_guide_names_every_variable() -> None:
    fields = HorovodSettings.__dataclass_fields__.values()
    for name in (each.metadata["name"] for each in fields if each.metadata):
        assert f"| `{name}` |" in PAGE, name
