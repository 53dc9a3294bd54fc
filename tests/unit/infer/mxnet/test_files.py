"""MXNet's files: how they are found, which are refused, and how damaged ones behave."""

from __future__ import annotations

import json
import struct
import tracemalloc

import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.importers.mxnet import read_mxnet
from slipstream.infer.importers.mxnet.params import read_params

SHAPES = {"data": (1, 3, 8, 8)}
TYPES = {
    np.dtype(kind): number for number, kind in enumerate(("f4", "f8", "f2", "u1", "i4", "i1", "i8"))
}


def params(arrays, version=2):
    """Encode a .params file, in the first form (0) to the newest (3)."""
    found = struct.pack("<QQQ", 0x112, 0, len(arrays))
    for array in arrays.values():
        rank, sizes = struct.pack("<I", array.ndim), f"<{array.ndim}{'q' if version else 'I'}"
        if version:
            found += struct.pack("<I", 0xF993FAC7 + version)
        if version > 1:
            found += struct.pack("<i", 0)
        found += rank + struct.pack(sizes, *array.shape)
        found += struct.pack("<iii", 1, 0, TYPES[array.dtype]) + array.tobytes()
    found += struct.pack("<Q", len(arrays))
    for name in arrays:
        found += struct.pack("<Q", len(name)) + name.encode()
    return found


def symbol(*nodes, heads=None):
    """Encode a symbol of (op, name, inputs, attributes)."""
    items = [
        {"op": op, "name": name, "attrs": attrs, "inputs": [[number, 0, 0] for number in inputs]}
        for op, name, inputs, attrs in nodes
    ]
    return json.dumps({"nodes": items, "arg_nodes": [], "heads": heads or [[len(items) - 1, 0, 0]]})


