"""Packages that take images and give what is asked: from compiling to streams."""

from __future__ import annotations

import io
import json
import os
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.images.reader import ImageReader
from slipstream.infer.package.package import read
from slipstream.infer.run.sharing import Sharing, fastest_sharing

READER = ImageReader(size=9, height=8, width=8, channels=3)


@pytest.fixture(scope="module", params=["onnxruntime", "native"])
def package(request, net, tmp_path_factory):
    """Return a package of a small classifier of images, which returns its three best classes."""
    path = tmp_path_factory.mktemp("images") / "model.slip"
    model = to_model(net).SerializeToString()
    options = {"seconds": 1, "threads": 1, "engines": (request.param,)}
    infer.compile(model, path, infer.CompileOptions(pixels=True, top=3, **options))
    return path


@pytest.fixture
def model(package):
    with infer.load(package) as model:
        yield model


def pixels(seed=0, rows=20, columns=30):
    return np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), np.uint8)


def file_of(seed=0, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels(seed)).save(file, kind)
    return file.getvalue()


def same(found, expected):
    assert list(found) == ["labels", "scores"]
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_manifest_says_what_goes_in_and_out(model):
    (image,), outputs = model.manifest.inputs, model.manifest.outputs
    assert (image.dtype, image.shape) == ("uint8", (1, 8, 8, 3))
    assert [(item.name, item.dtype, item.shape) for item in outputs] == [
        ("labels", "int64", (1, 3)),
        ("scores", "float32", (1, 3)),
    ]
    assert model.manifest.images.model_dump() == {"input": "image", "size": 9}


def test_files_images_and_pixels_give_the_same(model):
    expected = model(READER(pixels())[None])
    for given in (READER(pixels()), pixels(), file_of(), bytearray(file_of()), [file_of()]):
        same(model(given), expected)
        same(model(image=given), expected)
    same(model.submit(file_of()).result(), expected)
    same(model.batch([file_of()])[0], expected)


def test_results_are_those_of_the_model_itself(model, net):
    plain = ENGINES["onnxruntime"].prepare(net, Recipe(engine="onnxruntime"), 1)
    numbers = (READER(pixels()) / 255 - infer.ImageOptions().mean) / infer.ImageOptions().std
    image = numbers.transpose(2, 0, 1)[None].astype(np.float32)
    logits = plain.run({"image": image})["logits"]
    found = model(file_of())
    order = np.argsort(-logits[0])[:3]
    assert found["labels"][0].tolist() == order.tolist()
    np.testing.assert_allclose(found["scores"][0], logits[0][order], atol=1e-2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"nothing", "Pillow cannot read the image"),
        (np.zeros((8, 8, 3), np.float32), r"'image' is float32 \(8, 8, 3\); allowed: uint8"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"shape \(2, 8, 8, 3\), and has to have"),
        ([b"", b""], "has 1 images, and 2 are given"),
        ("image.jpg", "builtins.str"),
    ],
)
def test_what_is_no_image_is_refused(model, given, message):
    with pytest.raises(UsageError, match=message):
        model(given)


@pytest.mark.slow("compiled model of images")
def test_models_of_several_images_take_a_list(build, tmp_path):
    graph = build("(float[2,3,8,8] x) => (float[2,3,8,8] y) { y = Relu(x) }")
    path = tmp_path / "model.slip"
    options = infer.ImageOptions(mean=(0.0,), std=(1.0,))
    infer.compile(
        to_model(graph).SerializeToString(),
        path,
        infer.CompileOptions(
            pixels=True, images=options, seconds=1, threads=1, engines=("onnxruntime",)
        ),
    )
    with infer.load(path) as model:
        found = model([file_of(1), pixels(2)])
        expected = np.stack([READER(pixels(1)), READER(pixels(2))]).transpose(0, 3, 1, 2) / 255
        np.testing.assert_allclose(found, expected, atol=1e-6)
        with pytest.raises(UsageError, match="has 2 images, and 1 are given"):
            model(file_of())


# ---- streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preload", [True, False])
def test_streams_give_what_calls_give(model, preload):
    files = [file_of(seed % 7, "JPEG") for seed in range(40)]
    expected = [model(file) for file in files]
    found = list(model.stream(iter(files), preload=preload))
    assert len(found) == 40
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def test_thousands_of_items_leave_nothing_behind(model):
    def frames():
        frame = np.zeros((8, 8, 3), np.uint8)
        for number in range(4000):
            frame[:] = number % 256  # the same array again and again, as cameras have it
            yield frame

    answers = {}
    before = threading.active_count()
    for number, found in enumerate(model.stream(frames(), depth=7)):
        right = answers.setdefault(number % 256, found["scores"].tolist())
        assert found["scores"].tolist() == right
        assert threading.active_count() <= before + max(os.cpu_count() or 2, 2) + 1
    assert len({str(each) for each in answers.values()}) > 200
    assert threading.active_count() == before


