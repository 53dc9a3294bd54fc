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

from slipstream import _kernels as kernels
from slipstream.errors import UsageError
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph import Graph, Node
from slipstream.infer.native.formats import Weights
from slipstream.infer.package import MANIFEST, read, read_manifest, write
from slipstream.infer.rewrites import optimise
from slipstream.infer.small_constants import made_small, made_whole
from slipstream.infer.stored_graph import graph_bytes, read_graph


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def members(compiled):
    return members_of(compiled)


@pytest.fixture
def altered(compiled, tmp_path):
    """The package with another manifest."""

    def alter(**changes):
        members = members_of(compiled)
        manifest = {**json.loads(members[MANIFEST]), **changes}
        return zipped(tmp_path / "altered.slip", {**members, MANIFEST: json.dumps(manifest)})

    return alter


# ---- what is right -------------------------------------------------------------------------------


def test_what_is_written_is_read(compiled, tmp_path):
    package = read(compiled)
    again = replace(package, blobs={"cache.blob": b"\0\1\2"})
    write(tmp_path / "again.slip", again)
    found = read(tmp_path / "again.slip")
    assert found.blobs == {"cache.blob": b"\0\1\2"}
    assert found.report == package.report
    assert found.manifest.recipe == package.manifest.recipe
    assert graph_bytes(found.graph) == graph_bytes(package.graph)
    np.testing.assert_array_equal(found.check.outputs["logits"], package.check.outputs["logits"])


def test_the_same_package_is_the_same_file(compiled, tmp_path):
    package = read(compiled)
    for name in ("a.slip", "b.slip"):
        write(tmp_path / name, package)
    assert (tmp_path / "a.slip").read_bytes() == (tmp_path / "b.slip").read_bytes()


def test_its_members_are_stored_as_they_are_and_open_in_other_tools(compiled, members):
    with zipfile.ZipFile(compiled) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.testzip() is None
    manifest = json.loads(members[MANIFEST])
    assert manifest["graph"] in ("model.onnx", "source.onnx")
    onnx.checker.check_model(onnx.load_model_from_string(members[manifest["graph"]]))
    assert json.loads(members["report.json"])["candidates"]


def test_the_manifest_says_what_the_model_takes_and_how_accurate_it_is(compiled):
    manifest = read_manifest(compiled)
    (item,) = manifest.inputs
    assert (item.name, item.dtype, item.shape) == ("image", "float32", (1, 3, 8, 8))
    assert manifest.accuracy.snr_db > 90
    assert manifest.machine.cores > 0


def test_operators_of_ours_go_through_the_file(net):
    graph, _ = optimise(net)
    again = read_graph(graph_bytes(graph), "it")
    assert [(node.domain, node.op) for node in again.nodes] == [
        (node.domain, node.op) for node in graph.nodes
    ]
    assert {name: graph.shape(name) for name in graph.values} == {
        name: again.shape(name) for name in graph.values
    }


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
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
    again = replace(package, make_graph=lambda: found)
    write(tmp_path / "again.slip", again)
    found = read(tmp_path / "again.slip").graph.constants[weights]
    # A scale by the sum of two numbers is the same but for that sum's last bit.
    np.testing.assert_allclose(found, rounded, rtol=1e-6 if kernels.adds_pairs() else 0)


def test_weights_with_two_readers_stay_whole(net):
    graph, _ = optimise(net)
    node = next(node for node in graph.nodes if node.op == "Conv")
    graph.nodes.append(replace(node, outputs=["second"]))
    assert made_small(graph, {node.inputs[1]: Small(dtype="int8")}).constants == graph.constants
    assert made_small(graph, {"none": Small(dtype="int8")}).nodes == graph.nodes


def test_weights_take_no_names_that_there_are(net):
    graph, _ = optimise(net)
    node = next(node for node in graph.nodes if node.op == "Conv")
    taken = f"{node.inputs[1]}:scale"
    graph.constants[taken] = np.full(7, 3, np.float32)
    graph.nodes.append(Node("Relu", [taken], ["other"]))
    again = made_whole(made_small(graph, {node.inputs[1]: Small(dtype="int8")}))
    assert again.constants.keys() == graph.constants.keys()
    assert np.array_equal(again.constants[taken], graph.constants[taken])


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
    assert made_whole(graph).nodes == [node]
    assert made_whole(graph).constants == constants


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


@pytest.mark.parametrize("name", ["report.json", "check.npz", "graph"])
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
        read(zipped(tmp_path / "bad.slip", other))


def test_a_member_that_the_manifest_does_not_name(members, tmp_path):
    path = zipped(tmp_path / "bad.slip", {**members, "extra.bin": b"x"})
    with pytest.raises(UsageError, match=r"does not name extra\.bin"):
        read(path)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "blobs/../x", "a/b", "blobs/", "x\\y", "."]
)
def test_names_that_lead_elsewhere(members, tmp_path, name):
    path = zipped(tmp_path / "bad.slip", {**members, name: b"x"})
    with pytest.raises(UsageError, match="as none of a package is"):
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
    model = onnx.load_model_from_string(graph_bytes(net))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="passwd")
    with pytest.raises(UsageError, match="in another file"):
        read_graph(model.SerializeToString(), "it")


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


def _graph_or_refusal(path):
    try:
        return graph_bytes(read(path).graph)
    except UsageError as error:
        return "refused" if str(path) in str(error) else str(error)


def test_truncated_files(compiled, tmp_path, random):
    whole = compiled.read_bytes()
    path = tmp_path / "bad.slip"
    for length in random.integers(0, len(whole), 40):
        path.write_bytes(whole[:length])
        with pytest.raises(UsageError):
            read(path)


def test_flipped_bytes(compiled, tmp_path, random):
    """Every change is found, but for those in fields of the zip that nobody reads."""
    whole = compiled.read_bytes()
    path = tmp_path / "bad.slip"
    right = graph_bytes(read(compiled).graph)
    places = [
        *random.integers(0, len(whole), 60),
        *random.integers(len(whole) - 600, len(whole), 60),
    ]
    for place in places:
        bad = bytearray(whole)
        bad[place] ^= int(random.integers(1, 256))
        path.write_bytes(bad)
        assert _graph_or_refusal(path) in (right, "refused")
