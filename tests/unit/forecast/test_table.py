"""Rows of published tables are read as cases that can be forecast, or refused with a reason."""

import csv
from pathlib import Path

import pytest
import torch

from slipstream.errors import ConfigError, UsageError
from slipstream.forecast.hardware import load
from slipstream.forecast.trace.architectures import names
from slipstream.forecast.validate.table import COLUMNS, PublishedCase, Unread, read
from slipstream.forecast.work.strategy import Exchange, Strategy

TITAN = "torchtitan benchmarks"
EXAMPLES = "NVIDIA DeepLearningExamples"

# One published row of each kind: source, model, GPU, GPUs per node, network, framework, batch,
# GPUs, value and unit.
VTRAIN = (
    "vTrain ground truth multi-node", "GPT h=12288 heads=96 L=96 seq=2048 gbs=1536 TP=8 DP=4 PP=16",
    "A100", "8", "800", "Megatron-DeepSpeed fp16", "2", "512", "56315.8", "ms/iteration",
)  # fmt: skip
MPT = (
    "llm-foundry MPT benchmarks",
    "MPT-13b seq2048 MFU=43.94 gbs=512 accum=16 ckpt=True params=12853954560", "a100_40gb", "8",
    "1600", "PyTorch FSDP FULL_SHARD bf16", "4", "8", "13347", "tokens/sec",
)  # fmt: skip
DLPERF = (
    "DLPerf v1.0 (2020-10)", "ResNet-50 v1.5 FP32", "V100-SXM2-16GB", "8",
    "100 (one 100Gb IB port per node)", "NGC MXNet", "128", "32", "11331.93", "images/sec",
)  # fmt: skip
BERT = (
    EXAMPLES, "BERT-Large pretrain seq128 AMP", "DGX A100 (8x A100 80GB)", "8",
    "DGX cluster IB (8x HDR/EDR; not stated)", "NGC PyTorch", "126 and 256", "16", "9191",
    "sequences/sec",
)  # fmt: skip
FACES = (
    "DLPerf InsightFace (2021)", "Face Emore & R100 & / Partial FC, sample_ratio = 0.1",
    "V100-SXM2-16GB", "8", "100", "OneFlow FP32", "64", "16", "3540.09", "samples/sec",
)  # fmt: skip
CLICKS = (
    "DLPerf Wide&Deep (2020)", "Wide&Deep vocab=2322444 emb=32 hidden=7 mem_MB=3357",
    "V100-SXM2-16GB", "8", "single node NVLink", "OneFlow 0.2 (model-parallel embedding)", "16384",
    "4", "65.031", "ms/iteration",
)  # fmt: skip
SERVERS = (
    "TensorFlow benchmarks 2017-05", "ResNet-50", "P100 (DGX-1)", "8", "single node NVLink",
    "TF real data fp32 (PS-cpu; AlexNet,VGG16 NCCL)", "64", "8", "1630", "images/sec",
)  # fmt: skip
RACE = (
    "DAWNBench ImageNet", "ResNet50-v1.5 to 93pct top-5 (epochs=27)", "V100-32GB (gn6e)", "8", "32",
    "AIACC-Training 1.3 + Tensorflow 2.1", "", "128", "0.043763889", "hours to 93% top-5",
)  # fmt: skip
SPEEDUP = (
    "Horovod docs 512-GPU", "VGG-16", "P100 (Pascal)", "4", "25", "Horovod TF RoCE 25Gb", "64",
    "512", "348.2", "speedup vs 1 GPU (=eff 0.68 x 512)",
)  # fmt: skip
LLAMA = (
    TITAN, "Llama3.1-70B seq8192 FSDP 32, TP 8 mem_GiB=71.9", "H100 (96GB HBM2e)", "8", "400",
    "torchtitan + torch.compile + float8", "16", "256", "829", "tokens/sec/GPU",
)  # fmt: skip
ALL = (VTRAIN, MPT, DLPERF, BERT, FACES, CLICKS, SERVERS, RACE, SPEEDUP, LLAMA)


