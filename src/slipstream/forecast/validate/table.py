"""Reader of tables of published measurements; the result is a list of measurements to forecast.

case, *_ = read("measurements.csv")[0]
architecture = names.find(case.architecture)  # slipstream.forecast.trace.architectures.names
make = partial(architecture.make, **case.sizes)
batch = partial(architecture.inputs, case.strategy.micro_batch, **case.inputs)
workload = trace(make, batch, name=case.architecture, samples=case.strategy.micro_batch)
device = hardware.load().device(case.device)

`PublishedCase.assumed` names values that the row does not state, such as a batch, a precision or
activation checkpoints. `slipstream.forecast.validate.defaults` documents the origin of most of
these values.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from slipstream.errors import ConfigError, UsageError, reason_of
from slipstream.forecast.hardware import Hardware, load
from slipstream.forecast.validate import defaults
from slipstream.forecast.validate.case import PublishedCase as PublishedCase
from slipstream.forecast.validate.case import Unread as Unread
from slipstream.forecast.validate.machines import MeasuredMachine, machine
from slipstream.forecast.validate.models import TrainedModel, model
from slipstream.forecast.validate.row import TableRow, UnreadableError
from slipstream.forecast.validate.software import Software, software
from slipstream.forecast.validate.spread import gradient_bytes, stated_batch, strategy
from slipstream.forecast.validate.units import RowUnit, memory_mb, unit, value
from slipstream.forecast.work.strategy import Strategy

COLUMNS = (
    "source", "model", "gpu", "gpus_per_node", "network_gbps", "framework", "batch_per_gpu",
    "num_gpus", "images_per_sec_or_speedup", "unit", "address",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What the texts of a row mean: unit, machine, model, software and strategy."""

    unit: RowUnit
    machine: MeasuredMachine
    model: TrainedModel
    software: Software
    strategy: Strategy


def read(path: Path | str) -> tuple[list[PublishedCase], list[Unread]]:
    """Read a table of published measurements.

    The call blocks for milliseconds per hundred rows.

    Args:
        path: Location of a CSV file in UTF-8 with a header of `COLUMNS`, in any order.

    Returns:
        Two lists in the order of the file: the rows that can be forecast, and the unreadable rows.

    Raises:
        ConfigError: The file cannot be read, or is empty.
        UsageError: Columns are missing; the message names the missing columns.
    """
    hardware = load()
    cases: list[PublishedCase] = []
    unread: list[Unread] = []
    for line, fields in _records(Path(path)):
        source, name = fields.get("source") or "", fields.get("model") or ""
        try:
            cases.append(_case(_row(line, fields), hardware))
        except UnreadableError as error:
            unread.append(Unread(line=line, source=source, model=name, reason=str(error)))
    return cases, unread


