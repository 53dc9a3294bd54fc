"""The benchmark on a GPU, on the CPU as its device: all but the calls of CUDA."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from slipstream.bench.infer import card_contenders, models
from slipstream.bench.infer.card import (
    WARM_UPS,
    CardResult,
    CardSpec,
    CardTiming,
    measure_on_card,
)
from slipstream.bench.infer.card_table import card_as_json, card_tables
from slipstream.bench.zoo import ZooModel
from slipstream.cli import app
from slipstream.cli.bench.infer import parse_batches
from slipstream.errors import UsageError
from slipstream.infer.engines.gpu.cards import missing_cuda


def build():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def inputs(seed):
    return {"x": np.random.default_rng(seed).standard_normal((1, 8)).astype(np.float32)}


@pytest.fixture
def tiny(monkeypatch):
    model = ZooModel(name="tiny", build=build, inputs=inputs, outputs=("y",))
    monkeypatch.setitem(models.ZOO, "tiny", model)


@pytest.mark.slow("bench of inference")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own modules
def test_all_contenders_take_turns_and_compute_the_same(tiny):
    spec = CardSpec(
        models=("tiny",), peers=("eager", "tensorrt"), batches=(3,), precision="bf16",
        device="cpu", rounds=2, seconds=0.01,
    )  # fmt: skip
    report = measure_on_card(spec)
    (result,) = report.results
    assert [timing.contender for timing in result.timings] == ["eager", "ours-inductor-cuda"]
    for timing in result.timings:
        assert len(timing.seconds) == 2
        assert timing.median > 0
        assert 25 < timing.snr_db < 70
    (note,) = result.notes
    assert note == (
        "tiny: tensorrt is left out: the installed ONNX Runtime has no TensorrtExecutionProvider"
    )
    assert result.speed_up("eager") > 0
    assert result.speed_up("compile") is None
    assert card_as_json(report)["results"][0]["speed_up"]["tensorrt"] is None
    (table,) = card_tables(report)
    assert table.title == "tiny, 3 rows, bf16, cpu"
    assert table.row_count == 2


class Failing(torch.nn.Module):
    """A layer that a GPU without memory would not run: in bfloat16, a call fails."""

    def __init__(self, calls):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)
        self.calls = calls

    def forward(self, x):
        if self.layer.weight.dtype == torch.bfloat16:
            self.calls -= 1
            if self.calls < 0:
                raise RuntimeError("CUDA out of memory\nwith further lines")
        return self.layer(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own modules
@pytest.mark.parametrize("calls", [0, WARM_UPS + 3], ids=["loaded", "in a round"])
def test_a_peer_that_fails_is_one_line_and_the_others_go_on(calls, monkeypatch):
    model = ZooModel(name="failing", build=lambda: Failing(calls), inputs=inputs, outputs=("y",))
    monkeypatch.setitem(models.ZOO, "failing", model)
    spec = CardSpec(
        models=("failing",), peers=("eager",), batches=(1,), precision="bf16",
        device="cpu", rounds=3, seconds=0.001,
    )  # fmt: skip
    (result,) = measure_on_card(spec).results
    assert [timing.contender for timing in result.timings] == ["ours-inductor-cuda"]
    assert len(result.timings[0].seconds) == 3
    assert result.failures == result.notes
    assert result.notes == (
        "failing: eager is left out, because it failed: RuntimeError: CUDA out of memory",
    )


def test_ours_is_compared_with_torch_compile_at_one_row():
    def timing(name, seconds):
        return CardTiming(
            contender=name, seconds=seconds, snr_db=50.0, load_seconds=1.0, peak_bytes=0
        )

    timings = (timing("compile", (3.0, 3.2, 9.0)), timing("tensorrt", (1.0,)))
    ours = (timing("ours-inductor-cuda", (2.0, 1.5, 2.5)), timing("ours-tensorrt", (4.0,)))
    result = CardResult(model="m", batch=1, timings=(*timings, *ours))
    assert result.speed_up("compile") == pytest.approx(1.6)
    assert result.speed_up("tensorrt") == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"models": ("resnet5",)}, "the model is 'resnet5'"),
        ({"peers": ("turbo",)}, "the peer is 'turbo'; allowed: eager"),
        ({"precision": "int8"}, "the precision is 'int8'; allowed: fp32, tf32"),
        ({"batches": (0,)}, "batches from 1"),
        ({"device": "tpu"}, "the device is 'tpu'"),
    ],
)
def test_settings_are_checked(settings, words):
    with pytest.raises(UsageError, match=words):
        CardSpec(**settings)


def test_batches_are_numbers():
    assert parse_batches("1, 32") == (1, 32)
    for text in ("", "0", "x", "1,-2"):
        with pytest.raises(UsageError, match="the batch is"):
            parse_batches(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda", "--threads", "2"], "--threads has no effect with --device cuda"),
        (["--batch", "2"], "--batch has no effect without --device cuda"),
    ],
)
def test_options_without_effect_are_refused(arguments, words):
    done = CliRunner().invoke(app, ["bench", "infer", *arguments])
    assert words in str(done.exception)


@pytest.mark.skipif(missing_cuda() is None, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_missed():
    done = CliRunner().invoke(app, ["bench", "infer", "--device", "cuda"])
    assert "the device is cuda: " in str(done.exception)


def test_engines_of_the_cpu_are_no_contenders_on_a_gpu():
    for precision in card_contenders.PRECISIONS:
        assert card_contenders.ours("cpu", precision) == ["ours-inductor-cuda"]
        assert "ours-native" not in card_contenders.ours("cuda:1", precision)


def test_the_device_of_a_measurement_is_one_that_pytorch_knows():
    assert CardSpec(device=" cpu ").device == "cpu"
    with pytest.raises(UsageError, match="the device is 'auto'; allowed: cpu, cuda"):
        CardSpec(device="auto")