@pytest.fixture
def small(tmp_path):
    """Return the paths of a network with convolution, batch norm, pooling and a product."""
    random = np.random.default_rng(1)
    text = symbol(
        ("null", "data", [], {}),
        ("null", "w", [], {}),
        ("null", "gamma", [], {}),
        ("null", "beta", [], {}),
        ("null", "mean", [], {}),
        ("null", "var", [], {}),
        ("null", "v", [], {}),
        ("Convolution", "conv", [0, 1], {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"}),
        ("BatchNorm", "bn", [7, 2, 3, 4, 5], {"fix_gamma": "False"}),
        ("Pooling", "pool", [8], {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": "avg"}),
        ("Reshape", "flat", [9], {"shape": "(0, -1)"}),
        ("FullyConnected", "fc", [10, 6], {"num_hidden": "5", "no_bias": "True"}),
        ("null", "softmax_label", [], {}),
        ("SoftmaxOutput", "softmax", [11, 12], {}),
    )
    arrays = {
        "arg:w": random.standard_normal((4, 3, 3, 3)),
        "arg:gamma": np.ones(4),
        "arg:beta": np.zeros(4),
        "aux:mean": np.zeros(4),
        "aux:var": np.ones(4),
        "arg:v": random.standard_normal((5, 36)),
    }
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    (tmp_path / "net-symbol.json").write_text(text)
    (tmp_path / "net-0000.params").write_bytes(params(arrays))
    return tmp_path / "net-symbol.json", tmp_path / "net-0000.params"


# ---- found ---------------------------------------------------------------------------------------


def test_the_last_of_several_params_is_read_and_that_is_noted(small, tmp_path):
    path, first = small
    assert load_model(path, shapes=SHAPES).notes == ()
    (tmp_path / "net-0007.params").write_bytes(first.read_bytes())
    imported = load_model(path, shapes=SHAPES)
    assert imported.notes == ("net-0007.params was read, the last of 2 .params files",)
    assert imported.graph.outputs == ["softmax_output"]
    assert load_model(path, shapes=SHAPES, weights=first).notes == ()
    for file in tmp_path.glob("*.params"):
        file.unlink()
    with pytest.raises(UsageError, match=r"no weight file .*net-0000\.params; name it with"):
        load_model(path, shapes=SHAPES)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_all_forms_of_params(tmp_path, version):
    random = np.random.default_rng(version)
    arrays = {
        "arg:a": random.standard_normal((2, 3)).astype(np.float32),
        "b": np.arange(5),
        "aux:c": np.ones((1, 2, 1), np.float16),
    }
    (tmp_path / "x.params").write_bytes(params(arrays, version))
    found = read_params(tmp_path / "x.params")
    assert list(found) == ["a", "b", "c"]
    for array, right in zip(found.values(), arrays.values(), strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_array_equal(array, right)


@pytest.mark.slow("compiled network of a framework")
def test_what_mxnet_saves_is_read(mxnet_saved):
    found = read_params(mxnet_saved)
    assert {name: (array.dtype.name, array.shape) for name, array in found.items()} == {
        **{
            kind: (kind, (2, 3))
            for kind in ("float32", "float64", "float16", "uint8", "int32", "int8", "int64")
        },
    }
    for array in found.values():
        np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))


def test_halves_are_computed_with_32_bits(small):
    path, weights = small
    arrays = {name: array.astype(np.float16) for name, array in read_params(weights).items()}
    weights.write_bytes(params(arrays))
    imported = load_model(path, shapes=SHAPES)
    assert imported.notes == ("16-bit floats are computed in float32",)
    assert {array.dtype for array in imported.graph.constants.values()} <= {
        np.dtype(np.float32),
        np.dtype(np.int64),
    }


# ---- refused -------------------------------------------------------------------------------------


def test_all_operators_that_are_not_known_are_named(small):
    path, _ = small
    path.write_text(
        symbol(
            ("null", "data", [], {}),
            ("_contrib_Proposal", "a", [0], {}),
            ("Custom", "b", [1], {}),
            ("_contrib_Proposal", "c", [2], {}),
            ("Custom", "unused", [2], {}),
            heads=[[3, 0, 0]],
        )
    )
    with pytest.raises(UsageError, match=r"Custom \(1\), _contrib_Proposal \(2\)"):
        load_model(path, shapes=SHAPES)


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        (
            "Convolution",
            {"kernel": "(3, 3)", "num_filter": "4", "layout": "NHWC"},
            "layout is 'NHWC'",
        ),
        (
            "Convolution",
            {"kernel": "(3,)", "num_filter": "4"},
            r"kernel is \[3\]; allowed: 2 numbers",
        ),
        ("Pooling", {"kernel": "(3, x)"}, r"kernel is '\(3, x\)'; allowed: integers"),
        (
            "Pooling",
            {"kernel": "(3, 3)", "pool_type": "lp"},
            "pool_type is 'lp'; allowed: max, avg",
        ),
        ("Pooling", {"kernel": "(9, 9)"}, "outside an image of 8"),
        ("Reshape", {"shape": "(5, -1)"}, r"cannot be reshaped to \[5, -1\]"),
        ("Reshape", {"shape": "(-3, -3, -3)"}, "cannot be reshaped"),
        ("transpose", {"axes": "(0, 0, 1, 2)"}, "axes is"),
        ("softmax", {"axis": "7"}, "axis is 7; allowed: -4 to 3"),
        ("SoftmaxOutput", {}, "multi_output=True or preserve_shape=True"),
        ("BatchNorm", {}, "do not fit"),
        ("broadcast_add", {}, "do not fit"),
        ("tile", {"reps": "(1, 100000000000)"}, "at most 268435456 elements"),
        ("sum", {"axis": "9"}, r"axis is \[9\]"),
        ("clip", {"a_min": "few"}, "a_min is 'few'; allowed: a number"),
        ("Dropout", {"unread": "1"}, None),
    ],
)
def test_what_does_not_suit_is_refused_with_the_node(small, op, options, message):
    path, weights = small
    path.write_text(symbol(("null", "data", [], {}), (op, "node", [0], options)))
    if message is None:
        load_model(path, shapes=SHAPES)
        return
    with pytest.raises(UsageError, match=rf"node \({op}\).*{message}"):
        read_mxnet(path, weights, SHAPES)


def test_arrays_and_shapes_that_do_not_suit(small):
    path, weights = small
    with pytest.raises(UsageError, match=r"known for data; add --shape data=1,3,224,224"):
        load_model(path)
    with pytest.raises(UsageError, match=r"no input image; it has data"):
        load_model(path, shapes={**SHAPES, "image": (1,)})
    with pytest.raises(UsageError, match=r"fc \(FullyConnected\).*\(5, 36\), not \(5, 100\)"):
        load_model(path, shapes={"data": (1, 3, 12, 12)})
    arrays = read_params(weights)
    arrays.pop("v")
    weights.write_bytes(params(arrays))
    with pytest.raises(UsageError, match=r"neither an array nor a shape is known for v"):
        load_model(path, shapes=SHAPES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "bytes are missing"),
        (b"\x12" * 40, "the file begins with"),
        (struct.pack("<QQQ", 0x112, 0, 2**60), "too short for"),
        (struct.pack("<QQQIiI", 0x112, 0, 1, 0xF993FAC9, 1, 0), "sparse"),
        (struct.pack("<QQQIiIq", 0x112, 0, 1, 0xF993FAC9, 0, 1, 2**60) + b"\0" * 12, "missing"),
        (struct.pack("<QQQIiI", 0x112, 0, 1, 0xF993FAC9, 0, 77), "77 dimensions"),
    ],
)
def test_params_that_are_none(small, data, message):
    path, weights = small
    weights.write_bytes(data)
    with pytest.raises(UsageError, match=rf"net-0000\.params.*{message}"):
        load_model(path, shapes=SHAPES)


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "{}", '{"nodes": 3, "heads": []}', "[" * 100000, '{"nodes": [{}], "heads": []}',
     symbol(("null", "a", [], {}), ("relu", "b", [1], {})), symbol(("relu", "b", [], {})),
     symbol(("null", "data", [], {}), heads=[[0, 5, 0]])],
)  # fmt: skip
def test_symbols_that_are_none(small, text):
    path, _ = small
    path.write_text(text)
    with pytest.raises(UsageError):
        load_model(path, shapes=SHAPES)


# ---- damaged -------------------------------------------------------------------------------------


@pytest.mark.slow("damaged files of a framework")
@pytest.mark.parametrize("number", [0, 1])
def test_damaged_files_give_an_error_or_a_graph(small, number, damaged):
    target = small[number]
    whole = target.read_bytes()
    refused = 0
    tracemalloc.start()
    for _ in range(600):
        target.write_bytes(damaged(whole))
        try:
            read_mxnet(*small, SHAPES)
        except (UsageError, UnsupportedError):
            refused += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30e6
    assert refused > 160
