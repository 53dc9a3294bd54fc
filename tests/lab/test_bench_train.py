"""Training benchmarks: models, agreement of losses, tables, and a short one in a lab."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from slipstream.bench.train import table as train_table
from slipstream.bench.train.job import ALONE, TrainJob, TrainSamples
from slipstream.bench.train.measure import TrainResult, TrainSpec, samples_per_second
from slipstream.bench.train.models import MODELS
from slipstream.errors import UsageError

COMMAND = str(Path(sys.executable).with_name("slipstream"))
DEMO = Path(__file__).parents[2] / "examples" / "01_fashion_mnist" / "model.py"


def trained(contender: str, *seconds: float, loss: float = 2.0) -> TrainSamples:
    return TrainSamples(
        contender=contender,
        samples_per_step=256,
        parameters=166_000,
        seconds=seconds or (1.0,),
        losses=(4.0, 3.0, 2.5, loss),
    )


def shapes(model: torch.nn.Module) -> list[tuple[int, ...]]:
    return sorted(tuple(each.shape) for each in model.parameters())


def test_the_small_model_is_that_of_the_demo() -> None:
    spec = importlib.util.spec_from_file_location("fashion_mnist_model", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert shapes(MODELS["resnet"].build()) == shapes(module.small_resnet())


def test_the_large_model_has_25_million_parameters() -> None:
    assert sum(each.numel() for each in MODELS["large"].build().parameters()) >= 25_000_000


@pytest.mark.slow("model of bench train")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_takes_its_batches(name: str) -> None:
    how = MODELS[name]
    inputs, targets = how.batch(2, torch.Generator().manual_seed(0))
    loss = torch.nn.functional.cross_entropy(how.build()(inputs), targets)
    assert loss.isfinite()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"models": ("vgg",)}, "model is 'vgg'; allowed: resnet, large"),
        ({"peers": ("mpi",)}, "peer is 'mpi'; allowed: gloo"),
        ({"codecs": ("int8+feedback",)}, "codec is 'int8\\+feedback'"),
        ({"steps": 0}, "steps is 0"),
        ({"warmup": 1}, "warmup is 1; allowed: at least 2"),
    ],
)
def test_a_training_that_cannot_be_is_a_wrong_call(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TrainSpec(**wrong)


def test_the_job_survives_json() -> None:
    job = TrainJob(model="resnet", contenders=("gloo",), steps=1, rounds=1, warmup=2, output="file")
    assert TrainJob.from_text(job.as_text()) == job


def test_losses_agree_with_those_over_gloo() -> None:
    exact, near = trained("slipstream", loss=2.01), trained("slipstream across fp16", loss=2.15)
    far, alone = trained("slipstream across", loss=2.15), trained(ALONE, loss=9.0)
    result = TrainResult(model="resnet", trained=(trained("gloo"), exact, near, far, alone))
    assert [result.agrees(each) for each in result.trained] == [True, True, True, False, True]
    assert result.loss_difference(exact) == pytest.approx(0.0025)
    assert result.loss_difference(alone) is None


def test_the_table_has_rates_ratios_and_marks_losses_that_differ() -> None:
    slow, fast = trained("gloo", 4.0, 2.0, 1.0), trained("slipstream", 1.0, loss=3.0)
    assert samples_per_second(slow) == 128
    results = [TrainResult(model="resnet", trained=(trained(ALONE, 0.5), slow, fast))]
    console = Console(width=100)
    with console.capture() as captured:
        console.print(train_table.table(TrainSpec(), results))
    (line,) = [line for line in captured.get().splitlines() if " 256 " in line]
    assert line.split()[1:] == ["1", "s", "256", "2.00", "0.50", "0.50", "3.0000", "2.5e-01", "!"]


@pytest.mark.netns
@pytest.mark.alone
@pytest.mark.multiprocess
@pytest.mark.slow("benchmark in a lab")
def test_the_demo_s_model_trains_alike_over_all(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    options = ["--models", "resnet", "--num-hosts", "2", "--steps", "2", "--rounds", "1"]
    done = subprocess.run(
        [COMMAND, "bench", "train", *options, "-o", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {each["contender"]: each for each in json.loads(file.read_text())["results"]}
    assert list(found) == [ALONE, "gloo", "slipstream", "slipstream across"]
    for name in ("slipstream", "slipstream across"):
        assert found[name]["losses"] == pytest.approx(found["gloo"]["losses"], rel=1e-3)
    # Without communication every rank goes its own way after the first step.
    assert found[ALONE]["losses"][0] == pytest.approx(found["gloo"]["losses"][0])
    assert found[ALONE]["losses"][3] != pytest.approx(found["gloo"]["losses"][3], rel=1e-3)
