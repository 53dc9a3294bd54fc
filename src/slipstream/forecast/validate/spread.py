"""Batch sizes and strategy of a measurement: how devices divide the work of a step."""

from __future__ import annotations

import math
import re

from slipstream.forecast.validate import defaults
from slipstream.forecast.validate.machines import MeasuredMachine
from slipstream.forecast.validate.models import TrainedModel
from slipstream.forecast.validate.row import TableRow, UnreadableError, whole
from slipstream.forecast.validate.software import Software
from slipstream.forecast.work.strategy import Exchange, Strategy

# A comma before three digits groups them; any other comma separates two numbers.
_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?)\s*(k)?\b", re.IGNORECASE)
_NO_NUMBER = re.compile(r"(?:|n/?a|-|\?|not stated|unknown)", re.IGNORECASE)
_SHARED = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "no_shard": 0}
_KEEPS_ALL = re.compile(r"\bno (?:ac\b|checkpoint|recompute)")
# Bucket size that no model reaches. TensorFlow 2 packs all gradients into one array and sums it
# when the last gradient is ready (tensorflow.org/api_docs/python/tf/distribute/NcclAllReduce,
# num_packs=1), unless another library exchanges them.
_ONE_PACK = 1 << 62
_TENSORFLOW_2 = r"tensorflow *v?2|\btf2"
_EXCHANGED_BY_OTHERS = r"horovod|aiacc|byteps|\bngc\b"
_PARAMETER_SERVER = r"\bps\b|\bps-|parameter.server|byteps|stock distributed"


def stated_batch(row: TableRow, software: Software) -> int | None:
    """Return the batch size per device that a row states, or None if the row states none.

    If the row states two batches, as in "128 (FP32) / 256 (AMP)" or "64 , 32", the larger batch
    belongs to mixed precision.

    Args:
        row: Published measurement, as a row of text.
        software: Framework that ran the training; its precision selects one of two batch sizes.

    Raises:
        UnreadableError: The row's batch size is neither one nor two whole numbers of at least 1.
    """
    text = re.sub(r"\([^)]*\)", " ", row.batch_per_gpu).strip()
    if _NO_NUMBER.fullmatch(text):
        return None
    batches = [
        float(digits.replace(",", "")) * (1024 if kilo else 1)
        for digits, kilo in _NUMBER.findall(text)
    ]
    if (
        not batches
        or "-" in text
        or not all(batch >= 1 and batch.is_integer() for batch in batches)
    ):
        raise UnreadableError(
            f"batch_per_gpu is {row.batch_per_gpu!r}; one or two whole numbers can be read"
        )
    return int(max(batches) if software.precision in ("fp16", "bf16") else min(batches))


def strategy(
    row: TableRow,
    machine: MeasuredMachine,
    model: TrainedModel,
    software: Software,
    batch: int | None,
) -> tuple[Strategy, tuple[str, ...]]:
    """Return the strategy of a measurement, and the names of values that were assumed.

    Args:
        row: Published measurement, as a row of text.
        machine: Machine on which the measurement was made.
        model: Model whose training was measured.
        software: Framework that ran the training, and its precision.
        batch: Batch size per device; None if the row states no batch.

    Raises:
        UnreadableError: The product of the degrees of parallelism is not the number of devices, or
            the global batch is not a multiple of the number of samples that all replicas process at
            once.
    """
    tensor, pipeline, data = _degrees(row, machine.devices)
    assumed: tuple[str, ...] = ()
    if batch is None:
        batch, assumed = defaults.batch(row, model, software, machine.device), ("batch",)
    micro, count = batch, 1
    if defaults.accumulates(row, model, software):
        micro, count = defaults.accumulation(
            model, software, machine.device, machine.devices, batch
        )
        assumed += ("micro_batches",)
    elif "gbs" in row.numbers() or "accum" in row.numbers():
        count = _micro_batches(row, data, micro)
    elif pipeline > 1:
        # torchtitan's pipelines run one micro-batch per stage.
        count = math.gcd(batch, pipeline)
        micro = batch // count
        assumed += ("micro_batches",)
    checkpoint, guessed = _checkpoint(row, software)
    divided = Strategy(
        data=data, tensor=tensor, pipeline=pipeline, micro_batch=micro, micro_batches=count,
        virtual=2 if "interleaved" in row.words else 1, zero=_zero(row, software),
        checkpoint=checkpoint, selective="torchtitan" in _origin(row) and not checkpoint
        and not _KEEPS_ALL.search(row.words), sequence=tensor > 1 and "torchtitan" in _origin(row),
        exchange=_exchange(row),
        bucket_bytes=_ONE_PACK if is_packed(row) else Strategy().bucket_bytes,
    )  # fmt: skip
    return divided, assumed + guessed