def _write(path: Path, *rows: tuple[str, ...]) -> Path:
    with (path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows([*row, "https://example.org"] for row in rows)
    return path / "table.csv"


def _case(path: Path, row: tuple[str, ...], **changes: str) -> PublishedCase:
    cases, unread = read(_write(path, _changed(row, changes)))
    assert not unread, unread[0].reason
    return cases[0]


def _unread(path: Path, row: tuple[str, ...], **changes: str) -> Unread:
    cases, unread = read(_write(path, _changed(row, changes)))
    assert not cases, cases[0]
    return unread[0]


def _changed(row: tuple[str, ...], changes: dict[str, str]) -> tuple[str, ...]:
    fields = dict(zip(COLUMNS, row, strict=False)) | changes
    return tuple(fields[name] for name in COLUMNS[:-1])


def test_a_row_of_vtrain_has_three_degrees_and_micro_batches(tmp_path: Path):
    case = _case(tmp_path, VTRAIN)
    assert case.strategy == Strategy(
        data=4, tensor=8, pipeline=16, micro_batch=2, micro_batches=192
    )
    assert case.sizes == {
        "hidden": 12288, "heads": 96, "layers": 96, "positions": 2048, "vocabulary": 51200,
    }  # fmt: skip
    assert case.inputs == {"length": 2048}
    assert (case.step_samples, case.measured) == (1536, pytest.approx(56.3158))
    assert (case.precision, case.runtime, case.device) == ("fp16", "megatron", "A100-80GB")
    assert (case.devices, case.per_host, case.network_gbit) == (512, 8, 800)
    assert case.assumed == ("vocabulary", "checkpoint")


def test_rows_that_differ_in_strategy_are_one_group(tmp_path: Path):
    other = _changed(VTRAIN, {"model": VTRAIN[1].replace("TP=8 DP=4", "TP=4 DP=8")})
    bigger = _changed(VTRAIN, {"model": VTRAIN[1].replace("gbs=1536", "gbs=768")})
    shared = _changed(MPT, {"framework": "PyTorch FSDP SHARD_GRAD_OP bf16"})
    cases, _ = read(_write(tmp_path, VTRAIN, other, bigger, MPT, shared))
    groups = [case.group for case in cases]
    assert groups[0] == groups[1] != groups[2]
    assert groups[3] == groups[4]


def test_tokens_per_second_count_tokens(tmp_path: Path):
    case = _case(tmp_path, MPT)
    assert case.step_samples == 512 * 2048
    assert case.measured == pytest.approx(512 * 2048 / 13347)
    assert case.strategy == Strategy(
        data=8, micro_batch=4, micro_batches=16, zero=3, checkpoint=True
    )
    assert (case.architecture, case.sizes) == ("mpt-13b", {"positions": 2048})
    assert (case.device, case.precision, case.network_gbit) == ("A100-40GB", "bf16", None)
    assert case.assumed == ()
    translation = _case(
        tmp_path, BERT, model="Transformer-big WMT14 TF32", batch_per_gpu="5120/2560",
        num_gpus="8", images_per_sec_or_speedup="100000", unit="tokens/sec",
    )  # fmt: skip
    assert (translation.architecture, translation.step_samples) == ("transformer-big", 8 * 2560)
    remembered = _case(
        tmp_path, BERT, model="Transformer-XL FP32", batch_per_gpu="16", num_gpus="2",
        unit="tokens/sec",
    )  # fmt: skip
    assert (remembered.architecture, remembered.step_samples) == ("transformer-xl-base", 32 * 192)
    large = _case(
        tmp_path, BERT, model="Transformer-XL FP32", batch_per_gpu="4", num_gpus="2",
        unit="tokens/sec",
    )  # fmt: skip
    assert (large.architecture, large.step_samples) == ("transformer-xl-large", 8 * 384)
    assert large.assumed == ("size",)


def test_tensorflow_of_nvidia_compiles_bert_and_accumulates(tmp_path: Path):
    nvidia = _changed(BERT, {"source": "NVIDIA DeepLearningExamples", "batch_per_gpu": "64"})
    trained = _case(
        tmp_path, nvidia, model="BERT-Large pretrain seq128 AMP", num_gpus="512",
        framework="NGC TF1 Horovod",
    )  # fmt: skip
    assert (trained.runtime, trained.inputs) == ("xla", {"length": 128, "predictions": 20})
    assert (trained.strategy.micro_batch, trained.strategy.micro_batches) == (64, 2)
    tuned = _case(
        tmp_path, nvidia, model="BERT-Large SQuAD fine-tune AMP", framework="NGC TF1 Horovod"
    )
    assert (tuned.runtime, tuned.strategy.micro_batches) == ("xla", 1)


@pytest.mark.parametrize(
    ("source", "model", "framework", "first"),
    [
        ("DLPerf v1.0 (2020-10)", "ResNet-50 v1.5 AMP", "NGC PyTorch", True),
        ("DLPerf v1.0 (2020-10)", "ResNet-50 v1.5 AMP", "NGC MXNet", False),
        ("DLPerf v1.0 (2020-10)", "BERT-Base pretrain (seq128) AMP", "NGC PyTorch", False),
        ("NVIDIA DeepLearningExamples", "ResNet-50 v1.5 TF32", "NGC PyTorch", True),
        ("NVIDIA DeepLearningExamples", "ResNet-50 v1.5 AMP", "NGC PyTorch", False),
        ("NVIDIA DeepLearningExamples", "SSD300 ResNet-50 TF32", "NGC PyTorch", False),
    ],
)
def test_where_channels_come_first(
    tmp_path: Path, source: str, model: str, framework: str, first: bool
):
    row = _changed(BERT, {"source": source, "model": model, "framework": framework})
    assert _case(tmp_path, row).channels_first == first


@pytest.mark.parametrize(
    ("model", "framework", "rate"),
    [
        ("Face Emore & Y1 & / Data Parallelism", "MXNet FP32", 1100),
        ("Face Emore & R100 & / Partial FC, sample_ratio = 0.1", "MXNet FP32", None),
        ("Face Emore & Y1 & / Data Parallelism", "OneFlow FP32", None),
        ("ResNet-50 v1.5 AMP", "MXNet", 4128),
        ("ResNet-50 v1.5 AMP", "NGC MXNet", None),
    ],
)
def test_loaders_that_hosts_wait_for(
    tmp_path: Path, model: str, framework: str, rate: float | None
):
    row = _changed(DLPERF, {"model": model, "framework": framework})
    assert _case(tmp_path, row).input_rate == rate


def test_bert_of_2020_guesses_all_tokens(tmp_path: Path):
    dlperf = _changed(BERT, {"source": "DLPerf v1.0 (2020-10)", "framework": "NGC PyTorch"})
    case = _case(tmp_path, dlperf, model="BERT-Base pretrain (seq128) FP32")
    assert case.inputs == {"length": 128, "predictions": 128}


@pytest.mark.parametrize(
    ("framework", "zero"),
    [("FSDP FULL_SHARD", 3), ("FSDP SHARD_GRAD_OP", 2), ("FSDP NO_SHARD", 0), ("ZeRO-1", 1)],
)
def test_what_replicas_share_out_is_read(tmp_path: Path, framework: str, zero: int):
    assert _case(tmp_path, MPT, framework=f"PyTorch {framework} amp_bf16").strategy.zero == zero


@pytest.mark.parametrize(
    ("words", "checkpoint"),
    [("full activation checkpointing", True), ("full AC", True), ("selective AC", False)],
)
def test_activations_that_are_computed_again(tmp_path: Path, words: str, checkpoint: bool):
    case = _case(tmp_path, LLAMA, model=f"Llama3-70B seq8192 TP=8 accum=2 {words}")
    assert (case.strategy.checkpoint, case.strategy.micro_batches) == (checkpoint, 2)
    assert case.assumed == ()


def test_a_rate_of_each_gpu_and_a_network_of_each_gpu(tmp_path: Path):
    case = _case(tmp_path, LLAMA)
    assert case.measured == pytest.approx(32 * 16 * 8192 / (829 * 256))
    assert case.network_gbit == 3200
    assert case.memory_mb == pytest.approx(71.9 * 1024)
    assert (case.architecture, case.precision, case.fp8) == ("llama3-70b", "bf16", True)
    assert case.runtime == "fsdp-compile"
    assert case.strategy == Strategy(
        data=32, tensor=8, micro_batch=16, zero=3, checkpoint=True, sequence=True
    )
    case = _case(
        tmp_path, LLAMA, model="Llama 3.1 405B Interleaved 1F1B 72.7 GiB",
        framework="torchtitan 3D (FSDP+TP+PP) float8", batch_per_gpu="32", num_gpus="512",
        unit="TPS/GPU",
    )  # fmt: skip
    assert (case.strategy.data, case.strategy.tensor, case.strategy.pipeline) == (8, 8, 8)
    assert (case.strategy.micro_batch, case.strategy.micro_batches) == (4, 8)
    assert case.strategy.virtual == 2
    assert case.inputs == {"length": 8192}
    assert set(case.assumed) == {"length", "micro_batches", "checkpoint"}


def test_images_per_second(tmp_path: Path):
    case = _case(tmp_path, DLPERF)
    assert case.measured == pytest.approx(32 * 128 / 11331.93)
    assert (case.network_gbit, case.runtime, case.precision) == (100, "ngc-mxnet", "fp32")
    assert (case.measures, case.assumed) == ("step", ())
    assert _case(tmp_path, DLPERF, num_gpus="8").network_gbit is None


@pytest.mark.parametrize(
    ("framework", "runtime"),
    [
        ("NGC TensorFlow 1.x w/XLA bsz=224", "xla"),
        ("NGC TensorFlow 1.x bsz=224", "ngc-tensorflow1"),
        ("NGC TF1 Horovod", "ngc-tensorflow1"),
        ("TensorFlow 2.x", "tensorflow2"),
        ("OneFlow W/O clip bsz=96", "oneflow"),
        ("PaddlePaddle", "paddle"),
        ("PaddlePaddle w/DALI", "paddle-dali"),
        ("Caffe2+Gloo", "caffe2"),
        ("Torch+DDL", "torch7"),
        ("fastai / pytorch", "pytorch"),
        ("tensorflow 1.11 + horovod", "tensorflow1"),
        ("Horovod TF synthetic", "horovod"),
        ("tensorpack 0.8.0", "tensorflow1"),
        ("HugeCTR", "hugectr"),
        ("BytePS RDMA", "byteps"),
        ("MindSpore 0.5", "mindspore"),
    ],
)
def test_runtimes(tmp_path: Path, framework: str, runtime: str):
    assert _case(tmp_path, DLPERF, framework=framework).runtime == runtime


def test_an_unknown_framework_is_assumed_to_be_pytorch(tmp_path: Path):
    case = _case(tmp_path, DLPERF, framework="Theano")
    assert (case.runtime, case.assumed) == ("pytorch", ("runtime",))


@pytest.mark.parametrize(
    ("text", "precision", "batch"),
    [
        ("128 (FP32) / 256 (AMP)", "AMP", 256),
        ("128 (FP32) / 256 (AMP)", "FP32", 128),
        ("64 , 32", "AMP", 64),
        ("64 , 32", "TF32", 32),
        ("24, 10", "FP32", 10),
        ("4,2", "AMP", 4),
        ("16  and 32", "TF32", 16),
        ("5120/2560", "AMP", 5120),
        ("8k", "AMP", 8192),
        ("1,024", "FP32", 1024),
    ],
)
def test_of_two_batches_the_larger_is_that_of_mixed_precision(
    tmp_path: Path, text: str, precision: str, batch: int
):
    case = _case(tmp_path, DLPERF, model=f"ResNet-50 v1.5 {precision}", batch_per_gpu=text)
    assert case.strategy.micro_batch == batch


def test_bert_of_nvidia_accumulates_batches(tmp_path: Path):
    case = _case(tmp_path, BERT)
    assert (case.strategy.micro_batch, case.strategy.micro_batches) == (256, 16)
    assert (case.step_samples, case.network_gbit) == (65536, 1600)
    assert case.assumed == ("network_gbit", "micro_batches")
    single = _case(tmp_path, BERT, model="BERT-Large pretrain seq128 TF32", num_gpus="8")
    assert (single.strategy.micro_batch, single.strategy.micro_batches) == (128, 64)
    volta = _case(
        tmp_path, BERT, model="BERT-Large pretrain seq512 FP32", gpu="DGX-1 (8x V100 32G)",
        num_gpus="8", batch_per_gpu="2048 and 2048",
    )  # fmt: skip
    assert (volta.strategy.micro_batch, volta.strategy.micro_batches) == (4, 512)
    assert volta.inputs == {"length": 320, "predictions": 48}
    other = _case(tmp_path, BERT, framework="NGC TF1 Horovod", batch_per_gpu="64 , 32")
    assert (other.strategy.micro_batch, other.strategy.micro_batches) == (64, 64)


def test_what_is_shared_out_beside_replicas(tmp_path: Path):
    case = _case(tmp_path, FACES)
    assert (case.architecture, case.sharded) == ("face-r100", "head")
    assert case.sizes == {"classes": 85742, "sampled": 0.1}
    model = "Glint360k & Y1 & / Data Parallelism"
    assert _case(tmp_path, FACES, model=model).sizes == {"classes": 360232}
    assert _case(tmp_path, FACES, model=model).sharded == "none"
    case = _case(tmp_path, FACES, model="ResNet-50 + 3M-class sharded softmax AMP (30338 MB/GPU)")
    assert (case.architecture, case.sizes) == ("face-r50", {"classes": 3_000_000})
    assert (case.sharded, case.memory_mb) == ("head", 30338)
    case = _case(tmp_path, FACES, model="ResNet-50 + 1.5M-class PartialFC fp32")
    assert (case.sizes["sampled"], case.assumed) == (0.1, ("sampled",))
    case = _case(tmp_path, FACES, model="R50 arcface 10k-class")
    assert case.sizes == {"classes": 10_000}
    case = _case(tmp_path, FACES, model="Face R100 classes=13500000 / Model Parallelism")
    assert (case.sizes, case.sharded) == ({"classes": 13_500_000}, "head")


def test_milliseconds_per_iteration_and_memory(tmp_path: Path):
    case = _case(tmp_path, CLICKS)
    assert case.sizes == {"vocabulary": 2322444, "width": 32, "layers": 7}
    assert (case.measured, case.memory_mb) == (pytest.approx(0.065031), 3357)
    assert (case.sharded, case.precision, case.step_samples) == ("embedding", "fp32", 65536)
    outbrain = _case(
        tmp_path, CLICKS, source=EXAMPLES, model="Wide&Deep Outbrain XLA=Yes TF32",
        framework="NGC TF2 Horovod", unit="samples/sec",
    )  # fmt: skip
    assert (outbrain.runtime, outbrain.inputs["wide"]) == ("xla", 13)
    assert (outbrain.precision, outbrain.memory_mb) == ("tf32", None)


def test_parameter_servers_but_for_models_that_are_named(tmp_path: Path):
    case = _case(tmp_path, SERVERS)
    assert case.strategy.exchange is Exchange.PARAMETER_SERVER
    assert (case.architecture, case.real_data) == ("resnet50-v1", True)
    case = _case(tmp_path, SERVERS, model="VGG16", framework=SERVERS[5].replace("real", "fake"))
    assert case.strategy.exchange is Exchange.ALL_REDUCE
    assert not case.real_data


def test_time_to_a_target_is_seconds_per_step(tmp_path: Path):
    case = _case(tmp_path, RACE)
    throughput = 27 * 1281167 / (0.043763889 * 3600)
    assert case.step_samples / case.measured == pytest.approx(throughput)
    assert (case.measures, case.inputs, case.network_gbit) == ("to-target", {"side": 128}, 32)
    assert case.strategy.global_batch == 32768
    assert set(case.assumed) == {"precision", "batch", "side"}
    hours = "hours for 90 epochs (implies ~1104 images/sec)"
    case = _case(
        tmp_path, RACE, source="Facebook", model="ResNet-50 90 epochs", gpu="P100 (Big Basin)",
        framework="Caffe2+Gloo", batch_per_gpu="32", num_gpus="8", unit=hours,
        images_per_sec_or_speedup="29",
    )  # fmt: skip
    assert case.step_samples / case.measured == pytest.approx(1104, abs=1)
    assert (case.precision, case.inputs) == ("fp32", {})


def test_mlperf_does_not_print_batches_and_epochs(tmp_path: Path):
    changes = {
        "source": "MLPerf Training v3.0 closed", "model": "ResNet-50 v1.5 to 75.90%",
        "gpu": "H100-SXM5-80GB", "network_gbps": "DGX H100 (8x400 IB)", "framework": "NGC MXNet",
        "unit": "minutes to target", "images_per_sec_or_speedup": "13.466",
    }  # fmt: skip
    case = _case(tmp_path, RACE, num_gpus="8", **changes)
    assert case.strategy.global_batch == 3264
    assert case.step_samples / case.measured == pytest.approx(35 * 1281167 / (13.466 * 60))
    case = _case(tmp_path, RACE, num_gpus="3584", **changes)
    assert (case.strategy.micro_batch, case.network_gbit) == (16, 3200)
    changes["model"] = "BERT-Large to 0.72"
    assert "target" in _unread(tmp_path, RACE, num_gpus="8", **changes).reason


def test_a_speedup_stays_one(tmp_path: Path):
    case = _case(tmp_path, SPEEDUP)
    assert (case.measures, case.measured, case.network_gbit) == ("speedup", 348.2, 25)


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("DGX-1 (8x V100 16GB)", "V100-SXM2-16GB"),
        ("DGX-2H (16x V100 32G)", "V100-SXM2-32GB"),
        ("DGX A100 (8x A100 40GB)", "A100-40GB"),
        ("A100 (8x A100 80GB)", "A100-80GB"),
        ("h100_80gb", "H100"),
        ("H100 (96GB HBM2e)", "H100-96GB"),
        ("8x H100 96GB", "H100-96GB"),
        ("K80 (GCE n1-standard-32-k80x8)", "K80"),
        ("V100-PCIe (C4140)", "V100-PCIe"),
        ("V100 PCIe-switch", "V100-PCIe"),
        ("Titan X", "TitanX"),
        ("GTX 1080 Ti", "GTX1080Ti"),
        ("2x Xeon 8124M node", "Xeon-8124M-2S"),
        ("A10G", "A10G"),
        ("Pascal", "P100"),
    ],
)
def test_devices(tmp_path: Path, gpu: str, device: str):
    case = _case(tmp_path, DLPERF, gpu=gpu)
    assert case.device == load().device(device).name
    assert ("device" in case.assumed) == (gpu == "Pascal")


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("10 (EC2 p2.8xlarge; not stated on page)", 10),
        ("DGX H100 (8x400 IB)", 3200),
        ("DGX cluster IB (8x HDR/EDR; not stated)", 800),
        ("2x EDR", 200),
        ("IB", 100),
        ("3.2 Tb/s", 3200),
        ("12.5 per GPU", 100),
        ("", None),
        ("not stated", None),
    ],
)
def test_networks_are_of_a_host(tmp_path: Path, text: str, gbit: float | None):
    assert _case(tmp_path, DLPERF, network_gbps=text).network_gbit == gbit


