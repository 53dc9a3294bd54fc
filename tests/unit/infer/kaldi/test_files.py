"""Kaldi's files: basic types, which files are refused, and how damaged ones behave."""

from __future__ import annotations

import struct
import tracemalloc

import kaldi_native_io
import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.importers.damage import DamagedFileError
from slipstream.infer.importers.kaldi import read_kaldi
from slipstream.infer.importers.kaldi.stream import KaldiStream

SHAPES = {"input": (1, 10, 4)}


@pytest.fixture
def small(new_net):
    """Return a network with nodes of several kinds, 4 dimensions in and 3 out."""
    net = new_net()
    net.add(
        "tdnn",
        "TdnnComponent",
        net.input("input", 4),
        MaxChange=0.75,
        LearningRate=0.1,
        TimeOffsets=[-1, 0, 2],
        LinearParams=net.drawn(5, 12),
        BiasParams=net.drawn(5),
        UseNaturalGradient=True,
        AlphaInOut=(4.0, 4.0),
        RankInOut=(20, 80),
    )
    net.add("relu", "RectifiedLinearComponent", "tdnn", Dim=5, Count=0.0)
    net.add(
        "lstm",
        "LstmNonlinearityComponent",
        "Append(relu, relu, relu, relu, IfDefined(Offset(cell, -1)))",
        LearningRate=0.1,
        Params=net.drawn(3, 5),
    )
    net.range("cell", "lstm", 0, 5)
    net.add("permute", "PermuteComponent", "Sum(Scale(0.5, relu), cell)", ColumnMap=[4, 3, 2, 1, 0])
    net.output(net.affine("last", "permute", 3, 5))
    return net


# ---- basic types beside kaldi_native_io ----------------------------------------------------------


def archived(tmp_path, writer, array, *method, binary=True):
    """Return an archive's entry as Kaldi's own classes write it, from its first byte on."""
    form = "ark" if binary else "ark,t"
    with writer(f"{form}:{tmp_path}/x.ark") as file:
        file.write("key", array, *method)
    data = (tmp_path / "x.ark").read_bytes()
    assert not binary or data[4:6] == b"\0B"
    return KaldiStream(data, is_binary=binary, at=len("key ") + 2 * binary)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("kind", ["Float", "Double"])
@pytest.mark.parametrize("shape", [(7,), (1,), (5, 3), (1, 1), (4, 9)])
def test_vectors_and_matrices_that_kaldi_writes(tmp_path, binary, kind, shape, random):
    what = "Vector" if len(shape) == 1 else "Matrix"
    writer = getattr(kaldi_native_io, f"{kind}{what}Writer")
    array = random.standard_normal(shape).astype(np.float32 if kind == "Float" else np.float64)
    stream = archived(tmp_path, writer, array, binary=binary)
    found = stream.vector() if len(shape) == 1 else stream.matrix()
    np.testing.assert_allclose(found, array.astype(np.float32), rtol=0 if binary else 1e-5)


@pytest.mark.parametrize("method", kaldi_native_io.CompressionMethod.__members__.values())
def test_compressed_matrices_that_kaldi_writes(tmp_path, method, random):
    array = np.clip(random.standard_normal((11, 6)), -1, 1).astype(np.float32)
    stream = archived(tmp_path, kaldi_native_io.CompressedMatrixWriter, array, method)
    with kaldi_native_io.SequentialFloatMatrixReader(f"ark:{tmp_path}/x.ark") as file:
        ((_, right),) = ((key, np.array(value)) for key, value in file)
    np.testing.assert_allclose(stream.matrix(), right, rtol=0, atol=1e-6)


def test_whole_numbers_that_kaldi_writes(tmp_path):
    for binary in (True, False):
        stream = archived(tmp_path, kaldi_native_io.Int32Writer, 17, binary=binary)
        assert stream.integer() == 17


# ---- found and refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["final.mdl", "final.raw", "0.nnet3"])
def test_files_of_several_names(small, tmp_path, name):
    (tmp_path / name).write_bytes(small.data(binary=True, priors=3, transitions=True))
    imported = load_model(tmp_path / name, shapes=SHAPES)
    assert imported.graph.shape("output") == (1, 7, 3)
    assert imported.notes == (
        "the log priors of the classes are not subtracted from the output, unlike in Kaldi's"
        " decoders",
        "an output frame depends on 1 input frames before and 2 after its time: 10 input frames"
        " give 7 output frames",
    )
    with pytest.raises(UsageError, match="contains its weights"):
        load_model(tmp_path / name, weights="other")


def test_outputs_for_training_are_left_out(small, tmp_path):
    small.output("relu", "output-xent")
    (tmp_path / "x.raw").write_bytes(small.data(binary=False))
    imported = load_model(tmp_path / "x.raw", shapes=SHAPES)
    assert imported.graph.outputs == ["output"]
    assert imported.notes[0] == "outputs for training were left out: output-xent"


