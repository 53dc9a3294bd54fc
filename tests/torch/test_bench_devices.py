"""The benchmarks of communication on a device without a GPU, over a lab's relay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.bench.comm.measure import CommSpec, measure
from slipstream.bench.devices import check_device
from slipstream.bench.replay.measure import ReplaySpec, replay
from slipstream.bench.train.measure import TrainSpec, train
from slipstream.errors import UnsupportedError, UsageError

DEVICE = Path(__file__).parent / "device"
COMMAND = str(Path(sys.executable).with_name("slipstream"))
OPTIONS = ["--num-hosts", "2", "--rate", "10gbit", "--relay", "--rounds", "1"]
NO_NCCL = "NCCL has no code for tensors of teststream"

pytestmark = [pytest.mark.multiprocess, pytest.mark.xdist_group("stream_device")]

Bench = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of processes in which PyTorch has the test device."""
    build = [sys.executable, str(DEVICE / "build.py")]
    library = subprocess.run(build, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    packages = tmp_path_factory.mktemp("packages")
    metadata = packages / "teststream-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: teststream\nVersion: 0\n")
    entry = "[torch.backends]\nteststream = autoload:register\n"
    (metadata / "entry_points.txt").write_text(entry)
    path = f"{DEVICE}{os.pathsep}{packages}"
    return {**os.environ, "PYTHONPATH": path, "TESTSTREAM_LIBRARY": library}


@pytest.fixture
def bench(environ: dict[str, str]) -> Bench:
    """Return a function that runs a benchmark on the test device and returns its JSON."""

    def run(*command: str) -> dict[str, Any]:
        done = subprocess.run(
            [COMMAND, "bench", *command, *OPTIONS, "--device", "teststream", "--json"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            env=environ,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["is_relayed"]
        return found

    return run


@pytest.mark.slow("bench of communication")
def test_collectives(bench: Bench) -> None:
    found = bench(
        "comm", "--sizes", "1m", "--codecs", "none,int8", "--peers", "gloo,nccl-tuned,mpi"
    )
    names = [row["contender"] for row in found["rows"]]
    assert names == ["gloo", "slipstream", "slipstream int8", "copies to host and back"]
    assert [row["host_link_bytes"] for row in found["rows"][:2]] == [
        pytest.approx(row["least_host_link_bytes"], rel=0.02) for row in found["rows"][:2]
    ]
    assert found["notes"] == [
        f"nccl-tuned is left out: {NO_NCCL}",
        "mpi is left out: it is measured on tensors of the CPU only, not of teststream",
    ]


@pytest.mark.slow("bench of communication")
def test_training_has_the_losses_of_gloo(bench: Bench) -> None:
    peers = "gloo,gloo-fp16,gloo-powersgd,nccl-plugin"
    found = bench(
        *("train", "--models", "tiny", "--steps", "1", "--peers", peers, "--codecs", "none,int8")
    )
    results = {result["contender"]: result for result in found["results"]}
    assert list(results) == [
        *("no communication", "gloo", "gloo-fp16", "gloo-powersgd", "slipstream"),
        *("slipstream int8", "slipstream across", "slipstream across int8"),
    ]
    assert found["missing"] == {"nccl-plugin": NO_NCCL}
    losses = {name: result["losses"] for name, result in results.items()}
    assert losses["slipstream"] == pytest.approx(losses["gloo"], rel=1e-4)
    assert losses["slipstream int8"] == pytest.approx(losses["gloo"], rel=1e-2)
    # without communication every rank goes its own way after the first step
    assert losses["no communication"][2] != pytest.approx(losses["gloo"][2], rel=1e-5)


@pytest.mark.slow("bench of communication")
def test_replays_send_what_the_device_has(bench: Bench) -> None:
    found = bench("replay", "resnet50", "--steps", "1", "--peers", "slipstream,nccl,hvd")
    assert [row["peer"] for row in found["rows"]] == ["compute only", "DDP over slipstream"]
    assert found["missing"] == {
        "DDP over nccl": NO_NCCL,
        "slipstream, Horovod's API": "Horovod's API is measured on tensors of the CPU only",
    }


MEASUREMENTS: dict[str, Callable[[], object]] = {
    "comm": lambda: measure(CommSpec(local=2, device="cuda")),
    "train": lambda: train(TrainSpec(device="cuda")),
    "replay": lambda: replay(ReplaySpec(models=("resnet50",), device="cuda"), ()),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_missing_gpu_is_said_with_a_remedy(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"^PyTorch can use no device 'cuda' on") as caught:
        MEASUREMENTS[name]()
    assert f"found: PyTorch {torch.__version__}, built " in str(caught.value)
    assert str(caught.value).endswith("or measure tensors of the CPU with --device cpu")


@pytest.mark.parametrize(("name", "remedy"), [("cuda:0", "CUDA_VISIBLE_DEVICES"), ("gpu", "cuda")])
def test_a_wrong_device_is_a_wrong_call_and_the_answer_is_short(name: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=rf"the device is '{name}'; allowed: .*{remedy}") as caught:
        check_device(name)
    assert len(str(caught.value)) < 200
