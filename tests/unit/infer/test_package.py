"""Packages: what is written is read, and whatever else is there is refused in words."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from slipstream import _kernels as kernels
from slipstream.errors import UsageError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Graph, Node, Value
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.native.formats import Weights
from slipstream.infer.package.members import MANIFEST
from slipstream.infer.package.package import read, write
from slipstream.infer.package.small_constants import compress_constants, restore_constants
from slipstream.infer.package.stored_graph import (
    ALIGNMENT,
    LARGEST_FILE,
    WEIGHTS,
    graph_files,
    read_graph,
)
from slipstream.infer.rewrites import optimise


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def whole(path):
    """Return a package after reading every member of it."""
    package = read(path)
    assert package.graph.nodes
    return package


def files_of(graph):
    """Return the files that `graph_files` writes, each in one piece."""
    return {name: b"".join(pieces) for name, pieces in graph_files(graph, "m").items()}


def again(graph):
    """Return a graph after writing and reading it."""
    files = {name: np.frombuffer(data, np.uint8) for name, data in files_of(graph).items()}
    return read_graph(files.pop("m").tobytes(), files, "it")


@pytest.fixture
def members(compiled):
    return members_of(compiled)


@pytest.fixture
def altered(compiled, tmp_path):
    """Return the package with another manifest."""

    def alter(**changes):
        members = members_of(compiled)
        manifest = {**json.loads(members[MANIFEST]), **changes}
        return zipped(tmp_path / "altered.slip", {**members, MANIFEST: json.dumps(manifest)})

    return alter


# ---- what is right -------------------------------------------------------------------------------


def test_what_is_written_is_read(compiled, tmp_path):
    package = read(compiled)
    write(tmp_path / "again.slip", package)
    found = whole(tmp_path / "again.slip")
    assert found.report == package.report
    assert found.manifest.recipe == package.manifest.recipe
    assert files_of(found.graph) == files_of(package.graph)
    np.testing.assert_array_equal(found.check.outputs["logits"], package.check.outputs["logits"])


def test_the_same_package_is_the_same_file(compiled, tmp_path):
    package = read(compiled)
    for name in ("a.slip", "b.slip"):
        write(tmp_path / name, package)
    assert (tmp_path / "a.slip").read_bytes() == (tmp_path / "b.slip").read_bytes()


def test_its_members_are_stored_as_they_are_and_open_in_other_tools(compiled, members, tmp_path):
    with zipfile.ZipFile(compiled) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    manifest = json.loads(members[MANIFEST])
    assert manifest["graph"] in ("model.onnx", "source.onnx")
    with zipfile.ZipFile(compiled) as archive:
        archive.extractall(tmp_path)
    model = onnx.load(tmp_path / manifest["graph"])
    onnx.checker.check_model(model, full_check=True)
    arrays = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    for name, array in read(compiled).graph.constants.items():
        np.testing.assert_array_equal(arrays[name], array)
    assert "weights-0.bin" in members
    assert json.loads(members["report.json"])["candidates"]
    # People read both: an entry a line.
    assert all(members[name].startswith(b'{\n "') for name in ("report.json", "manifest.json"))


def test_the_manifest_says_what_the_model_takes_and_how_accurate_it_is(compiled):
    manifest = read(compiled).manifest
    (item,) = manifest.inputs
    assert (item.name, item.dtype, item.shape) == ("image", "float32", (1, 3, 8, 8))
    assert manifest.accuracy.snr_db > 90
    assert manifest.machine.cores > 0


def test_operators_of_ours_go_through_the_file(net):
    graph, _ = optimise(net)
    found = again(graph)
    assert [(node.domain, node.op) for node in found.nodes] == [
        (node.domain, node.op) for node in graph.nodes
    ]
    assert {name: graph.shape(name) for name in graph.values} == {
        name: found.shape(name) for name in graph.values
    }


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "uint8"])
def test_large_constants_of_any_dtype_go_through_files(random, dtype):
    arrays = {
        name: (random.standard_normal(shape) * 50).astype(dtype)
        for name, shape in {"a": (2000,), "b": (3, 401), "c": (1,), "d": (5, 7, 41)}.items()
    }
    nodes = [Node("Identity", [name], [f"{name}2"]) for name in arrays]
    graph = Graph({}, ["a2"], nodes, arrays, opsets={"": 17})
    graph.values["a2"] = Value(np.dtype(dtype), (2000,))
    assert files_of(graph).keys() == {"m", "weights-0.bin"}
    found = again(graph)
    assert found.constants.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.constants[name].dtype == array.dtype
        np.testing.assert_array_equal(found.constants[name], array)
        assert array.size < 1024 or found.constants[name].ctypes.data % min(array.itemsize, 8) == 0


def test_constants_that_are_no_numbers_stay_in_the_model():
    arrays = {"a": np.array(["x"] * 2000, object), "b": np.ones(2000, np.float32)}
    nodes = [Node("Identity", [name], [f"{name}2"]) for name in arrays]
    graph = Graph({}, ["b2"], nodes, arrays, opsets={"": 17})
    graph.values["b2"] = Value(np.dtype(np.float32), (2000,))
    found = again(graph)
    assert list(found.constants["a"][:2].astype(str)) == ["x", "x"]
    assert len(files_of(graph)["weights-0.bin"]) == 8000


def test_weights_are_in_files_of_some_size():
    count = LARGEST_FILE // 2 // 4
    arrays = {f"w{at}": np.full(count - at % 2, at, np.float32) for at in range(5)}
    nodes = [Node("Identity", [name], [f"{name}2"]) for name in arrays]
    graph = Graph({}, ["w02"], nodes, arrays, opsets={"": 17})
    graph.values["w02"] = Value(np.dtype(np.float32), (count,))
    files = files_of(graph)
    assert files.keys() == {"m", *(f"weights-{at}.bin" for at in range(3))}
    assert len(files["m"]) < 2000
    assert all(
        len(data) <= LARGEST_FILE and len(data) % ALIGNMENT == 0
        for name, data in files.items()
        if name != "m"
    )
    assert all((array == int(name[1:])).all() for name, array in again(graph).constants.items())


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float16"])
def test_weights_are_written_as_the_engine_reads_them(compiled, tmp_path, net, dtype):
    graph, _ = optimise(net)
    weights = next(n.inputs[1] for n in graph.nodes if n.op == "Conv")
    package = replace(read(compiled), make_graph=lambda: graph, small={weights: Small(dtype=dtype)})
    write(tmp_path / "small.slip", package)
    whole, found = graph.constants[weights], read(tmp_path / "small.slip").graph
    rounded = found.constants[weights]
    room = np.abs(whole).max(axis=(1, 2, 3), keepdims=True) / 256
    if dtype == "int8":
        room = Weights.quantise(whole).scale[:, None, None, None] / 2
    assert (rounded.dtype, rounded.shape) == (whole.dtype, whole.shape)
    assert np.abs(rounded - whole).max() > 0
    assert (np.abs(rounded - whole) <= room + 1e-7).all()
    assert {n.op for n in found.nodes} == {n.op for n in graph.nodes}
    assert found.constants.keys() == graph.constants.keys()
    write(tmp_path / "again.slip", replace(package, make_graph=lambda: found))
    found = read(tmp_path / "again.slip").graph.constants[weights]
    # A scale by the sum of two numbers is the same but for that sum's last bit.
    np.testing.assert_allclose(found, rounded, rtol=1e-6 if kernels.adds_pairs() else 0)


def test_weights_with_two_readers_stay_whole(net):
    graph, _ = optimise(net)
    node = next(node for node in graph.nodes if node.op == "Conv")
    graph.nodes.append(replace(node, outputs=["second"]))
    assert (
        compress_constants(graph, {node.inputs[1]: Small(dtype="int8")}).constants
        == graph.constants
    )
    assert compress_constants(graph, {"none": Small(dtype="int8")}).nodes == graph.nodes


def test_weights_take_no_names_that_there_are(net):
    graph, _ = optimise(net)
    node = next(node for node in graph.nodes if node.op == "Conv")
    taken = f"{node.inputs[1]}:scale"
    graph.constants[taken] = np.full(7, 3, np.float32)
    graph.nodes.append(Node("Relu", [taken], ["other"]))
    back = restore_constants(compress_constants(graph, {node.inputs[1]: Small(dtype="int8")}))
    assert back.constants.keys() == graph.constants.keys()
    assert np.array_equal(back.constants[taken], graph.constants[taken])


@pytest.mark.parametrize(
    "change",
    [
        {"scale": np.ones(3, np.float32)},
        {"scale": np.ones((4, 1), np.float32)},
        {"numbers": np.ones((4, 2), np.float32)},
        {"axis": 2},
        {"axis": -1},
        {"name": "other"},
    ],
)
def test_what_only_looks_like_small_weights_stays(change):
    given = {"numbers": np.ones((4, 2), np.int8), "scale": np.ones(4, np.float32), "axis": 0}
    name = change.pop("name", "slipstream:small:w")
    given |= change
    node = Node("DequantizeLinear", ["n", "s"], ["w"], {"axis": given.pop("axis")}, name=name)
    constants = {"n": given["numbers"], "s": given["scale"]}
    graph = Graph({}, ["w"], [node], constants, opsets={"": 17})
    assert restore_constants(graph).nodes == [node]
    assert restore_constants(graph).constants == constants


def test_a_file_that_cannot_be_written_leaves_nothing_behind(compiled, tmp_path):
    (tmp_path / "folder.slip").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write(tmp_path / "folder.slip", read(compiled))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.slip"]


# ---- what is wrong -------------------------------------------------------------------------------


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="does not exist; make it with slipstream compile"):
        read(tmp_path / "no.slip")


def test_a_folder(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\3\4" + bytes(100), bytes(10_000)])
def test_a_file_that_is_no_zip(tmp_path, data):
    (tmp_path / "no.slip").write_bytes(data)
    with pytest.raises(UsageError, match="no package of Slipstream"):
        read(tmp_path / "no.slip")


def test_a_zip_of_something_else(tmp_path):
    path = zipped(tmp_path / "other.zip", {"readme.txt": b"hello"})
    with pytest.raises(UsageError, match=r"no package of Slipstream: it has no manifest\.json"):
        read(path)


def test_a_newer_format(altered):
    with pytest.raises(UsageError, match=r"format 99.*newer version: install that"):
        read(altered(format=99))


def test_an_older_format_that_is_not_understood(altered, members):
    """Recipes of format 1 had `floats` and `options`."""
    recipe = {**json.loads(members[MANIFEST])["recipe"], "floats": [], "options": {}}
    with pytest.raises(UsageError, match=r"format 1 of an older version.*compile the model again"):
        read(altered(format=1, recipe=recipe))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "one"},
        {"format": -1},
        {"threads": 0},
        {"graph": "../model.onnx"},
        {"recipe": {"engine": "native", "precision": "int4"}},
        {"recipe": {"engine": "native", "run": "rm -rf /"}},
        {"inputs": [{"name": "image", "dtype": "float32", "shape": [1, 3, 8, 9]}]},
        {"outputs": []},
        {"more": "than is known"},
    ],
)
def test_a_manifest_that_is_wrong(altered, changes):
    with pytest.raises(UsageError, match="damaged, or was made by something else"):
        read(altered(**changes))


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_no_manifest(members, tmp_path, text):
    path = zipped(tmp_path / "bad.slip", {**members, MANIFEST: text})
    with pytest.raises(UsageError, match=r"manifest\.json"):
        read(path)


@pytest.mark.parametrize("name", ["report.json", "check.npz", "graph", "weights-0.bin"])
def test_a_member_that_is_missing_or_other(members, tmp_path, name):
    name = json.loads(members[MANIFEST]).get(name, name)
    lacking = {key: data for key, data in members.items() if key != name}
    with pytest.raises(UsageError, match=f"lacks {name}"):
        read(zipped(tmp_path / "bad.slip", lacking))
    longer = {**members, name: members[name] + b"x"}
    with pytest.raises(UsageError, match=f"{name} has .* bytes, and should have"):
        read(zipped(tmp_path / "bad.slip", longer))
    other = {**members, name: members[name][:-1] + bytes([members[name][-1] ^ 1])}
    with pytest.raises(UsageError, match=f"{name} has another SHA-256"):
        whole(zipped(tmp_path / "bad.slip", other))


def test_what_is_read_later_is_of_the_file_that_there_was(compiled, tmp_path):
    path = tmp_path / "model.slip"
    path.write_bytes(compiled.read_bytes())
    package = read(path)
    longer = package.report.model_copy(update={"choice": "it was longer" * 99})
    write(tmp_path / "other.slip", replace(package, report=longer))
    (tmp_path / "other.slip").replace(path)
    assert files_of(package.graph) == files_of(read(compiled).graph)
    path.unlink()
    assert files_of(package.graph)


def test_a_package_that_has_what_openvino_compiled_is_read(members, tmp_path):
    """Earlier versions stored that as well."""
    manifest = json.loads(members[MANIFEST])
    manifest["members"]["blobs/a.blob"] = {"size": 3, "sha256": _sha256(b"abc")}
    old = {**members, "blobs/a.blob": b"abc", MANIFEST: json.dumps(manifest)}
    assert files_of(whole(zipped(tmp_path / "old.slip", old)).graph)


@pytest.mark.parametrize("number", [1, 2])
def test_a_package_that_has_its_weights_in_the_graph_is_read(compiled, members, number, tmp_path):
    """The formats before 3 stored them there."""
    graph = read(compiled).graph
    manifest = json.loads(members[MANIFEST])
    name = manifest["graph"]
    kept = {key: data for key, data in members.items() if not key.startswith(WEIGHTS)}
    kept[name] = to_model(graph).SerializeToString()
    listed = {key: item for key, item in manifest["members"].items() if key in kept}
    listed[name] = {"size": len(kept[name]), "sha256": _sha256(kept[name])}
    kept[MANIFEST] = json.dumps({**manifest, "format": number, "members": listed})
    assert len(kept) < len(members)
    old = whole(zipped(tmp_path / "old.slip", kept)).graph
    assert files_of(old) == files_of(graph)


def test_a_member_that_the_manifest_does_not_name(members, tmp_path):
    path = zipped(tmp_path / "bad.slip", {**members, "extra.bin": b"x"})
    with pytest.raises(UsageError, match=r"does not name extra\.bin"):
        read(path)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "blobs/../x", "a/b", "blobs/", "x\\y", "."]
)
def test_names_that_lead_elsewhere(members, tmp_path, name):
    path = zipped(tmp_path / "bad.slip", {**members, name: b"x"})
    with pytest.raises(UsageError, match="no member of a package is called"):
        read(path)


def test_a_compressed_member_cannot_swell(members, tmp_path):
    bomb = {**members, "blobs/bomb": bytes(10_000_000)}
    path = zipped(tmp_path / "bad.slip", bomb, zipfile.ZIP_DEFLATED)
    with pytest.raises(UsageError, match="compressed"):
        read(path)


def test_two_members_of_one_name(compiled, members, tmp_path):
    path = tmp_path / "bad.slip"
    path.write_bytes(compiled.read_bytes())
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("report.json", members["report.json"])
    with pytest.raises(UsageError, match="the same name"):
        read(path)


def test_a_manifest_of_which_a_digit_was_changed(compiled, tmp_path):
    data = compiled.read_bytes()
    at = data.index(b'"threads": 1')
    path = tmp_path / "bad.slip"
    path.write_bytes(data[:at] + b'"threads": 2' + data[at + 12 :])
    with pytest.raises(UsageError, match=r"manifest\.json has another CRC"):
        read(path)


@pytest.mark.parametrize("more", [1000, 2**31])
def test_a_directory_that_is_elsewhere(compiled, tmp_path, more):
    data = bytearray(compiled.read_bytes())
    at = len(data) - 22 + 16  # in the end record: where the directory begins
    start = int.from_bytes(data[at : at + 4], "little") + more
    data[at : at + 4] = start.to_bytes(4, "little")
    path = tmp_path / "bad.slip"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"bad\.slip"):
        whole(path)


def test_members_in_one_place(compiled, members, tmp_path):
    names = [f"weights-{at}.bin" for at in range(100, 120)]
    size = len(members["weights-0.bin"])
    path = zipped(tmp_path / "bad.slip", {**members, **dict.fromkeys(names, b"")})
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
        first = archive.getinfo("weights-0.bin").header_offset
    data = bytearray(path.read_bytes())
    for name in names:
        at = data.index(name.encode(), start) - 46
        data[at + 20 : at + 28] = size.to_bytes(4, "little") * 2
        data[at + 42 : at + 46] = first.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UsageError, match="more bytes than it has itself"):
        read(path)


def test_sizes_that_lie(compiled, tmp_path):
    with zipfile.ZipFile(compiled) as archive:
        (info,) = (each for each in archive.infolist() if each.filename == "check.npz")
        data = bytearray(compiled.read_bytes())
        start = archive.start_dir
    at = data.index(b"check.npz", start) - 46
    for field in (20, 24):  # compressed and whole size in the directory
        data[at + field : at + field + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "bad.slip").write_bytes(data)
    assert info.file_size < 2**31
    with pytest.raises(UsageError, match="claims 2147483648 bytes"):
        read(tmp_path / "bad.slip")


def test_pickles_stay_pickles(members, tmp_path):
    file = io.BytesIO()
    np.savez(file, names=np.array([{}], dtype=object))
    data = file.getvalue()
    manifest = json.loads(members[MANIFEST])
    manifest["members"]["check.npz"] = {"size": len(data), "sha256": _sha256(data)}
    bad = {**members, "check.npz": data, MANIFEST: json.dumps(manifest)}
    with pytest.raises(UsageError, match=r"check\.npz"):
        read(zipped(tmp_path / "bad.slip", bad))


def test_no_other_file_is_read(net):
    files = files_of(net)
    model = onnx.load_model_from_string(files["m"])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value="passwd")
    with pytest.raises(UsageError, match="in another file"):
        read_graph(model.SerializeToString(), {}, "it")


def test_numbers_of_an_attribute_in_another_file_are_refused(net):
    model = onnx.load_model_from_string(files_of(net)["m"])
    del model.graph.initializer[:]
    made = onnx.TensorProto(name="t", dims=[2], data_type=1, data_location=1)
    made.external_data.add(key="location", value="weights-0.bin")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["t"], value=made))
    with pytest.raises(UsageError, match="which is not read"):
        read_graph(model.SerializeToString(), {"weights-0.bin": np.zeros(8, np.uint8)}, "it")


@pytest.mark.parametrize(
    "place",
    [
        {"offset": "-64"},
        {"offset": "10000000"},
        {"offset": "x"},
        {"offset": "4"},
        {"length": "4"},
        {"length": "99999999"},
        {"length": None},
        {"dims": [-1, 1]},
        {"dims": [2**62, 4]},
        {"data_type": 8},
        {"data_type": 77},
    ],
    ids=str,
)
def test_places_of_numbers_that_are_wrong(net, place):
    files = {name: np.frombuffer(data, np.uint8) for name, data in files_of(net).items()}
    model = onnx.load_model_from_string(files.pop("m").tobytes())
    item = next(item for item in model.graph.initializer if item.external_data)
    for key, value in place.items():
        if key == "dims":
            item.dims[:] = value
        elif key == "data_type":
            item.data_type = value
        else:
            entries = {entry.key: entry.value for entry in item.external_data} | {key: value}
            del item.external_data[:]
            for each, text in entries.items():
                if text is not None:
                    item.external_data.add(key=each, value=text)
    with pytest.raises(UsageError, match=r"^it: "):
        read_graph(model.SerializeToString(), files, "it")


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


def _graph_or_refusal(path):
    try:
        return files_of(whole(path).graph)
    except UsageError as error:
        return "refused" if str(path) in str(error) else str(error)


def test_truncated_files(compiled, tmp_path, random):
    right = compiled.read_bytes()
    path = tmp_path / "bad.slip"
    for length in random.integers(0, len(right), 40):
        path.write_bytes(right[:length])
        with pytest.raises(UsageError):
            read(path)


def test_flipped_bytes(compiled, tmp_path, random):
    """Every change is found, except in fields of the zip file that nobody reads."""
    data = compiled.read_bytes()
    path = tmp_path / "bad.slip"
    right = files_of(read(compiled).graph)
    places = [
        *random.integers(0, len(data), 60),
        *random.integers(len(data) - 600, len(data), 60),
    ]
    for place in places:
        bad = bytearray(data)
        bad[place] ^= int(random.integers(1, 256))
        path.write_bytes(bad)
        assert _graph_or_refusal(path) in (right, "refused")