def test_hosts_that_are_not_stated(tmp_path: Path):
    case = _case(tmp_path, DLPERF, gpus_per_node="", gpu="DGX-2 (16x V100 32GB)")
    assert (case.per_host, case.assumed) == (16, ("per_host",))
    assert _case(tmp_path, DLPERF, gpus_per_node="", num_gpus="4").per_host == 4


@pytest.mark.parametrize(
    ("source", "model", "gpu", "framework", "batch"),
    [
        (EXAMPLES, "ResNet-50 v1.5 AMP", "DGX-1 (8x V100 16GB)", "NGC MXNet", 192),
        (EXAMPLES, "ResNet-50 v1.5 FP32", "DGX-1 (8x V100 16GB)", "NGC PyTorch", 112),
        (EXAMPLES, "efficientnet-widese-b4 TF32", "A100 (8x A100 80GB)", "NGC PyTorch", 64),
        (EXAMPLES, "efficientnet-quant-b0 FP32", "DGX-1 (8x V100 32GB)", "NGC PyTorch", 128),
        (EXAMPLES, "SE-ResNeXt101-32x4d AMP", "DGX-1 (8x V100 32GB)", "NGC PyTorch", 112),
        (EXAMPLES, "VGG16 AMP", "V100", "NGC PyTorch", 256),
        ("Dell", "GoogLeNet FP32", "V100", "MXNet", 64),
        ("Dell", "NCF FP32", "V100", "MXNet", 65536),
        ("DAWNBench", "ResNet50", "2x Xeon 8124M node", "Caffe", 32),
    ],
)
def test_batches_that_are_not_stated(
    tmp_path: Path, source: str, model: str, gpu: str, framework: str, batch: int
):
    case = _case(
        tmp_path, DLPERF, source=source, model=model, gpu=gpu, framework=framework,
        batch_per_gpu="",
    )  # fmt: skip
    assert case.strategy.micro_batch == batch
    assert "batch" in case.assumed


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("AlexNet", "alexnet"), ("VGG-16", "vgg16"), ("VGG19-22K", "vgg19-22k"),
        ("GoogLeNet FP16", "googlenet"), ("InceptionV3", "inception-v3"),
        ("Resnet 50 v1", "resnet50-v1"), ("ResNet-152", "resnet152"), ("ResNet18", "resnet18"),
        ("ResNet-101 ImageNet-22K", "resnet101"), ("ResNeXt101-32x4d FP32", "resnext101-32x4d"),
        ("SE-ResNeXt101-32x4d AMP", "se-resnext101-32x4d"), ("MobileNetV2", "mobilenet-v2"),
        ("MobileNet-v3", "mobilenet-v3-large"), ("ViT-Base/16", "vit-base-16"),
        ("efficientnet-widese-b4 AMP", "efficientnet-widese-b4"), ("SSD300 ResNet-50", "ssd300"),
        ("BERT-Base pretrain (seq128) FP32", "bert-base"), ("BERT-Large AMP", "bert-large"),
        ("BERT-Large SQuAD fine-tune AMP", "bert-large-squad"), ("NCF ML-20M", "ncf"),
        ("DLRM Criteo small FP32", "dlrm-small"), ("Transformer-big WMT14", "transformer-big"),
        ("Wide&Deep vocab=100 emb=4 hidden=2", "wide-deep"), ("GPT2-XL seq1024", "gpt2-xl"),
        ("Wide&Deep Outbrain XLA=No", "wide-deep"), ("GPT3-1.3B", "gpt3-1.3b"),
        ("GPT h=64 heads=2 L=2 seq=32 vocab=100", "gpt2"), ("Llama2-7B", "llama2-7b"),
        ("Llama 3.1 8B", "llama3-8b"), ("Llama-13B", "llama2-13b"), ("MPT-125m seq512", "mpt-125m"),
        ("Face Emore & Y1 & / Model Parallelism", "face-y1"),
    ],
)  # fmt: skip
def test_architectures_are_known_and_take_the_numbers(
    tmp_path: Path, model: str, architecture: str
):
    case = _case(tmp_path, DLPERF, model=model)
    assert case.architecture == architecture
    found = names.find(case.architecture)
    assert found.inputs(64 if found.samples_are == "token" else 2, **case.inputs)
    with torch.device("meta"):
        assert found.make(**case.sizes).training


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"unit": "x Horovod throughput"}, "ratio"),
        ({"unit": "furlongs"}, "the unit is 'furlongs'"),
        ({"gpu": "Ascend 910"}, "the device is 'Ascend 910'"),
        ({"gpu": "mixed V100+P100"}, "one kind"),
        ({"model": "GreenNet CNN"}, "the model is 'GreenNet CNN'"),
        ({"model": "DLRM-dcnv2 large"}, "the model is 'DLRM-dcnv2 large'"),
        ({"model": "BERT-Large / ResNet-50 / GNMT"}, "one model"),
        ({"model": "GPT h=64 heads=2 seq=32"}, "layers"),
        ({"model": "GPT h=64 heads=2 L=2 seq=32 TP=3 DP=2"}, "num_gpus"),
        ({"model": "GPT h=64 heads=2 L=2 seq=32 gbs=33"}, "gbs=33"),
        ({"model": "Llama3-8B CP 2"}, "share a sequence"),
        ({"images_per_sec_or_speedup": "many"}, "'many'"),
        ({"images_per_sec_or_speedup": "1.2-1.4"}, "'1.2-1.4'"),
        ({"images_per_sec_or_speedup": "-3"}, "'-3'"),
        ({"images_per_sec_or_speedup": "nan"}, "'nan'"),
        ({"num_gpus": "up to 32 (figure)"}, "num_gpus"),
        ({"num_gpus": "0"}, "num_gpus"),
        ({"num_gpus": "-8"}, "num_gpus"),
        ({"gpus_per_node": "eight"}, "gpus_per_node"),
        ({"batch_per_gpu": "-64"}, "batch_per_gpu"),
        ({"batch_per_gpu": "0"}, "batch_per_gpu"),
        ({"batch_per_gpu": "1.5"}, "batch_per_gpu"),
        ({"batch_per_gpu": "large"}, "batch_per_gpu"),
        ({"unit": "hours to 93% top-5"}, "epochs"),
        ({"unit": "days to train", "model": "NCF"}, "ImageNet"),
    ],
)
def test_rows_that_cannot_be_read_say_why(tmp_path: Path, changes: dict[str, str], says: str):
    unread = _unread(tmp_path, DLPERF, **changes)
    assert says in unread.reason
    assert "can be read" in unread.reason
    assert (unread.line, unread.source) == (2, changes.get("source", DLPERF[0]))


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_byte_order_marks_line_ends_quotes_and_lines(tmp_path: Path, start: str, end: str):
    path = tmp_path / "table.csv"
    rows = [",".join(COLUMNS), "", _quoted(DLPERF), _quoted(("two\nlines", *DLPERF[1:])), "short,"]
    path.write_bytes((start + end.join([*rows, _quoted(MPT)]) + end).encode())
    cases, unread = read(path)
    assert [case.line for case in cases] == [3, 4, 7]
    assert [case.source for case in cases] == [DLPERF[0], "two\nlines", MPT[0]]
    assert [(each.line, each.source) for each in unread] == [(6, "short")]
    assert "fields" in unread[0].reason


