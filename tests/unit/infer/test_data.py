"""Sample inputs from folders, files, loaders and iterables."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from slipstream.errors import UsageError
from slipstream.infer.data import load_data
from slipstream.infer.images.reader import MEAN, STD, ImageOptions
from slipstream.infer.samples import synthetic

PLAIN = ImageOptions(size=8, mean=(0.0,), std=(1.0,))


@pytest.fixture
def batch(build):
    """Return a classifier of two images at a time."""
    return build("(float[2,3,8,8] image) => (float[2,3,8,8] y) { y = Relu(image) }")


@pytest.fixture
def two(build):
    return build(
        "(float[1,3] a, int64[1,2] b) => (float[1,3] y, int64[1,2] z) { y = Relu(a) z = Neg(b) }"
    )


@pytest.fixture
def images(tmp_path):
    """Return a folder of images of one colour each, by label."""

    def make(*labels, count=2, size=(12, 10)):
        for label in labels:
            folder = tmp_path / "images" / label
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", size, (number * 50, 255, 0)).save(folder / f"{number}.png")
        return tmp_path / "images"

    return make


# ---- images ------------------------------------------------------------------------------------


def test_images_are_scaled_to_one_in_the_models_layout(net, images):
    samples = load_data(images("cat"), net, PLAIN)
    image = samples[1].inputs["image"]
    assert (image.shape, image.dtype) == ((1, 3, 8, 8), np.float32)
    np.testing.assert_allclose(image[0, :, 0, 0], [50 / 255, 1, 0], atol=1e-6)


def test_by_default_they_are_normalised_as_for_imagenet(net, images):
    image = load_data(images("cat"), net)[0].inputs["image"]
    expected = (np.array([0, 1, 0]) - MEAN) / STD
    np.testing.assert_allclose(image[0, :, 4, 4], expected, atol=1e-5)


def test_models_that_read_bytes_get_bytes(build, images):
    graph = build("(uint8[1,8,8,3] x) => (uint8[1,8,8,3] y) { y = Identity(x) }")
    image = load_data(images("cat"), graph)[1].inputs["x"]
    assert (image.shape, image.dtype) == ((1, 8, 8, 3), np.uint8)
    assert image[0, 0, 0].tolist() == [50, 255, 0]


def test_models_of_one_channel_get_grey(build, images):
    graph = build("(float[1,1,8,8] x) => (float[1,1,8,8] y) { y = Relu(x) }")
    assert load_data(images("cat"), graph)[0].inputs["x"].shape == (1, 1, 8, 8)


@pytest.mark.parametrize("size", [(8, 100), (100, 8), (3, 3), (300, 200)])
def test_images_of_any_size_fill_the_input(net, images, size):
    image = load_data(images("cat", size=size), net, PLAIN)[0].inputs["image"]
    np.testing.assert_allclose(image[0, 1], np.ones((8, 8)), atol=1e-6)


def test_folders_are_labels_in_their_order_and_by_turns(net, images):
    samples = load_data(images("dog", "cat", "ant"), net)
    assert len(samples) == 6
    assert [samples[index].labels.tolist() for index in range(6)] == [[0], [1], [2]] * 2
    assert samples.classes == ("ant", "cat", "dog")


def test_folders_that_are_numbers_are_those_labels(net, images):
    samples = load_data(images("10", "9"), net)
    assert [samples[index].labels[0] for index in range(2)] == [9, 10]
    assert samples.classes == ()


def test_images_without_folders_have_no_labels(net, images):
    samples = load_data(images("cat") / "cat", net)
    assert samples[0].labels is None
    assert samples.classes == ()


def test_a_batch_takes_several_and_leaves_the_rest_out(batch, images):
    samples = load_data(images("0", count=5), batch)
    assert len(samples) == 2
    assert samples[0].inputs["image"].shape == (2, 3, 8, 8)
    assert samples[0].labels.tolist() == [0, 0]


def test_a_file_that_is_no_image_is_named(net, images):
    folder = images("cat")
    (folder / "cat" / "9.png").write_bytes(b"no image")
    samples = load_data(folder, net)
    with pytest.raises(UsageError, match=r"9\.png: Pillow cannot read"):
        samples[2]


# ---- arrays --------------------------------------------------------------------------------------


def test_npy_files_are_samples_in_the_order_of_their_names(net, tmp_path):
    for number in (1, 0):
        np.save(tmp_path / f"{number}.npy", np.full((3, 8, 8), number, np.float32))
    samples = load_data(tmp_path, net)
    assert [samples[index].inputs["image"][0, 0, 0, 0] for index in range(2)] == [0, 1]


def test_npz_files_name_the_inputs_and_the_label(two, tmp_path):
    np.savez(tmp_path / "0.npz", a=np.ones((1, 3), "f4"), b=np.zeros((1, 2), int), label=7)
    sample = load_data(tmp_path, two)[0]
    assert (sample.inputs["a"].shape, sample.inputs["b"].dtype) == ((1, 3), np.int64)
    assert sample.labels.tolist() == [7]


def test_an_npz_file_has_a_sample_per_row(two, tmp_path):
    path = tmp_path / "all.npz"
    np.savez(path, a=np.ones((5, 3)), b=np.zeros((5, 2), np.int32), labels=np.arange(5))
    samples = load_data(path, two)
    assert len(samples) == 5
    assert samples[3].labels.tolist() == [3]
    assert {str(array.dtype) for array in samples[3].inputs.values()} == {"float32", "int64"}


def test_iterables_give_arrays_dictionaries_and_pairs(net):
    array = np.zeros((3, 8, 8), np.float32)
    items = [array, {"image": array}, (array, 4), {"image": array[None], "label": 2}]
    samples = load_data(items, net)
    assert len(samples) == 4
    assert [sample.labels for sample in (samples[0], samples[1])] == [None, None]
    assert [samples[index].labels.tolist() for index in (2, 3)] == [[4], [2]]


def test_a_loader_is_found_by_its_name(net, tmp_path, monkeypatch):
    (tmp_path / "a_loader.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    for number in range(3):\n"
        "        yield np.full((1, 3, 8, 8), number, np.float32), number\n"
    )
    monkeypatch.chdir(tmp_path)
    samples = load_data("a_loader:load", net)
    assert [samples[index].labels[0] for index in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "there is no sample"),
        ([np.zeros((4, 4), "f4")], r"shape \(1, 3, 8, 8\), and a sample has \(4, 4\)"),
        ([np.zeros((3, 8, 8), int)], "is float32, and a sample is int64"),
        ([{"picture": np.zeros(3), "more": 1}], "has picture, more, and lacks the input 'image'"),
        (3, "the data is a int; allowed: an iterable of samples"),
        ("no_such_module:load", "no_such_module"),
        ("/no/such/folder", "is no data; allowed: a folder of images"),
    ],
)
def test_data_that_does_not_suit_is_refused(net, source, message):
    with pytest.raises(UsageError, match=message):
        load_data(source, net)[0]


def test_broken_and_pickled_arrays_are_refused(net, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"no array")
    with pytest.raises(UsageError, match=r"a\.npy: NumPy cannot read"):
        load_data(tmp_path, net)
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object))
    with pytest.raises(UsageError, match="allow_pickle"):
        load_data(tmp_path, net)


def test_a_folder_of_nothing_is_refused(net, tmp_path):
    with pytest.raises(UsageError, match="there are no images"):
        load_data(tmp_path, net)


# ---- random inputs -------------------------------------------------------------------------------


def test_random_inputs_are_the_same_each_time_and_differ_from_one_another(net):
    first, second = synthetic(net, 2)[0].inputs["image"], synthetic(net, 2)[1].inputs["image"]
    np.testing.assert_array_equal(first, synthetic(net, 2)[0].inputs["image"])
    assert (first != second).any()


def test_random_indices_stay_inside_their_table(build, random):
    graph = build(
        "(int64[1,200] ids) => (float[1,200,4] y) { y = Gather(table, ids) }",
        table=random.standard_normal((7, 4)),
    )
    ids = synthetic(graph, 1)[0].inputs["ids"]
    assert set(ids.ravel()) == set(range(7))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(4)[[0, 1, 2]], r"labels are float64 \(3, 4\); allowed: integers"),
        (np.array(["cat", "dog", "emu"]), "labels are <U3"),
        (np.array([0.5, 1.5, 2.5]), "labels are float64"),
        (np.arange(7), r"no common number of rows: .*labels \(7,\)"),
    ],
)
def test_labels_of_a_file_are_whole_numbers_one_a_row(net, tmp_path, labels, message):
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 3, 8, 8), np.float32), labels=labels)
    with pytest.raises(UsageError, match=message):
        load_data(tmp_path / "d.npz", net)


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        (
            "open",
            "the loader loaders_of_mine:open raised FileNotFoundError",
        ),  # before the first item
        ("second", "the data of loaders_of_mine:second raised ZeroDivisionError"),  # at a later one
    ],
)
def test_what_a_loader_raises_is_shown_with_its_own_lines(net, tmp_path, monkeypatch, loader, told):
    (tmp_path / "loaders_of_mine.py").write_text(
        "import numpy as np\n"
        "def open():\n"
        "    return list(__builtins__['open']('/is/not/there'))\n"
        "def second():\n"
        "    yield np.zeros((1, 2), np.float32)\n"
        "    yield np.zeros((1, 2), np.float32) + 1 // 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=told) as caught:
        load_data(f"loaders_of_mine:{loader}", net)
    assert "loaders_of_mine.py" in str(caught.value)
    assert "infer/data.py" not in str(caught.value)


@pytest.mark.parametrize("label", [[0, 1, 0], 0.7, "cat", np.nan])
def test_labels_of_a_loader_are_whole_numbers(net, label):
    with pytest.raises(UsageError, match=r"a label is .*; allowed: one whole number"):
        load_data([(np.zeros((3, 8, 8), np.float32), label)], net)


def test_a_file_that_was_cut_off_is_said_to_be(net, tmp_path):
    np.savez(tmp_path / "whole.npz", x=np.zeros((3, 3, 8, 8), np.float32))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:300])
    with pytest.raises(UsageError, match=r"cut\.npz: NumPy cannot read it"):
        load_data(tmp_path / "cut.npz", net)
