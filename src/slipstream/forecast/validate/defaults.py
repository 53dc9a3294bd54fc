"""Values that published measurements leave out: documented elsewhere, or usual values.

`PublishedCase.assumed` names each value that this module provides.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from slipstream.forecast.hardware import Device
from slipstream.forecast.validate.models import TrainedModel
from slipstream.forecast.validate.row import TableRow
from slipstream.forecast.validate.software import Software

# Training images of ImageNet-1k (image-net.org, ILSVRC 2012).
IMAGENET = 1281167

# DeepLearningExamples: architecture, runtime, device (each the beginning of a name), and batch per
# GPU in 16 and in 32 bits. Sources: PyTorch/Classification/ConvNets/configs.yml for PyTorch;
# commands in the READMEs for MXNet and Paddle.
_EXAMPLES = (
    ("resnet50", "ngc-mxnet", "V100-SXM2-16", 192, 96),
    ("resnet50", "ngc-mxnet", "V100-SXM2-32", 256, 128),
    ("resnet50", "ngc-pytorch", "V100", 256, 112),
    ("resnet50", "ngc-pytorch", "T4", 256, 128),
    ("resnet50", "", "V100", 256, 128),
    ("resnet50", "", "A100", 256, 256),
    ("resnext", "", "A100", 128, 128),
    ("resnext", "", "", 128, 64),
    ("se-resnext", "", "A100", 128, 128),
    ("se-resnext", "", "V100", 112, 64),
    ("se-resnext", "", "", 128, 64),
    ("efficientnet-b0", "", "A100", 256, 256),
    ("efficientnet-b0", "", "V100-SXM2-32", 256, 128),
    ("efficientnet-b0", "", "", 128, 64),
    ("efficientnet-b4", "", "A100", 128, 64),
    ("efficientnet-b4", "", "V100-SXM2-32", 64, 32),
    ("efficientnet-b4", "", "", 32, 16),
)
# DeepLearningExamples pre-trains BERT-Large with global batches of 65536 sequences of 128 tokens,
# or 32768 of 512 tokens; each GPU accumulates the gradients of its share
# (NVIDIA/DeepLearningExamples, READMEs of PyTorch/LanguageModeling/BERT, "Accumulation steps", and
# TensorFlow/LanguageModeling/BERT, "Gradient Accumulation"). The README of TensorFlow2 states other
# batches: 61440 and 30720, and up to 90112 on A100-80GB.
_BERT_GLOBAL = {128: 65536, 512: 32768}
# Number of sequences of 128 and of 512 tokens in a micro-batch in 16 bits, by the minimum memory of
# the GPU in GiB. Micro-batches in 32 bits are half as large.
_BERT_AT_ONCE = ((80, {128: 256, 512: 32}), (30, {128: 64, 512: 8}), (0, {128: 16, 512: 4}))
_BERT_MOST_TOKENS = 1 << 16
# Mean length and masked tokens of a sequence in the phase of 512 tokens. This phase groups
# sequences by length (README, changelog of January 2022), so they are padded less. The number 320
# is the mean length at which both phases reach the same FLOP/s on A100 in TF32.
_BERT_BINNED = {512: (320, 48)}

# Sources, precisions and runtimes of rows whose images have their channels first. In DLPerf, only
# NVIDIA's MXNet in 16 bits sets another layout; MXNet and NVIDIA's PyTorch of 2020 use channels
# first by default (Oneflow-Inc/DLPerf, README of NVIDIADeepLearningExamples/PyTorch/resnet50v1.5,
# log; main.py and data.py of the folders below). DeepLearningExamples sets channels last only in 16
# bits (PyTorch/Classification/ConvNets/configs.yml, MxNet/Classification/RN50v1.5/runner).
_CHANNELS_FIRST = (
    ("dlperf", "fp16", ("mxnet", "ngc-pytorch")),
    # These races took place from 2018 to 2020. PyTorch has supported channels last since version
    # 1.5 of 2020.
    ("dawnbench", "fp16", ("mxnet", "pytorch")),
    ("deeplearningexamples", "tf32", ("ngc-mxnet", "ngc-paddle", "ngc-pytorch")),
)

# InsightFace for MXNet reads faces in one Python process for all GPUs, except with "Partial FC",
# for which each GPU has its own process (Oneflow-Inc/DLPerf, MxNet/InsightFace). One process reads
# 1,080 to 1,117 faces per second (deepinsight/insightface, issue 517).
_FACES_PER_SECOND = 1100.0

# MXNet's ResNet-50 in DLPerf decodes and augments images on the host's 24 cores (gluon-cv,
# train_horovod.py). A core of an AMD EPYC 9004 processes 172 images per second with MXNet's
# transforms.
_IMAGES_PER_CORE = 172.0
_IMAGES_PER_SECOND = 24 * _IMAGES_PER_CORE
# PyTorch's DAWNBench races on V100 ran on p3.16xlarge, whose 64 vCPUs are 32 cores
# (infoq.cn/article/j629I8X512fg8tuKd6ke); their loaders decode on these cores.
_RACE_IMAGES_PER_SECOND = 32 * _IMAGES_PER_CORE

# Dell's white paper of 2016 on P100 trains GoogLeNet with MXNet on images of 256 pixels (table 2).
# ImageRecordIter decodes them on four threads by default
# (mxnet.apache.org/versions/1.6/api/r/docs/api/mx.io.ImageRecordIter_v1.html, preprocess.threads).
_DELL_SIDE = 256
_DELL_IMAGES_PER_SECOND = 4 * _IMAGES_PER_CORE

# ResNet-50 in MLPerf: epochs to an accuracy of 75.9 %, by global batch (mlcommons/logging,
# rcps_resnet.json); batches per GPU to choose from on several hosts; the batch per GPU on one host;
# and the largest global batch that is assumed to converge.
_MLPERF_EPOCHS = ((3264, 35), (13056, 45), (35840, 60), (49152, 68), (58880, 80), (65536, 85))
_MLPERF_BATCHES = (204, 128, 64, 32, 16, 8)
_MLPERF_ONE_HOST, _MLPERF_MOST = 408, 60000

# DAWNBench: some races enlarge images during training. An image of the side given here, in pixels,
# has the mean number of pixels over the epochs. AIACC trains with a side of 96 for 13 epochs, of
# 128 for 11 and of 224 for 3 epochs. The entries with PyTorch follow fast.ai, which trains with
# 128, 224 and 288. Huawei does not publish its sizes, but its entries are faster than a V100 can be
# at 224 pixels.
_SIDES = (("aiacc", 128), ("torch|fastai", 192), ("moxing|huawei", 160))

# Largest batch of images, and batches of other kinds of samples, for rows whose batch is unknown.
# Ten published rows state no batch; all count images. Their mean error is 10.8, 9.2, 10.5 and
# 10.5 % with at most 64, 128, 256 and 512 images. The batches of other samples were chosen by hand,
# not measured.
_LARGEST_USUAL = 256
_USUAL = {"sequence": 8, "token": 4096, "example": 65536}


def batch(row: TableRow, model: TrainedModel, software: Software, device: Device) -> int:
    """Return the batch size per device for a measurement that states no batch size.

    Args:
        row: Published measurement, as a row of text.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
        device: Device that ran the training.
    """
    half = software.precision in ("fp16", "bf16")
    if "deeplearningexamples" in row.source.lower():
        name = model.architecture.replace("widese-", "")
        for architecture, runtime, gpu, in_half, in_full in _EXAMPLES:
            if (
                name.startswith(architecture)
                and software.runtime.startswith(runtime)
                and device.name.startswith(gpu)
            ):
                return in_half if half else in_full
    if model.samples_are != "image":
        return _USUAL[model.samples_are]
    if device.kind == "cpu":
        return 32
    doublings = max(0, int(math.log2(device.memory_gib / 8)))
    return min(_LARGEST_USUAL, (32 << doublings) * (4 if half else 1))


def accumulates(row: TableRow, model: TrainedModel, software: Software) -> bool:
    """Return whether a measurement is of NVIDIA's BERT pre-training, which accumulates gradients.

    Args:
        row: Published measurement, as a row of text.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
    """
    return (
        "deeplearningexamples" in row.source.lower()
        and model.architecture == "bert-large"
        and software.runtime in ("ngc-pytorch", "xla")
        and model.inputs["length"] in _BERT_GLOBAL
    )


def accumulation(
    model: TrainedModel, software: Software, device: Device, devices: int, stated: int
) -> tuple[int, int]:
    """Return the number of sequences in a micro-batch of BERT, and the micro-batches per step.

    Args:
        model: BERT-Large, with the length of a sequence in `inputs`.
        software: Framework and its precision, which both decide the micro-batch.
        device: Device, whose memory decides the micro-batch.
        devices: Number of devices that share the global batch; with PyTorch, a number below 8
            counts as 8.
        stated: Batch size per device in the table: the number of sequences of one micro-batch, or
            of all micro-batches of a step.
    """
    length = model.inputs["length"]
    if software.runtime == "xla":
        return stated, max(1, _BERT_GLOBAL[length] // devices // stated)
    if stated * length > _BERT_MOST_TOKENS:
        at_once = next(at for least, at in _BERT_AT_ONCE if device.memory_gib >= least)[length]
        at_once //= 1 if software.precision in ("fp16", "bf16") else 2
        return at_once, max(1, stated // at_once)
    total = _BERT_GLOBAL[length] // max(devices, 8)
    # The micro-batch is a power of two. The README states "126", but also that 64 micro-batches
    # have 8192 sequences.
    at_once = 1 << round(math.log2(stated))
    return at_once, max(1, total // at_once)


def channels_first(row: TableRow, model: TrainedModel, software: Software) -> bool:
    """Return whether the training stored images with channels as their first dimension.

    Args:
        row: Published measurement, as a row of text.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
    """
    if model.samples_are != "image" or model.architecture.startswith("ssd"):
        return False
    if re.search(r"\bnchw\b|channels.first", row.words):
        return True
    return any(
        source in row.source.lower()
        and software.precision == precision
        and software.runtime in runtimes
        for source, precision, runtimes in _CHANNELS_FIRST
    )


def input_rate(row: TableRow, model: TrainedModel, software: Software) -> float | None:
    """Return the samples per second that a host can read, or None if reading never limits steps.

    Args:
        row: Published measurement, as a row of text.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
    """
    if "dawnbench" in row.source.lower() and software.runtime == "pytorch":
        return _RACE_IMAGES_PER_SECOND if "v100" in row.gpu.lower() else None
    if software.runtime != "mxnet":
        return None
    if model.architecture.startswith("face") and "partial fc" not in row.words:
        return _FACES_PER_SECOND
    if _is_dell_of_2016(row):
        return _DELL_IMAGES_PER_SECOND
    is_dlperf = "dlperf" in row.source.lower()
    return _IMAGES_PER_SECOND if is_dlperf and model.architecture == "resnet50" else None


def raced(row: TableRow, software: Software) -> bool:
    """Return whether NVIDIA trained for MLPerf, with CUDA graphs and switches that add gradients.

    Source: mlcommons/training_results, NVIDIA's implementations/mxnet/config_*.sh of ResNet-50,
    E2E_CUDA_GRAPHS=1 and SBATCH_NETWORK=sharp.

    Args:
        row: Published measurement, as a row of text.
        software: Framework that ran the training, and its precision.
    """
    return "mlperf" in row.source.lower() and software.runtime.startswith("ngc-")


def _is_dell_of_2016(row: TableRow) -> bool:
    return "dell" in row.source.lower() and "p100" in row.gpu.lower()


def read_samples(row: TableRow, model: TrainedModel, software: Software) -> TrainedModel:
    """Return the model with the input sizes that the publisher used but the table does not state.

    Args:
        row: Published measurement, as a row of text.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
    """
    inputs, by_torch = model.inputs, software.runtime == "ngc-pytorch"
    if _is_dell_of_2016(row) and software.runtime == "mxnet" and model.architecture == "googlenet":
        return replace(model, inputs={"side": _DELL_SIDE}, assumed=(*model.assumed, "side"))
    # DLPerf ran NVIDIA's BERT for PyTorch of 2020, which scored all tokens and not only the masked
    # tokens (PyTorch/LanguageModeling/BERT, modeling.py and run_pretraining.py).
    if by_torch and "predictions" in inputs and "dlperf" in row.source.lower():
        return replace(model, inputs={**inputs, "predictions": inputs["length"]})
    if by_torch and accumulates(row, model, software) and inputs["length"] in _BERT_BINNED:
        length, predictions = _BERT_BINNED[inputs["length"]]
        binned = {"length": length, "predictions": predictions}
        return replace(model, inputs=binned, assumed=(*model.assumed, "length"))
    return model


def race(devices: int) -> tuple[int, float]:
    """Return the batch size per GPU and the epochs to the target of ResNet-50 in MLPerf.

    Args:
        devices: Total number of GPUs.
    """
    fits = [size for size in _MLPERF_BATCHES if size * devices <= _MLPERF_MOST]
    chosen = _MLPERF_ONE_HOST if devices <= 8 else max(fits, default=1)
    batches, epochs = zip(*_MLPERF_EPOCHS, strict=True)
    return chosen, float(np.interp(chosen * devices, batches, epochs))


def side(row: TableRow, model: TrainedModel) -> int | None:
    """Return the mean side of images in pixels if they grow during training, or None.

    Args:
        row: Published time to reach an accuracy, as a row of text.
        model: Model whose training was measured.
    """
    if "dawnbench" not in row.source.lower() or not model.architecture.startswith("resnet"):
        return None
    text = row.framework.lower()
    return next((pixels for name, pixels in _SIDES if re.search(name, text)), None)