def _quoted(row: tuple[str, ...]) -> str:
    return ",".join(f'"{field}"' for field in (*row, "https://example.org"))


def test_columns_may_be_in_any_order_and_others_are_left(tmp_path: Path):
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["note", *reversed(COLUMNS)])
        writer.writeheader()
        fields = dict(zip(COLUMNS, (*DLPERF, "https://example.org"), strict=True))
        writer.writerow(fields | {"note": "?"})
    assert read(path)[0][0].address == "https://example.org"


def test_a_row_with_too_many_fields_is_not_read(tmp_path: Path):
    assert not read(_write(tmp_path, (*DLPERF, "more")))[0]


def test_missing_columns_are_named(tmp_path: Path):
    path = tmp_path / "table.csv"
    path.write_text(",".join(name for name in COLUMNS if name not in ("unit", "gpu")))
    with pytest.raises(UsageError, match="no column gpu, unit"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe", b'source,"model\n'])
def test_files_that_are_no_tables(tmp_path: Path, content: bytes):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises((ConfigError, UsageError), match=r"table\.csv"):
        read(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path / "nowhere.csv")


def test_a_table_without_rows_has_no_cases(tmp_path: Path):
    assert read(_write(tmp_path)) == ([], [])


def test_every_kind_of_row_is_read_in_the_order_of_the_file(tmp_path: Path):
    cases, unread = read(_write(tmp_path, *ALL))
    assert not unread
    assert [case.line for case in cases] == list(range(2, 2 + len(ALL)))
    for case in cases:
        assert case.strategy.ranks == case.devices
        assert case.measured > 0
        assert load().device(case.device)
