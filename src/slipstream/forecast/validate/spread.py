"""How a row spreads its work over devices: its batches and its strategy."""

from __future__ import annotations

import math
import re

from slipstream.forecast.validate import defaults
from slipstream.forecast.validate.machines import Machine
from slipstream.forecast.validate.models import Model
from slipstream.forecast.validate.row import Row, UnreadableError, whole
from slipstream.forecast.validate.software import Software
from slipstream.forecast.work.strategy import Exchange, Strategy

# A comma before three digits groups them, another one separates two numbers.
_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:\.\d+)?)\s*(k)?\b", re.IGNORECASE)
_NO_NUMBER = re.compile(r"(?:|n/?a|-|\?|not stated|unknown)", re.IGNORECASE)
_SHARED = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "no_shard": 0}
_KEEPS_ALL = re.compile(r"\bno (?:ac\b|checkpoint|recompute)")
# TensorFlow 2 packs all gradients into one array and sums that when the last of them is whole
# (tensorflow.org/api_docs/python/tf/distribute/NcclAllReduce, num_packs=1), unless another library
# exchanges them.
_ONE_PACK = 1 << 62
_TENSORFLOW_2 = r"tensorflow *v?2|\btf2"
_EXCHANGED_BY_OTHERS = r"horovod|aiacc|byteps|\bngc\b"
_PARAMETER_SERVER = r"\bps\b|\bps-|parameter.server|byteps|stock distributed"


def stated_batch(row: Row, software: Software) -> int | None:
    """Returns the batch of a device that a row states; None: none.

    Of two, as "128 (FP32) / 256 (AMP)" or "64 , 32", the larger is that of mixed precision.

    Args:
        row: of the table.
        software: for its precision.

    Raises:
        UnreadableError: there is text, and no number from 1 on in it.
    """
    text = re.sub(r"\([^)]*\)", " ", row.batch_per_gpu).strip()
    if _NO_NUMBER.fullmatch(text):
        return None
    found = [
        float(digits.replace(",", "")) * (1024 if kilo else 1)
        for digits, kilo in _NUMBER.findall(text)
    ]
    if not found or "-" in text or not all(each >= 1 and each.is_integer() for each in found):
        raise UnreadableError(
            f"batch_per_gpu is {row.batch_per_gpu!r}; one or two whole numbers can be read"
        )
    return int(max(found) if software.precision in ("fp16", "bf16") else min(found))


def strategy(
    row: Row, machine: Machine, model: Model, software: Software, batch: int | None
) -> tuple[Strategy, tuple[str, ...]]:
    """Returns how a row spreads its work, and what of that it does not state.

    Args:
        row: of the table.
        machine: that ran it.
        model: that it trains.
        software: that trains it.
        batch: of a device, as stated.

    Raises:
        UnreadableError: degrees do not multiply to the devices, or batches to the global batch.
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
        # torchtitan's pipelines run as many micro-batches as they have stages.
        count = math.gcd(batch, pipeline)
        micro = batch // count
        assumed += ("micro_batches",)
    checkpoint, guessed = _checkpoint(row, software)
    found = Strategy(
        data=data, tensor=tensor, pipeline=pipeline, micro_batch=micro, micro_batches=count,
        virtual=2 if "interleaved" in row.words else 1, zero=_zero(row, software),
        checkpoint=checkpoint, selective="torchtitan" in _origin(row) and not checkpoint
        and not _KEEPS_ALL.search(row.words), sequence=tensor > 1 and "torchtitan" in _origin(row),
        exchange=_exchange(row),
        bucket_bytes=_ONE_PACK if is_packed(row) else Strategy().bucket_bytes,
    )  # fmt: skip
    return found, assumed + guessed


def gradient_bytes(row: Row, software: Software) -> int:
    """Return the bytes of a number of a gradient that replicas exchange.

    Keras has parameters and their gradients in 32 bits where products are in 16
    (tensorflow.org/api_docs/python/tf/keras/mixed_precision/Policy). Paddle sends 16 bits all the
    same (paddle/fluid/contrib/mixed_precision/fp16_utils.py, update_role_var_grad).

    Args:
        row: A row of the table.
        software: What ran it.
    """
    return 2 if software.precision in ("fp16", "bf16") and not is_packed(row) else 4


def is_packed(row: Row) -> bool:
    """Return whether TensorFlow 2 itself exchanges the gradients: as one array.

    Args:
        row: A row of the table.
    """
    text = row.framework.lower()
    return bool(re.search(_TENSORFLOW_2, text)) and not re.search(_EXCHANGED_BY_OTHERS, text)


def _origin(row: Row) -> str:
    return f"{row.source} {row.framework}".lower()


def _degrees(row: Row, devices: int) -> tuple[int, int, int]:
    """Tensor, pipeline and data ranks."""
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


def _degree(row: Row, name: str) -> int:
    """A degree, as "TP=8", "TP 8" or "TP8"; torchtitan's are 8 where only named."""
    if found := re.search(rf"\b{name}[ =]?(\d+)\b", row.words):
        return whole(found[1], name)
    dimensions = {"tp": "2d|3d", "pp": "3d"}
    if name in dimensions and "torchtitan" in _origin(row):
        named = re.search(rf"\b(?:async)?{name}\b|\b(?:{dimensions[name]})\b", row.words)
        return 8 if named else 1
    return 1


def _micro_batches(row: Row, data: int, micro: int) -> int:
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


def _checkpoint(row: Row, software: Software) -> tuple[bool, tuple[str, ...]]:
    stated = row.numbers().get("ckpt")
    if stated is not None:
        return stated.lower() in ("true", "1", "yes"), ()
    if re.search(r"full (?:ac\b|activation)|full recompute", row.words):
        return True, ()
    if re.search(r"selective|\bno (?:ac\b|checkpoint|recompute)", row.words):
        return False, ()
    if software.runtime == "megatron":
        # vTrain's configurations say "use_checkpoint": true, but the times are of three passes:
        # with four, products would run at 0.9 of the peak.
        return False, ("checkpoint",)
    if "torchtitan" in _origin(row):
        # Its 8B checkpoints what is cheap to compute only, larger ones all.
        return bool(re.search(r"\b(?:70|405)b\b", row.words)), ("checkpoint",)
    return False, ()


def _zero(row: Row, software: Software) -> int:
    for name, stage in _SHARED.items():
        if name in row.words:
            return stage
    if found := re.search(r"zero[-_ ]?([0-3])\b", row.words):
        return int(found[1])
    return 3 if software.runtime in ("fsdp", "fsdp-compile") else 0


def _exchange(row: Row) -> Exchange:
    text = row.framework.lower()
    if not re.search(_PARAMETER_SERVER, text):
        return Exchange.ALL_REDUCE
    # "(PS-cpu; AlexNet,VGG16 NCCL)": all but these models have a parameter server.
    exceptions = re.search(r";([^)]*)\bnccl", text)
    name = row.model.lower().split()[0]
    if exceptions and name in re.split(r"[,\s]+", exceptions[1]):
        return Exchange.ALL_REDUCE
    return Exchange.PARAMETER_SERVER
