"""What the doctor says about GPUs, and the backend that it advises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstream.cli.findings.advice import advice
from slipstream.cli.findings.finding import Finding
from slipstream.cli.findings.gpus import Gpu, Gpus, gpu_findings

H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=85_520_809_984)
MISSING = "libcuda-of-nobody.so.1"


def one(*gpus: Gpu) -> Gpus:
    """Return a host with GPUs whose driver works."""
    return Gpus(gpus=gpus, driver="580.159.04", cuda="13.0")


def shown(found: Gpus, **environ: str) -> dict[str, Finding]:
    """Return the findings by name."""
    return {each.name: each for each in gpu_findings(found, environ)}


def test_a_host_without_gpus_has_one_line_that_says_so() -> None:
    (line,) = gpu_findings(Gpus(gpus=()), {})
    assert (line.state, line.text) == ("absent", "none: there is no CUDA driver (libcuda.so.1)")
    (line,) = gpu_findings(Gpus(gpus=(), driver="580", trouble="cuInit failed: no device"), {})
    assert line.text == "none: cuInit failed: no device"


def test_a_gpu_is_shown_with_memory_driver_and_the_result_of_its_trial() -> None:
    lines = shown(one(H100, Gpu(name="NVIDIA T4", memory_bytes=1 << 34, trouble="cannot wait")))
    assert lines["driver"].text == "580.159.04, for CUDA up to 13.0"
    assert lines["GPU 0"].state == "ok"
    assert lines["GPU 0"].text.startswith("NVIDIA H100 80GB HBM3, 79.6 GiB; ")
    assert (lines["GPU 1"].state, lines["GPU 1"].text) == (
        "wrong",
        "NVIDIA T4, 16.0 GiB: cannot wait",
    )


def test_a_single_queue_is_wrong() -> None:
    assert shown(one(H100))["connections"].state == "ok"
    assert shown(one(H100), CUDA_DEVICE_MAX_CONNECTIONS="32")["connections"].state == "ok"
    line = shown(one(H100), CUDA_DEVICE_MAX_CONNECTIONS="1")["connections"]
    assert line.state == "wrong"
    assert line.remedy.startswith("unset CUDA_DEVICE_MAX_CONNECTIONS")


def test_without_a_driver_nvidia_smi_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Gpus.found(MISSING).gpus == ()
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA A10, 23028'\necho 'NVIDIA A10, 23028'\n")
    program.chmod(0o755)
    found = Gpus.found(MISSING)
    assert found.gpus == (Gpu(name="NVIDIA A10", memory_bytes=23028 << 20),) * 2
    assert MISSING in found.trouble
    line = shown(found)["GPU"]
    assert line.state == "wrong"
    assert "nvidia-smi lists NVIDIA A10, NVIDIA A10, but collectives cannot use them" in line.text
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert Gpus.found(MISSING).gpus == ()


def test_the_advised_backend_depends_on_gpus_and_rdma() -> None:
    troubled = Gpu(name="NVIDIA T4", memory_bytes=1 << 34, trouble="cannot wait")
    assert advice(Gpus(gpus=()), []).text == 'backend "slipstream", for tensors of the CPU'
    assert advice(one(H100), []).text.startswith('backend "slipstream" for CUDA tensors')
    assert advice(one(H100), ["mlx5_0"]).text.startswith('backend "nccl", because its RDMA')
    assert advice(one(H100, H100), []).text.startswith('backend "slipstream": NCCL among the 2 ')
    assert advice(one(H100, troubled), []).text.startswith(
        'backend "nccl" with `slipstream run --nccl-plugin`, because'
    )


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a GPU")
def test_this_machine_has_no_gpu() -> None:
    assert Gpus.found().gpus == ()
