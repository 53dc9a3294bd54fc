"""What sources do not print in their tables and say elsewhere, and what is usual where they do not.

Whatever is taken from here is named in `Case.assumed`.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np

from slipstream.forecast.hardware import Device
from slipstream.forecast.validate.models import Model
from slipstream.forecast.validate.row import Row
from slipstream.forecast.validate.software import Software

# Images of ImageNet-1k.
IMAGENET = 1281167

# DeepLearningExamples: batches per GPU of architecture, runtime and device (beginnings of their
# names), in 16 bits and in 32. PyTorch: PyTorch/Classification/ConvNets/configs.yml; MXNet and
# Paddle: commands in their READMEs.
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
# DeepLearningExamples pre-trains BERT-Large with batches of 65536 sequences of 128 tokens or 32768
# of 512, that accumulate on each GPU (NVIDIA/DeepLearningExamples, READMEs of
# PyTorch/LanguageModeling/BERT, "Accumulation steps", and TensorFlow/LanguageModeling/BERT,
# "Gradient Accumulation"; TensorFlow2's departs: 61440 and 30720, on A100 of 80 GiB up to 90112).
_BERT_GLOBAL = {128: 65536, 512: 32768}
# Sequences of 128 and of 512 tokens that run at once in 16 bits, by the memory of the GPU in GiB;
# half of them in 32 bits.
_BERT_AT_ONCE = ((80, {128: 256, 512: 32}), (30, {128: 64, 512: 8}), (0, {128: 16, 512: 4}))
_BERT_MOST_TOKENS = 1 << 16
# Its phase of 512 tokens bins sequences by length (README, changelog of January 2022), so they are
# padded to less: 320 is the mean at which both phases reach the same FLOP/s on A100 in TF32.
_BERT_BINNED = {512: (320, 48)}

# Images whose channels come first. DLPerf asks for another layout with NVIDIA's MXNet in 16 bits
# alone; MXNet and NVIDIA's PyTorch of 2020 had them first where nothing else was asked for
# (Oneflow-Inc/DLPerf, README of NVIDIADeepLearningExamples/PyTorch/resnet50v1.5, log; main.py and
# data.py of the folders below). DeepLearningExamples asks for channels last in 16 bits alone
# (PyTorch/Classification/ConvNets/configs.yml, MxNet/Classification/RN50v1.5/runner).
# NVIDIA's BERT for PyTorch of 2020, which DLPerf ran, scored all tokens and not the masked ones
# (PyTorch/LanguageModeling/BERT, modeling.py and run_pretraining.py).
_CHANNELS_FIRST = (
    ("dlperf", "fp16", ("mxnet", "ngc-pytorch")),
    # Races of 2018 to 2020: PyTorch has had channels last since 1.5 of 2020.
    ("dawnbench", "fp16", ("mxnet", "pytorch")),
    ("deeplearningexamples", "tf32", ("ngc-mxnet", "ngc-paddle", "ngc-pytorch")),
)

# InsightFace for MXNet reads faces in one Python process for all GPUs, unless each has its own
# ("Partial FC"; Oneflow-Inc/DLPerf, MxNet/InsightFace). Such a process gives 1,080 to 1,117 a
# second (deepinsight/insightface, issue 517).
_FACES_PER_SECOND = 1100.0

# MXNet's ResNet-50 in DLPerf decodes and jitters pictures on the host's 24 cores (gluon-cv,
# train_horovod.py); a core of an AMD EPYC 9004 does 172 a second by MXNet's transforms.
_PICTURES_PER_CORE = 172.0
_PICTURES_PER_SECOND = 24 * _PICTURES_PER_CORE
# PyTorch's races on V100 of DAWNBench ran on p3.16xlarge, whose 64 vCPUs are 32 cores
# (infoq.cn/article/j629I8X512fg8tuKd6ke), and their loaders decode there.
_RACE_PICTURES_PER_SECOND = 32 * _PICTURES_PER_CORE

# Dell's white paper on P100s of 2016 trains GoogLeNet by MXNet on images of 256 pixels (table 2),
# which ImageRecordIter decodes on four threads where nothing else is asked for
# (mxnet.apache.org/versions/1.6/api/r/docs/api/mx.io.ImageRecordIter_v1.html, preprocess.threads).
_DELL_SIDE = 256
_DELL_PICTURES_PER_SECOND = 4 * _PICTURES_PER_CORE

# MLPerf: epochs of ResNet-50 to 75.9 % by global batch (mlcommons/logging, rcps_resnet.json), and
# batches per GPU that keep the global batch below what converges.
_MLPERF_EPOCHS = ((3264, 35), (13056, 45), (35840, 60), (49152, 68), (58880, 80), (65536, 85))
_MLPERF_BATCHES = (204, 128, 64, 32, 16, 8)
_MLPERF_ONE_HOST, _MLPERF_MOST = 408, 60000

# DAWNBench: sides of images whose pixels are the mean over epochs, where these grow. AIACC: 96 for
# 13 epochs, 128 for 11 and 224 for 3. fast.ai, which entries with PyTorch follow: 128, 224, 288.
# Huawei does not say; its entries are faster than V100 is at 224.
_SIDES = (("aiacc", 128), ("torch|fastai", 192), ("moxing|huawei", 160))

_LARGEST_USUAL = 256
_USUAL = {"sequence": 8, "token": 4096, "example": 65536}


def batch(row: Row, model: Model, software: Software, device: Device) -> int:
    """Returns a batch per device, where a row has none.

    Args:
        row: a row of the table.
        model: model that it trains.
        software: framework that trains it.
        device: on which.
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