def test_bad_items_are_named_by_number(model):
    files = [file_of(), b"bad", file_of()]
    for preload in (True, False):
        with pytest.raises(infer.ItemError, match="item 1: Pillow cannot read"):
            list(model.stream(files, preload=preload))
        found = list(model.stream(files, preload=preload, errors="yield"))
        assert [isinstance(item, infer.ItemError) for item in found] == [False, True, False]


def test_results_may_be_worked_on_by_the_same_threads(model):
    files = [file_of(seed) for seed in range(5)]
    expected = [int(model(file)["labels"][0, 0]) for file in files]
    stream = model.stream(files, after=lambda found: int(found["labels"][0, 0]))
    assert list(stream) == expected


def test_streams_check_what_they_are_asked(model):
    with pytest.raises(UsageError, match="depth is 0"):
        model.stream([], depth=0)
    with pytest.raises(UsageError, match="errors 'ignore'"):
        model.stream([], errors="ignore")
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.stream([])


@pytest.mark.slow("compiled model of images")
def test_models_of_several_inputs_stream_too(build, tmp_path):
    graph = build("(float[2] a, float[2] b) => (float[2] y) { y = Sub(a, b) }")
    path = tmp_path / "model.slip"
    model = to_model(graph).SerializeToString()
    infer.compile(model, path, infer.CompileOptions(seconds=1, threads=2, engines=("onnxruntime",)))
    a, b = np.float32([3, 4]), np.float32([1, 2])
    with infer.load(path) as model:
        for item in ((a, b), {"b": b, "a": a}):
            assert [found.tolist() for found in model.stream([item] * 3)] == [[2, 2]] * 3


# ---- compiling -----------------------------------------------------------------------------------


def test_pixels_and_outputs_are_checked_before_the_search(net, tmp_path):
    model = to_model(net).SerializeToString()
    with pytest.raises(UsageError, match="top is 6; allowed: 1 to 5"):
        infer.compile(model, tmp_path / "m.slip", infer.CompileOptions(top=6))
    with pytest.raises(UsageError, match="top and boxes are both given"):
        infer.compile(
            model, tmp_path / "m.slip", infer.CompileOptions(top=1, boxes=infer.BoxOptions())
        )
    with pytest.raises(
        UsageError, match="boxes can be found in outputs of float32 in the layouts yolov5"
    ):
        infer.compile(model, tmp_path / "m.slip", infer.CompileOptions(boxes=infer.BoxOptions()))


def test_a_manifest_whose_images_are_no_input_is_refused(package, tmp_path):
    with zipfile.ZipFile(package) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    manifest["pictures"]["input"] = "sound"
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(tmp_path / "odd.slip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(UsageError, match="reads images as"):
        read(tmp_path / "odd.slip")


@pytest.mark.slow("compiled model of images")
def test_folders_calibrate_what_reads_bytes(net, tmp_path):
    for seed in range(24):
        (tmp_path / f"{seed}.png").write_bytes(file_of(seed))
    path = tmp_path / "model.slip"
    model = to_model(net).SerializeToString()
    infer.compile(
        model,
        path,
        infer.CompileOptions(data=tmp_path, pixels=True, seconds=3, threads=1, engines=("native",)),
    )
    with infer.load(path) as compiled:
        assert {item.precision for item in compiled.report.candidates} >= {"fp32", "int8"}
        assert compiled(file_of(0)).shape == (1, 5)


@pytest.mark.slow("compiled model of images")
@pytest.mark.parametrize(("count", "are_kept"), [(5, True), (4, False)])
def test_names_of_folders_are_those_of_the_classes(net, tmp_path, count, are_kept):
    for name in ("ant", "bee", "cat", "dog", "emu")[:count]:
        (tmp_path / "data" / name).mkdir(parents=True)
        for seed in range(4):
            (tmp_path / "data" / name / f"{seed}.png").write_bytes(file_of(seed))
    path = tmp_path / "model.slip"
    options = {"data": tmp_path / "data", "top": 2, "seconds": 1, "engines": ("onnxruntime",)}
    report = infer.compile(
        to_model(net).SerializeToString(), path, infer.CompileOptions(threads=1, **options)
    )
    with infer.load(path) as compiled:
        assert compiled.classes == (("ant", "bee", "cat", "dog", "emu") if are_kept else ())
        if are_kept:
            labels = compiled(np.zeros((1, 3, 8, 8), np.float32))["labels"]
            assert [compiled.classes[label] for label in labels[0]]
    assert ("there are 4 folders and 5 classes" in " ".join(report.notes)) != are_kept


def test_runs_share_the_cores_as_is_fastest(net):
    made = []

    def make(runs):
        recipe = Recipe(engine="onnxruntime", streams=runs)
        made.append(ENGINES["onnxruntime"].prepare(net, recipe, 4))
        return made[-1]

    first = Sharing(make(1), 1)
    inputs = {"image": np.zeros((1, 3, 8, 8), np.float32)}
    assert fastest_sharing(first, inputs, 1, make) is first
    found = fastest_sharing(first, inputs, 4, make)
    assert found.runs in (1, 2, 4)
    assert (found is first) == (found.runs == 1)
    assert found.executable.run(inputs)["logits"].shape == (1, 5)
    for executable in made:
        executable.close()
