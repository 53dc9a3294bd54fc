"""What the table of published measurements leaves out is guessed as its sources usually do."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from slipstream.forecast.validate.table import COLUMNS, Case, read

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


def case_of(path: Path, **columns: str) -> Case:
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
def test_a_batch_of_pictures_follows_the_memory(tmp_path: Path, gpu: str, full: int, half: int):
    for precision, batch in (("FP32", full), ("FP16", half)):
        case = case_of(tmp_path, gpu=gpu, model=f"ResNet-50 v1.5 {precision}")
        assert case.strategy.micro_batch == batch
        assert "batch" in case.assumed
