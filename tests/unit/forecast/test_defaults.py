"""Values that a table of published measurements omits are those that are usual for its source."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from slipstream.forecast.validate.defaults import race
from slipstream.forecast.validate.table import COLUMNS, PublishedCase, read

RESNET = {
    "source": "DLPerf v1.0 (2020-10)",
    "gpus_per_node": "8",
    "network_gbps": "100",
    "framework": "NGC MXNet",
    "num_gpus": "32",
    "images_per_sec_or_speedup": "11331.93",
    "unit": "images/sec",
    "address": "https://example.org",
}


def case_of(path: Path, **columns: str) -> PublishedCase:
    table = path / "table.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerow(RESNET | columns)
    [case], unread = read(table)
    assert not unread
    return case


@pytest.mark.parametrize(
    ("gpu", "full", "half"),
    [("K80", 32, 128), ("V100-SXM2-16GB", 64, 256), ("V100-32GB", 128, 256)],
)
def test_a_batch_of_images_follows_the_memory(tmp_path: Path, gpu: str, full: int, half: int):
    for precision, batch in (("FP32", full), ("FP16", half)):
        case = case_of(tmp_path, gpu=gpu, model=f"ResNet-50 v1.5 {precision}")
        assert case.strategy.micro_batch == batch
        assert "batch" in case.assumed


@pytest.mark.parametrize(
    ("source", "gpu", "framework", "model", "inputs", "rate"),
    [
        ("Dell P100 (2016)", "P100-PCIe", "MXNet", "GoogLeNet", {"side": 256}, 4 * 172.0),
        ("Dell P100 (2016)", "P100-PCIe", "MXNet", "InceptionV3", {}, 4 * 172.0),
        ("Dell P100 (2016)", "P100-PCIe", "NV-Caffe", "GoogLeNet", {}, None),
        ("Dell EMC Ready Solution", "V100-PCIe", "MXNet", "GoogLeNet", {}, None),
    ],
)
def test_dell_reads_images_as_its_white_paper_says(
    tmp_path: Path, source: str, gpu: str, framework: str, model: str, inputs: object, rate: object
):
    named = {"source": source, "gpu": gpu, "framework": framework, "model": f"{model} FP32"}
    case = case_of(tmp_path, **named)
    assert (dict(case.inputs), case.input_rate) == (inputs, rate)
    assert ("side" in case.assumed) == bool(inputs)


RACE = {"gpu": "V100-SXM2-16GB", "model": "ResNet-50 v1.5 FP16"}


@pytest.mark.parametrize(
    ("source", "framework", "first", "raced", "rate"),
    [
        ("DAWNBench ImageNet", "fastai / pytorch", True, False, 32 * 172.0),
        ("DAWNBench ImageNet", "PyTorch 0.4.1", True, False, 32 * 172.0),
        ("DAWNBench ImageNet", "Huawei Optimized MXNet", True, False, None),
        ("DAWNBench ImageNet", "TensorFlow 1.11 + horovod", False, False, None),
        ("pytorch-image-models", "PyTorch 1.12 NCHW", True, False, None),
        ("pytorch-image-models", "PyTorch 1.12 NHWC", False, False, None),
        ("MLPerf Training v3.0 closed", "NGC MXNet", False, True, None),
        ("MLPerf Training v3.0 closed", "MXNet", False, False, None),
        ("NVIDIA DeepLearningExamples", "NGC MXNet", False, False, None),
    ],
)
def test_how_images_lie_and_come_and_steps_are_issued(
    tmp_path: Path, source: str, framework: str, first: bool, raced: bool, rate: float | None
):
    case = case_of(tmp_path, source=source, framework=framework, **RACE)
    assert (case.channels_first, case.raced, case.input_rate) == (first, raced, rate)


EXAMPLES = "NVIDIA DeepLearningExamples"
VOLTA16, VOLTA32 = "V100-SXM2-16GB", "V100-SXM2-32GB"


@pytest.mark.parametrize(
    ("model", "framework", "gpu", "half", "full"),
    [
        ("ResNet-50 v1.5", "NGC MXNet", VOLTA16, 192, 96),
        ("ResNet-50 v1.5", "NGC MXNet", VOLTA32, 256, 128),
        ("ResNet-50 v1.5", "NGC PyTorch", VOLTA16, 256, 112),
        ("ResNet-50 v1.5", "NGC PyTorch", "T4", 256, 128),
        ("ResNet-50 v1.5", "NGC PaddlePaddle", VOLTA16, 256, 128),
        ("ResNet-50 v1.5", "NGC PyTorch", "A100-80GB", 256, 256),
        ("ResNeXt101-32x4d", "NGC PyTorch", "A100-40GB", 128, 128),
        ("ResNeXt101-32x4d", "NGC PyTorch", VOLTA16, 128, 64),
        ("SE-ResNeXt101-32x4d", "NGC PyTorch", "A100-80GB", 128, 128),
        ("SE-ResNeXt101-32x4d", "NGC PyTorch", VOLTA16, 112, 64),
        ("SE-ResNeXt101-32x4d", "NGC PyTorch", "T4", 128, 64),
        ("efficientnet-b0", "NGC PyTorch", "A100-80GB", 256, 256),
        ("efficientnet-widese-b0", "NGC PyTorch", VOLTA32, 256, 128),
        ("efficientnet-b0", "NGC PyTorch", VOLTA16, 128, 64),
        ("efficientnet-b4", "NGC PyTorch", "A100-80GB", 128, 64),
        ("efficientnet-widese-b4", "NGC PyTorch", VOLTA32, 64, 32),
        ("efficientnet-b4", "NGC PyTorch", VOLTA16, 32, 16),
    ],
)
def test_batches_of_nvidia_are_those_of_its_configurations(
    tmp_path: Path, model: str, framework: str, gpu: str, half: int, full: int
):
    for precision, batch in (("AMP", half), ("FP32", full)):
        case = case_of(
            tmp_path, source=EXAMPLES, model=f"{model} {precision}", framework=framework, gpu=gpu
        )
        assert case.strategy.micro_batch == batch


@pytest.mark.parametrize(
    ("gpu", "by_length"),
    [
        ("A100-80GB", {128: 256, 512: 32}),
        ("A100-40GB", {128: 64, 512: 8}),
        (VOLTA32, {128: 64, 512: 8}),
        (VOLTA16, {128: 16, 512: 4}),
    ],
)
@pytest.mark.parametrize("length", [128, 512])
def test_sequences_of_bert_run_at_once_as_memory_allows(
    tmp_path: Path, gpu: str, by_length: dict[int, int], length: int
):
    for precision, at_once in (("AMP", by_length[length]), ("FP32", by_length[length] // 2)):
        case = case_of(
            tmp_path, source=EXAMPLES, model=f"BERT-Large pretrain seq{length} {precision}",
            framework="NGC PyTorch", gpu=gpu, batch_per_gpu="8192", unit="sequences/sec",
        )  # fmt: skip
        found = case.strategy
        assert (found.micro_batch, found.micro_batches) == (at_once, 8192 // at_once)
        assert "micro_batches" in case.assumed


@pytest.mark.parametrize(
    ("framework", "gpus", "stated", "at_once", "times"),
    [
        # 65536 tokens still run at once, and fewer than eight devices count as eight.
        ("NGC PyTorch", "8", "512", 512, 16),
        ("NGC PyTorch", "8", "513", 256, 2),
        ("NGC PyTorch", "1", "64", 64, 128),
        ("NGC PyTorch", "512", "256", 256, 1),
        ("NGC TF1 Horovod", "512", "64", 64, 2),
        ("NGC TF1 Horovod", "2048", "64", 64, 1),
    ],
)
def test_the_global_batch_of_bert_is_accumulated(
    tmp_path: Path, framework: str, gpus: str, stated: str, at_once: int, times: int
):
    case = case_of(
        tmp_path, source=EXAMPLES, model="BERT-Large pretrain seq128 AMP", framework=framework,
        gpu="A100-80GB", batch_per_gpu=stated, num_gpus=gpus, unit="sequences/sec",
    )  # fmt: skip
    assert (case.strategy.micro_batch, case.strategy.micro_batches) == (at_once, times)


@pytest.mark.parametrize(
    ("devices", "batch", "epochs"),
    [
        (8, 408, 35.0),
        (9, 204, 35.0),
        (64, 204, 45.0),
        (294, 204, None),
        (295, 128, None),
        (384, 128, 68.0),
        (468, 128, None),
        (469, 64, None),
        (560, 64, 60.0),
        (920, 64, 80.0),
        (1875, 32, 80 + 5 * 1120 / 6656),
        (1876, 16, None),
        (3751, 8, None),
        (7500, 8, None),
        (7501, 1, 35 + 10 * (7501 - 3264) / 9792),
        (70000, 1, 85.0),
    ],
)
def test_a_race_has_the_largest_batch_that_converges(
    devices: int, batch: int, epochs: float | None
):
    found, trained = race(devices)
    assert found == batch
    if epochs is not None:
        assert trained == pytest.approx(epochs)


@pytest.mark.parametrize(
    ("source", "framework", "model", "inputs"),
    [
        ("DAWNBench ImageNet", "AIACC-Training", "ResNet50", {"side": 128}),
        ("DAWNBench ImageNet", "fastai / pytorch", "ResNet50", {"side": 192}),
        ("DAWNBench ImageNet", "MoXing MindSpore", "ResNet50", {"side": 160}),
        ("DAWNBench ImageNet", "Caffe", "ResNet50", {}),
        ("DAWNBench ImageNet", "fastai / pytorch", "VGG16", {}),
        ("Facebook", "fastai / pytorch", "ResNet50", {}),
    ],
)
def test_images_grow_in_some_races(
    tmp_path: Path, source: str, framework: str, model: str, inputs: dict[str, int]
):
    case = case_of(
        tmp_path, source=source, framework=framework, model=f"{model} epochs=30", gpu=VOLTA16,
        batch_per_gpu="64", unit="minutes to 93% top-5",
    )  # fmt: skip
    assert case.inputs == inputs
    assert ("side" in case.assumed) == bool(inputs)


@pytest.mark.parametrize(
    ("model", "batch"),
    [("BERT-Base pretrain seq128", 8), ("Transformer-big", 4096), ("NCF", 65536)],
)
def test_batches_of_other_samples_do_not_follow_the_memory(tmp_path: Path, model: str, batch: int):
    for gpu in ("K80", "A100-80GB"):
        case = case_of(tmp_path, source="Dell", model=f"{model} FP32", gpu=gpu)
        assert case.strategy.micro_batch == batch