def _records(path: Path) -> Iterator[tuple[int, Mapping[str | None, str | None]]]:
    """Yield the line number and cells of each row; cells beyond the header have the key None."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _check_columns(path, reader.fieldnames or ())
            before = reader.line_num
            for fields in reader:
                # The reader skips blank lines, and a quoted field may contain line breaks.
                inside = sum(text.count("\n") for text in fields.values() if isinstance(text, str))
                yield max(before + 1, reader.line_num - inside), fields
                before = reader.line_num
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as CSV: {reason_of(error)}") from error


def _check_columns(path: Path, header: Sequence[str]) -> None:
    if not header:
        raise ConfigError(f"{path} is empty; columns are {', '.join(COLUMNS)}")
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}; columns are {', '.join(COLUMNS)}"
        )


def _row(line: int, fields: Mapping[str | None, str | None]) -> TableRow:
    texts = {name: fields.get(name) for name in COLUMNS}
    stated = {name: text for name, text in texts.items() if text is not None}
    if None in fields or len(stated) < len(COLUMNS):
        raise UnreadableError(
            "the number of fields differs from the header's; rows with equally many can be read"
        )
    return TableRow(line=line, **stated)


def _case(row: TableRow, hardware: Hardware) -> PublishedCase:
    parts, assumed = _parts(row, hardware)
    samples, seconds = _step(row, parts)
    kinds: dict[str, Literal["speedup", "to-target"]] = {
        "speedup": "speedup", "target": "to-target",
    }  # fmt: skip
    return PublishedCase(
        line=row.line, source=row.source, model=row.model, gpu=row.gpu, framework=row.framework,
        unit=row.unit, address=row.address, architecture=parts.model.architecture,
        sizes=parts.model.sizes, inputs=parts.model.inputs, precision=parts.software.precision,
        fp8=parts.software.fp8, real_data=parts.software.real_data,
        device=parts.machine.device.name, devices=parts.machine.devices,
        per_host=parts.machine.per_host, network_gbit=parts.machine.network_gbit,
        strategy=parts.strategy, sharded=parts.model.sharded, runtime=parts.software.runtime,
        step_samples=samples, measured=seconds, measures=kinds.get(parts.unit.kind, "step"),
        channels_first=defaults.channels_first(row, parts.model, parts.software),
        gradient_bytes=gradient_bytes(row, parts.software),
        raced=defaults.raced(row, parts.software),
        input_rate=defaults.input_rate(row, parts.model, parts.software),
        memory_mb=memory_mb(row), group=_group(row, parts), assumed=tuple(dict.fromkeys(assumed)),
    )  # fmt: skip


def _parts(row: TableRow, hardware: Hardware) -> tuple[_Parts, tuple[str, ...]]:
    """Parse the texts of a row; return the parts, and the names of values that were assumed."""
    counted = unit(row.unit)
    ran_on = machine(row, hardware)
    ran_by = software(row, ran_on.device, to_target=counted.kind == "target")
    batch = stated_batch(row, ran_by)
    trained = model(row, ran_by.runtime)
    assumed: tuple[str, ...] = ()
    if counted.kind == "target":
        trained, batch, assumed = _raced(row, ran_on, trained, batch)
    spread, guessed = strategy(row, ran_on, trained, ran_by, batch)
    trained = defaults.read_samples(row, trained, ran_by)
    parts = _Parts(unit=counted, machine=ran_on, model=trained, software=ran_by, strategy=spread)
    return parts, ran_on.assumed + ran_by.assumed + trained.assumed + guessed + assumed


def _raced(
    row: TableRow, ran_on: MeasuredMachine, trained: TrainedModel, batch: int | None
) -> tuple[TrainedModel, int | None, tuple[str, ...]]:
    """Return model, batch size and names of assumed values for a published time to an accuracy."""
    pixels = defaults.side(row, trained)
    if pixels is not None:
        return replace(trained, inputs={"side": pixels}), batch, ("side",)
    if _is_mlperf(row) and batch is None:
        return trained, defaults.race(ran_on.devices)[0], ("batch", "epochs")
    return trained, batch, ()


def _is_mlperf(row: TableRow) -> bool:
    return "mlperf" in row.source.lower() and "resnet" in row.model.lower()


def _step(row: TableRow, parts: _Parts) -> tuple[int, float]:
    """Return the number of samples of a step, and the measurement: seconds or a speed-up."""
    number, counted = value(row.images_per_sec_or_speedup), parts.unit
    samples = parts.strategy.global_batch
    if counted.kind == "speedup":
        return samples, number
    if counted.kind == "period":
        return samples, number * counted.factor
    if counted.kind == "target":
        return samples, number * counted.factor * samples / _images(row, parts)
    samples *= parts.model.tokens if counted.tokens else 1
    per_second = number * counted.factor * (parts.machine.devices if counted.per_device else 1)
    return samples, samples / per_second


def _images(row: TableRow, parts: _Parts) -> float:
    """Return the number of images in a whole training."""
    if parts.model.samples_are != "image" or "num_classes" in parts.model.sizes:
        raise UnreadableError(
            f"{row.model!r} is timed to a target; such times can be read for ImageNet-1k only"
        )
    text = f"{row.model} {row.unit}".lower()
    if match := re.search(r"epochs?\s*=\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*epochs", text):
        epochs = float(match[1] or match[2])
    elif _is_mlperf(row) and not row.batch_per_gpu.strip():
        epochs = defaults.race(parts.machine.devices)[1]
    else:
        epochs = 0.0
    if not epochs:
        raise UnreadableError(
            f"{row.model!r} is timed to a target without its epochs; epochs=N can be read"
        )
    return epochs * defaults.IMAGENET


def _group(row: TableRow, parts: _Parts) -> str:
    """Return a text that is equal for measurements that differ only in their strategy."""
    shape = {**parts.model.sizes, **parts.model.inputs}
    sizes = " ".join(f"{name}={number:g}" for name, number in sorted(shape.items()))
    framework = re.sub(r"\b(FULL_SHARD|SHARD_GRAD_OP|NO_SHARD|HYBRID_SHARD)\b", "", row.framework)
    texts = (
        row.source, row.gpu, " ".join(framework.split()), parts.model.architecture, sizes,
        parts.software.precision, parts.software.runtime, f"{parts.machine.devices} devices",
        f"{parts.strategy.global_batch} samples",
    )  # fmt: skip
    return "; ".join(texts)