def test_all_components_that_are_not_known_are_named(small, tmp_path):
    for binary in (True, False):
        for number in range(2):
            name = f"conv{number}{binary}"
            kind = "TimeHeightConvolutionComponent"
            small.add(name, kind, "relu", ConvolutionModel=3, LinearParams=small.drawn(3, 3))
        small.add(f"unused{binary}", "StatisticsPoolingComponent", "relu", LogCount=2.0)
        small.output(f"Append(conv0{binary}, conv1{binary}, last)", f"out{binary}")
        small.lines = [line for line in small.lines if "output-node name=output " not in line]
        (tmp_path / "x.raw").write_bytes(small.data(binary=binary))
        with pytest.raises(
            UsageError, match=r"be imported.*: TimeHeightConvolutionComponent \(\d\);"
        ):
            load_model(tmp_path / "x.raw", shapes=SHAPES)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"unknown; allowed: \(1, frames, 4\); add --shape input=1,150,4"),
        ({"input": (1, 10, 5)}, r"allowed: \(1, frames, 4\)"),
        ({"input": (2, 10, 4)}, r"allowed: \(1, frames, 4\)"),
        ({"input": (1, 3, 4)}, r"too few frames"),
        ({"input": (1, 90000, 4)}, r"too many to unroll"),
        ({"input": (1, 10, 4), "ivector": (1, 1, 3)}, "no input ivector; it has input"),
    ],
)
def test_shapes_that_do_not_suit(small, tmp_path, shapes, message):
    (tmp_path / "x.raw").write_bytes(small.data(binary=True))
    with pytest.raises(UsageError, match=message):
        load_model(tmp_path / "x.raw", shapes=shapes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("component-node name=z component=none input=relu", "components are missing: none"),
        ("component-node name=z component=relu input=nothing", "reads nothing, which is no node"),
        ("component-node name=z component=relu input=Switch(relu, cell)", "descriptor Switch"),
        ("component-node name=z component=relu input=Append(relu", "cannot be read"),
        ("component-node name=z component=relu input=Append()", "cannot be read"),
        ("component-node name=z component=relu input=relu)", "cannot be read"),
        ("component-node name=z component=relu input=Offset(relu, x)", "'x' is no integer"),
        ("component-node name=z component=relu input=Offset(relu, 1, 1)", "offsets along x"),
        ("component-node name=z component=relu input=Round(relu, 0)", "cannot be read"),
        (
            "component-node name=z component=relu input=ReplaceIndex(relu, n, 0)",
            "ReplaceIndex of n",
        ),
        ("component-node name=z component=relu input=" + "IfDefined(" * 60, "cannot be read"),
        ("component-node name=relu component=relu input=input", "two nodes have the name relu"),
        ("component-node name=z input=relu", "describes no node"),
        ("strange-node name=z", "describes no node"),
        (
            "dim-range-node name=z input-node=relu dim-offset=3 dim=3",
            "dimensions 3 to 6, but its input has 5",
        ),
        (
            "component-node name=z component=tdnn input=Append(relu, relu)",
            r"tdnn \(TdnnComponent\)",
        ),
        ("component-node name=z component=permute input=input", r"permute \(PermuteComponent\)"),
    ],
)
def test_nodes_that_do_not_suit(small, tmp_path, line, message):
    small.lines = [item for item in small.lines if not item.startswith("output-node")]
    small.lines.append(line)
    small.output("Append(last, z)")
    (tmp_path / "x.raw").write_bytes(small.data(binary=True))
    with pytest.raises(UsageError, match=message):
        load_model(tmp_path / "x.raw", shapes=SHAPES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "a word is missing"),
        (b"\0B<Nnet> \n", "begins with '<Nnet>', not <Nnet3>"),
        (b"<TransitionModel> ", "there is no </TransitionModel>"),
        (b"<Nnet3> \ninput-node name=a dim=3\n", "ends inside the configuration"),
        (b"<Nnet3> \n\n<NumComponents> 999999999 ", "999999999 components"),
        (b"<Nnet3> \n\n<NumComponents> x ", "expected a number, found 'x'"),
        (b"\0B<Nnet3> \n\n<NumComponents> \7", "has 7 bytes"),
        (b"<Nnet3> \n\n<NumComponents> 1 <ComponentName> a <FixedScaleComponent> <Odd> 3",
         "component a: a FixedScaleComponent has no token '<Odd>'"),
        (b"<Nnet3> \n\n<NumComponents> 1 <ComponentName> a <FixedScaleComponent> <Scales> [ 1 x ]",
         "expected numbers between brackets"),
    ],
)  # fmt: skip
def test_files_that_are_none(tmp_path, data, message):
    (tmp_path / "x.mdl").write_bytes(data)
    with pytest.raises(UsageError, match=rf"x\.mdl.*{message}"):
        load_model(tmp_path / "x.mdl", shapes=SHAPES)


def test_a_size_that_is_not_there_asks_for_no_memory():
    data = b"FM \4" + struct.pack("<i", 2**30) + b"\4" + struct.pack("<i", 2**30) + b"\0" * 40
    with pytest.raises(DamagedFileError, match="bytes are missing"):
        KaldiStream(data, is_binary=True).matrix()


# ---- damaged -------------------------------------------------------------------------------------


@pytest.mark.slow("damaged files of a framework")
@pytest.mark.parametrize("binary", [True, False])
def test_damaged_files_give_an_error_or_a_graph(small, tmp_path, binary, damaged):
    target = tmp_path / "final.raw"
    whole = small.data(binary=binary, priors=3, transitions=True)
    refused = 0
    tracemalloc.start()
    for _ in range(600):
        target.write_bytes(damaged(whole))
        try:
            read_kaldi(target, {"input": (1, 5, 4)})
        except (UsageError, UnsupportedError):
            refused += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60e6
    assert refused > 160