def gradient_bytes(row: TableRow, software: Software) -> int:
    """Return the bytes per gradient element that replicas exchange.

    Keras keeps parameters and gradients in 32 bits even if products are in 16 bits
    (tensorflow.org/api_docs/python/tf/keras/mixed_precision/Policy). Paddle exchanges gradients in
    16 bits (paddle/fluid/contrib/mixed_precision/fp16_utils.py, update_role_var_grad).

    Args:
        row: Published measurement, as a row of text.
        software: Framework that ran the training, and its precision.
    """
    return 2 if software.precision in ("fp16", "bf16") and not is_packed(row) else 4


def is_packed(row: TableRow) -> bool:
    """Return whether TensorFlow 2, without another library, exchanges gradients as one array.

    Args:
        row: Published measurement, as a row of text.
    """
    text = row.framework.lower()
    return bool(re.search(_TENSORFLOW_2, text)) and not re.search(_EXCHANGED_BY_OTHERS, text)


def _origin(row: TableRow) -> str:
    return f"{row.source} {row.framework}".lower()


def _degrees(row: TableRow, devices: int) -> tuple[int, int, int]:
    """Return the tensor-parallel, pipeline-parallel and data-parallel degrees."""
    if _degree(row, "cp") > 1:
        raise UnreadableError(
            f"the model is {row.model!r} with ranks that share a sequence (CP);"
            " data, tensor and pipeline ranks can be read"
        )
    tensor, pipeline = _degree(row, "tp"), _degree(row, "pp")
    data = _degree(row, "dp")
    if data == 1 and devices % (tensor * pipeline) == 0:
        data = devices // (tensor * pipeline)
    if data * tensor * pipeline != devices:
        raise UnreadableError(
            f"{row.model!r} needs {data * tensor * pipeline} devices and num_gpus is {devices};"
            " degrees that multiply to num_gpus can be read"
        )
    return tensor, pipeline, data


def _degree(row: TableRow, name: str) -> int:
    """Return the degree in "TP=8", "TP 8" or "TP8"; torchtitan's "TP" without a number is 8."""
    if match := re.search(rf"\b{name}[ =]?(\d+)\b", row.words):
        return whole(match[1], name)
    dimensions = {"tp": "2d|3d", "pp": "3d"}
    if name in dimensions and "torchtitan" in _origin(row):
        named = re.search(rf"\b(?:async)?{name}\b|\b(?:{dimensions[name]})\b", row.words)
        return 8 if named else 1
    return 1


def _micro_batches(row: TableRow, data: int, micro: int) -> int:
    numbers = row.numbers()
    if "gbs" not in numbers:
        return whole(numbers["accum"], "accum")
    total = whole(numbers["gbs"], "gbs")
    if total % (data * micro):
        raise UnreadableError(
            f"gbs={total} is no multiple of {data} replicas with {micro} samples at once;"
            " a multiple can be read"
        )
    return total // (data * micro)


def _checkpoint(row: TableRow, software: Software) -> tuple[bool, tuple[str, ...]]:
    stated = row.numbers().get("ckpt")
    if stated is not None:
        return stated.lower() in ("true", "1", "yes"), ()
    if re.search(r"full (?:ac\b|activation)|full recompute", row.words):
        return True, ()
    if re.search(r"selective|\bno (?:ac\b|checkpoint|recompute)", row.words):
        return False, ()
    if software.runtime == "megatron":
        # vTrain's configurations say "use_checkpoint": true, but the times fit the work of three
        # forward passes, of which the backward pass counts as two. With a fourth pass, products
        # would run at 0.9 of the peak.
        return False, ("checkpoint",)
    if "torchtitan" in _origin(row):
        # torchtitan's 8B model recomputes only cheap operators; larger models recompute all
        # operators.
        return bool(re.search(r"\b(?:70|405)b\b", row.words)), ("checkpoint",)
    return False, ()


def _zero(row: TableRow, software: Software) -> int:
    for name, stage in _SHARED.items():
        if name in row.words:
            return stage
    if match := re.search(r"zero[-_ ]?([0-3])\b", row.words):
        return int(match[1])
    return 3 if software.runtime in ("fsdp", "fsdp-compile") else 0


def _exchange(row: TableRow) -> Exchange:
    text = row.framework.lower()
    if not re.search(_PARAMETER_SERVER, text):
        return Exchange.ALL_REDUCE
    # "(PS-cpu; AlexNet,VGG16 NCCL)": all models but these use a parameter server.
    exceptions = re.search(r";([^)]*)\bnccl", text)
    name = row.model.lower().split()[0]
    if exceptions and name in re.split(r"[,\s]+", exceptions[1]):
        return Exchange.ALL_REDUCE
    return Exchange.PARAMETER_SERVER
