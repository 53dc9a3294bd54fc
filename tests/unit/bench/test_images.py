"""The benchmark of pictures: what it is given, its pipelines and its tables."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("torch")

from PIL import Image
from rich.console import Console

from slipstream.bench.images.contenders import CONTENDERS
from slipstream.bench.images.files import photograph, write_photographs
from slipstream.bench.images.measure import BARS, ImageRow, ImagesReport, ImagesSpec
from slipstream.bench.images.pipelines import MEAN, STD, prefetched, prepare
from slipstream.bench.images.process import single_turn, stream_turn
from slipstream.bench.images.table import as_json, caption, tables
from slipstream.errors import UsageError
from slipstream.infer.images.reader import ImageOptions, ImageReader


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"models": ("bert_base",)}, "bert_base.*allowed: resnet50"),
        ({"models": ()}, "allowed: resnet50"),
        ({"tasks": ("video",)}, "'video'; allowed: latency, stream"),
        ({"rounds": 0}, "rounds is 0"),
        ({"seconds": 0}, "seconds 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        ImagesSpec(**wrong)


def test_files_are_as_large_as_photographs_and_the_same_each_time(tmp_path):
    paths = write_photographs(tmp_path, 3, 7)
    sizes = [path.stat().st_size for path in paths]
    assert all(45_000 < size < 70_000 for size in sizes)
    again = write_photographs(tmp_path / "again", 3, 7)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
    assert photograph(7).shape == (375, 500, 3)
    assert len({path.read_bytes() for path in paths}) == 3


@pytest.fixture
def files(tmp_path):
    return [path.read_bytes() for path in write_photographs(tmp_path, 2, 0)]


def test_peers_and_ours_see_the_same_picture(files):
    found = prepare(files[0])
    assert (found.dtype, found.shape) == (np.float32, (1, 3, 224, 224))
    pixels = ImageReader.of(ImageOptions(), 224, 224, 3)(files[0])
    ours = ((pixels / np.float32(255) - MEAN) / STD).transpose(2, 0, 1)[None]
    assert np.abs(found - ours).max() <= 1.01 / 255 / STD.min()


def test_files_that_areprefetched_keep_their_order(files):
    small = [io.BytesIO() for _ in range(6)]
    for number, file in enumerate(small):
        Image.new("RGB", (8, 8), (number * 40, 0, 0)).save(file, "PNG")
    reds = [float(image[0, 0, 0, 0]) for image in prefetched(file.getvalue() for file in small)]
    assert reds == sorted(reds)
    assert len(set(reds)) == 6


def test_turns_time_every_picture_or_the_stream(files):
    seen = []

    def stream(given):
        for data in given:
            seen.append(data)
            yield len(seen)

    taken, cpu_seconds = single_turn(stream, files, 1e-4)
    assert len(taken) == len(seen) - 2 > 0
    assert cpu_seconds >= 0
    (mean,), cpu_seconds = stream_turn(stream, files, 1e-4)
    assert mean > 0
    assert cpu_seconds >= 0


def report_of(**seconds):
    spec = ImagesSpec(models=("resnet50",), tasks=("latency",))
    rows = [
        ImageRow(
            model="resnet50",
            contender=name,
            seconds=(second, second * 1.5, second * 2),
            cpu_seconds=second,
            agreement=0.9,
            load_seconds=0.1,
            detail="native int8" if name == "latency-ours" else "",
        )
        for name, second in seconds.items()
    ]
    return ImagesReport(spec=spec, rows=tuple(rows), notes=("left out",))


def test_ours_is_held_against_the_best_plain_pipeline():
    seconds = {"latency-ort-int8-serial-0": 0.03, "latency-openvino-int8-serial-0": 0.024}
    report = report_of(**seconds, **{"latency-ours": 0.02})
    (bar,) = report.bars()
    assert (bar.peer.contender, bar.at_least) == ("latency-openvino-int8-serial-0", 1.15)
    assert bar.ratio == pytest.approx(1.2)
    content = as_json(report)
    assert content["bars"][0]["ratio"] == pytest.approx(1.2)
    console = Console(file=io.StringIO(), width=120)
    for table in tables(report):
        console.print(table)
    console.print(caption(report))
    text = console.file.getvalue()
    assert "Slipstream: native int8" in text
    assert "yes" in text


def test_every_promise_is_of_contenders_that_there_are():
    assert {task for _, task in BARS} == {"latency", "stream"}
    for task in ("latency", "stream"):
        assert CONTENDERS[f"{task}-ours"].is_ours
        assert any(each.is_plain for each in CONTENDERS.values() if each.task == task)