def accumulates(row: Row, model: Model, software: Software) -> bool:
    """Says whether BERT is pre-trained with batches that accumulate, by NVIDIA.

    Args:
        row: a row of the table.
        model: model that it trains.
        software: framework that trains it.
    """
    return (
        "deeplearningexamples" in row.source.lower()
        and model.architecture == "bert-large"
        and software.runtime in ("ngc-pytorch", "xla")
        and model.inputs["length"] in _BERT_GLOBAL
    )


def accumulation(
    model: Model, software: Software, device: Device, devices: int, stated: int
) -> tuple[int, int]:
    """Returns the sequences of BERT that run at once on a device, and how often per step.

    Args:
        model: BERT-Large.
        software: for its precision.
        device: for its memory.
        devices: that share the global batch; eight at least.
        stated: batch per device in the table, which is either what runs at once or all of it.
    """
    length = model.inputs["length"]
    if software.runtime == "xla":
        return stated, max(1, _BERT_GLOBAL[length] // devices // stated)
    if stated * length > _BERT_MOST_TOKENS:
        at_once = next(at for least, at in _BERT_AT_ONCE if device.memory_gib >= least)[length]
        at_once //= 1 if software.precision in ("fp16", "bf16") else 2
        return at_once, max(1, stated // at_once)
    total = _BERT_GLOBAL[length] // max(devices, 8)
    # Powers of two: the README's "126" accumulates 64 times to 8192.
    at_once = 1 << round(math.log2(stated))
    return at_once, max(1, total // at_once)


def channels_first(row: Row, model: Model, software: Software) -> bool:
    """Says whether images are laid out with their channels first.

    Args:
        row: a row of the table.
        model: model that it trains.
        software: framework that trains it.
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


def input_rate(row: Row, model: Model, software: Software) -> float | None:
    """Returns samples per second that a host reads; None: as many as its devices want.

    Args:
        row: a row of the table.
        model: model that it trains.
        software: framework that trains it.
    """
    if "dawnbench" in row.source.lower() and software.runtime == "pytorch":
        return _RACE_PICTURES_PER_SECOND if "v100" in row.gpu.lower() else None
    if software.runtime != "mxnet":
        return None
    if model.architecture.startswith("face") and "partial fc" not in row.words:
        return _FACES_PER_SECOND
    if _is_dell_of_2016(row):
        return _DELL_PICTURES_PER_SECOND
    is_dlperf = "dlperf" in row.source.lower()
    return _PICTURES_PER_SECOND if is_dlperf and model.architecture == "resnet50" else None


def raced(row: Row, software: Software) -> bool:
    """Says whether a step is one CUDA graph and switches add gradients, as NVIDIA enters MLPerf.

    Source: mlcommons/training_results, NVIDIA's implementations/mxnet/config_*.sh of ResNet-50,
    E2E_CUDA_GRAPHS=1 and SBATCH_NETWORK=sharp.

    Args:
        row: a row of the table.
        software: framework that trains it.
    """
    return "mlperf" in row.source.lower() and software.runtime.startswith("ngc-")


def _is_dell_of_2016(row: Row) -> bool:
    return "dell" in row.source.lower() and "p100" in row.gpu.lower()


def read_samples(row: Row, model: Model, software: Software) -> Model:
    """Return a model with the samples that it is really given, where a table states others.

    Args:
        row: a row of the table.
        model: model that it trains.
        software: framework that trains it.
    """
    inputs, by_torch = model.inputs, software.runtime == "ngc-pytorch"
    if _is_dell_of_2016(row) and software.runtime == "mxnet" and model.architecture == "googlenet":
        return replace(model, inputs={"side": _DELL_SIDE}, assumed=(*model.assumed, "side"))
    if by_torch and "predictions" in inputs and "dlperf" in row.source.lower():
        return replace(model, inputs={**inputs, "predictions": inputs["length"]})
    if by_torch and accumulates(row, model, software) and inputs["length"] in _BERT_BINNED:
        length, predictions = _BERT_BINNED[inputs["length"]]
        binned = {"length": length, "predictions": predictions}
        return replace(model, inputs=binned, assumed=(*model.assumed, "length"))
    return model


def race(devices: int) -> tuple[int, float]:
    """Returns the batch per GPU of ResNet-50 in MLPerf, and epochs to its target.

    Args:
        devices: in all.
    """
    fits = [each for each in _MLPERF_BATCHES if each * devices <= _MLPERF_MOST]
    chosen = _MLPERF_ONE_HOST if devices <= 8 else max(fits, default=1)
    batches, epochs = zip(*_MLPERF_EPOCHS, strict=True)
    return chosen, float(np.interp(chosen * devices, batches, epochs))


def side(row: Row, model: Model) -> int | None:
    """Returns the pixels of a side of images that grow while training; None: they do not.

    Args:
        row: of a race to an accuracy.
        model: model that it trains.
    """
    if "dawnbench" not in row.source.lower() or not model.architecture.startswith("resnet"):
        return None
    text = row.framework.lower()
    return next((pixels for name, pixels in _SIDES if re.search(name, text)), None)
