"""The scripts of the Horovod guide train as they should; test_documents.py runs its commands."""

import ast
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from slipstream.settings import HorovodSettings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "02_horovod"
PAGE = (ROOT / "docs" / "horovod.md").read_text(encoding="utf-8")
# Every rank is a host of its own, so that gradients travel over TCP, and encoded.
HOST_EACH = ("-c", 'SLIPSTREAM_HOST_ID="host $RANK" exec "$0" "$@"', sys.executable)


@pytest.fixture
def printed(slipstream_run):
    """Run a program on several ranks to its end, and return what they printed."""

    def run(num_ranks: int, program: Path, *arguments: str | Path) -> str:
        ranks = slipstream_run(num_ranks, program, *map(str, arguments))
        text, _ = ranks.communicate(timeout=240)
        assert ranks.returncode == 0, text
        return text

    return run


@pytest.mark.multiprocess
def test_digits_are_told_apart(printed, tmp_path) -> None:
    arguments = (*HOST_EACH, EXAMPLES / "digits.py", "--fp16-allreduce")
    text = printed(2, Path("/bin/sh"), *arguments)
    accuracies = [float(each) for each in re.findall(r"test accuracy ([\d.]+)", text)]
    assert len(accuracies) == 4, text  # of rank 0 only
    assert accuracies[-1] > 0.95


@pytest.mark.multiprocess
def test_resnet50_goes_on_from_its_checkpoint(printed, tmp_path) -> None:
    tiny = ("--generate", "--image-size", "32", "--images", "16", "--classes", "2", "--width", "8")
    passes = ("--batch-size", "4", "--batches-per-allreduce", "2", "--sync-batch-norm")
    arguments = (EXAMPLES / "resnet50.py", tmp_path, *tiny, *passes)
    first = printed(2, *arguments, "--epochs", "1")
    assert re.search(r"epoch 1: loss [\d.]+, validation accuracy [\d.]+", first), first
    before = torch.load(tmp_path / "checkpoint-1.pt", weights_only=True)

    second = printed(2, *arguments, "--epochs", "2")
    assert "goes on after epoch 1" in second
    assert "epoch 1: " not in second
    assert "epoch 2: " in second
    after = torch.load(tmp_path / "checkpoint-2.pt", weights_only=True)
    # Two steps of two passes in each epoch: 32 images, 16 of each rank.
    counts = [each["model"]["1.num_batches_tracked"].item() for each in (before, after)]
    assert counts == [4, 8]
    assert before["optimizer"]["state"].keys() == after["optimizer"]["state"].keys()


@pytest.mark.multiprocess
def test_two_models_train_in_two_process_sets(printed) -> None:
    text = printed(4, EXAMPLES / "process_sets.py")
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


@pytest.mark.multiprocess
def test_a_timeline_has_the_names_of_gradients(printed, tmp_path) -> None:
    path = tmp_path / "timeline-{rank}.json"
    arguments = ("--epochs", "1", "--images", "256")
    environ = ("-c", f'HOROVOD_TIMELINE="{path}" exec "$0" "$@"', sys.executable)
    printed(2, Path("/bin/sh"), *environ, EXAMPLES / "digits.py", *arguments)
    for rank in range(2):
        events = json.loads((tmp_path / f"timeline-{rank}.json").read_text())["traceEvents"]
        titles = {
            each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"
        }
        assert set(titles.values()) == {f"rank {rank}", f"tensors of rank {rank}"}
        assert titles[rank] == f"rank {rank}"
        assert "allreduce.0.weight" in {each["name"] for each in events if each["pid"] == rank}
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
