"""Whole nnet3 networks, TDNN-F and LSTMs: compared with their definition, and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.graph.onnx_file import from_model, to_model
from slipstream.infer.importers import load_model


def batch_norm(net, name, source, dim):
    net.add(
        name,
        "BatchNormComponent",
        source,
        Dim=dim,
        BlockDim=dim,
        Epsilon=0.001,
        TargetRms=1.0,
        TestMode=True,
        Count=1000.0,
        StatsMean=net.drawn(dim),
        StatsVar=net.drawn(dim) ** 2 + np.float32(0.5),
    )
    return name


def factored(net, name, source, dim, bottleneck, offset):
    """Add a layer of TDNN-F: two halves, ReLU, batch norm, dropout, and a scaled bypass."""
    first = net.add(
        f"{name}.linear",
        "TdnnComponent",
        source,
        LearningRate=0.1,
        TimeOffsets=[-offset, 0] if offset else [0],
        LinearParams=net.drawn(bottleneck, dim * (2 if offset else 1)),
        BiasParams=net.drawn(0),
        OrthonormalConstraint=-1.0,
    )
    second = net.add(
        f"{name}.affine",
        "TdnnComponent",
        first,
        LearningRate=0.1,
        TimeOffsets=[0, offset] if offset else [0],
        LinearParams=net.drawn(dim, bottleneck * (2 if offset else 1)),
        BiasParams=net.drawn(dim),
    )
    relu = net.add(f"{name}.relu", "RectifiedLinearComponent", second, Dim=dim, Count=0.0)
    norm = batch_norm(net, f"{name}.batchnorm", relu, dim)
    dropout = net.add(f"{name}.dropout", "GeneralDropoutComponent", norm, Dim=dim, Continuous=())
    return net.add(
        f"{name}.noop", "NoOpComponent", f"Sum(Scale(0.66, {source}), {dropout})", Dim=dim
    )


def tdnn_f(net, dim=24):
    """Add splicing with a speaker vector, three factored layers, and two outputs."""
    net.input("ivector", 5)
    net.input("input", 10)
    lda = net.add(
        "lda",
        "FixedAffineComponent",
        "Append(Offset(input, -1), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))",
        LinearParams=net.drawn(35, 35),
        BiasParams=net.drawn(35),
    )
    x = net.affine("tdnn1.affine", lda, dim, 35)
    x = net.add("tdnn1.relu", "RectifiedLinearComponent", x, Dim=dim, Count=0.0)
    x = batch_norm(net, "tdnn1.batchnorm", x, dim)
    for number, offset in enumerate((1, 0, 3), 2):
        x = factored(net, f"tdnnf{number}", x, dim, 8, offset)
    prefinal = net.add(
        "prefinal-l", "LinearComponent", x, LearningRate=0.1, Params=net.drawn(9, dim)
    )
    for name in ("chain", "xent"):
        x = net.affine(f"prefinal-{name}.affine", prefinal, dim, 9)
        x = net.add(f"prefinal-{name}.relu", "RectifiedLinearComponent", x, Dim=dim, Count=0.0)
        x = batch_norm(net, f"prefinal-{name}.batchnorm", x, dim)
        x = net.affine(f"output.{name}", x, 15, dim)
        if name == "chain":
            net.output(x)
    x = net.add("output-xent.log-softmax", "LogSoftmaxComponent", x, Dim=15, Count=0.0)
    net.output(x, "output-xent")


def fast_lstm(net, name, source, dim, cell, recurrent, delay):
    """Add a projected LSTM whose gates are one matrix (newer form); backwards for delay > 0."""
    inputs = f"Append({source}, IfDefined(Offset({name}.r_trunc, {delay})))"
    gates = net.affine(f"{name}.W_all", inputs, 4 * cell, dim + recurrent)
    nonlinear = net.add(
        f"{name}.lstm_nonlin",
        "LstmNonlinearityComponent",
        f"Append({gates}, IfDefined(Offset({name}.c_trunc, {delay})))",
        LearningRate=0.1,
        Params=net.drawn(3, cell),
        Count=0.0,
    )
    net.range(f"{name}.c", nonlinear, 0, cell)
    net.range(f"{name}.m", nonlinear, cell, cell)
    net.affine(f"{name}.W_rp", f"{name}.m", 2 * recurrent, cell)
    net.range(f"{name}.r", f"{name}.W_rp", 0, recurrent)
    for part, size in (("c", cell), ("r", recurrent)):
        net.add(
            f"{name}.{part}_trunc",
            "BackpropTruncationComponent",
            f"{name}.{part}",
            Dim=size,
            Scale=1.0,
            ClippingThreshold=30.0,
        )
    return f"{name}.W_rp"


def plain_lstm(net, name, source, dim, cell, delay):
    """Add an LSTM of the older form, made of sums, products and nonlinearities."""

    def gate(letter, last):
        inside = f"Append({source}, IfDefined(Offset({name}.m_t, {delay})))"
        net.affine(f"{name}.W_{letter}", inside, cell, dim + cell)
        peephole = net.add(
            f"{name}.w_{letter}c",
            "NaturalGradientPerElementScaleComponent",
            last,
            LearningRate=0.1,
            Params=net.drawn(cell),
        )
        total = f"Sum({name}.W_{letter}, {peephole})"
        net.add(f"{name}.{letter}", "SigmoidComponent", total, Dim=cell)

    before = f"IfDefined(Offset({name}.c_t, {delay}))"
    gate("i", before)
    gate("f", before)
    net.affine(
        f"{name}.W_c", f"Append({source}, IfDefined(Offset({name}.m_t, {delay})))", cell, dim + cell
    )
    net.add(f"{name}.g", "TanhComponent", f"{name}.W_c", Dim=cell)
    product = {"InputDim": 2 * cell, "OutputDim": cell}
    net.add(f"{name}.c1", "ElementwiseProductComponent", f"Append({name}.f, {before})", **product)
    net.add(f"{name}.c2", "ElementwiseProductComponent", f"Append({name}.i, {name}.g)", **product)
    net.add(f"{name}.c_t", "NoOpComponent", f"Sum({name}.c1, {name}.c2)", Dim=cell)
    gate("o", f"{name}.c_t")
    net.add(f"{name}.h", "TanhComponent", f"{name}.c_t", Dim=cell)
    net.add(f"{name}.m_t", "ElementwiseProductComponent", f"Append({name}.o, {name}.h)", **product)
    return f"{name}.m_t"


def test_a_factored_tdnn(new_net, same):
    net = new_net()
    tdnn_f(net)
    assert same(net, 20, ivector=0) == (5, 5, 10)


@pytest.mark.parametrize("delay", [-1, -3, 1, 3])
def test_a_projected_lstm(new_net, same, delay):
    net = new_net()
    net.affine(
        "first", f"Append(Offset({net.input('input', 6)}, -1), input, Offset(input, 1))", 8, 18
    )
    net.output(net.affine("last", fast_lstm(net, "lstm1", "first", 8, 7, 3, delay), 5, 6))
    assert same(net, 15) == (1, 1, 13)


@pytest.mark.parametrize("delay", [-1, 2])
def test_an_lstm_of_sums_and_products(new_net, same, delay):
    net = new_net()
    net.output(plain_lstm(net, "lstm1", net.input("input", 6), 6, 5, delay))
    assert same(net, 9) == (0, 0, 9)


def test_lstms_both_ways_between_tdnns(new_net, same):
    net = new_net()
    net.affine(
        "first", f"Append(Offset({net.input('input', 6)}, -2), input, Offset(input, 2))", 8, 18
    )
    there = fast_lstm(net, "forward1", "first", 8, 6, 3, -3)
    back = fast_lstm(net, "backward1", "first", 8, 6, 3, 3)
    net.affine("middle", f"Append(Offset({there}, -3), {back}, Offset({back}, 3))", 8, 18)
    last = fast_lstm(net, "forward2", "middle", 8, 6, 3, -1)
    net.add("output.log-softmax", "LogSoftmaxComponent", net.affine("out", last, 4, 6), Dim=4)
    net.output("output.log-softmax")
    assert same(net, 18) == (5, 5, 8)


@pytest.mark.slow("compiled network of a framework")
@pytest.mark.parametrize("make", [tdnn_f, None])
def test_a_network_is_compiled_and_loaded(new_net, tmp_path, make):
    net = new_net()
    if make is None:
        net.output(
            net.affine("last", fast_lstm(net, "l", net.input("input", 6), 6, 7, 3, -1), 5, 6)
        )
        shapes = {"input": (1, 20, 6)}
    else:
        make(net)
        shapes = {"input": (1, 30, 10), "ivector": (1, 1, 5)}
    path, target = tmp_path / "final.mdl", tmp_path / "model.slip"
    path.write_bytes(net.data(binary=True, priors=15, transitions=True))
    report = infer.compile(
        path, target, infer.CompileOptions(shapes=shapes, seconds=2, most_rounds=5, threads=1)
    )
    assert "frames before" in " ".join(report.notes)
    feeds = {name: net.drawn(*shape) for name, shape in shapes.items()}
    left = 5 if make else 0
    inputs = {name: {at - left: row for at, row in enumerate(array[0].astype(float))}
              for name, array in feeds.items()}  # fmt: skip
    inputs["ivector"] = {0: feeds["ivector"][0, 0]} if "ivector" in feeds else {}
    right = net.output_frames(inputs, range(20))
    with infer.load(target) as model:
        found = model(**feeds) if len(feeds) > 1 else model(feeds["input"])
    np.testing.assert_allclose(found, right, rtol=0, atol=0.02 * right.std())


def test_what_is_in_circles_is_computed_outside_where_it_can_be(new_net, tmp_path):
    net = new_net()
    net.output(fast_lstm(net, "lstm", net.input("input", 30), 30, 8, 4, -1))
    (tmp_path / "final.raw").write_bytes(net.data(binary=True))
    graph = load_model(tmp_path / "final.raw", shapes={"input": (1, 10, 30)}).graph
    shapes = [graph.shape(node.inputs[0]) for node in graph.nodes if node.op == "MatMul"]
    assert shapes.count((1, 10, 30)) == 1
    assert not [shape for shape in shapes if shape == (1, 1, 34)]
    again = from_model(to_model(graph))
    assert again.shape("output") == graph.shape("output")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["component-node name=a component=c input=Sum(input, Offset(a, -1))"],
            "depend on themselves",
        ),
        (
            [
                "component-node name=a component=c input=Sum(input, IfDefined(Offset(a, -1)),"
                " IfDefined(Offset(a, 1)))"
            ],
            r"frames at the offsets \[-1, 1\]; allowed",
        ),
        (
            ["component-node name=a component=c input=Sum(input, IfDefined(Round(a, 3)))"],
            "rounds or replaces times",
        ),
        (["component-node name=a component=c input=IfDefined(input)"], "has no first frame"),
        (
            ["component-node name=a component=c input=Sum(input, IfDefined(a))"],
            "allowed: all negative",
        ),
    ],
)
def test_cycles_that_cannot_be_unrolled(new_net, tmp_path, lines, message):
    net = new_net()
    net.input("input", 4)
    net.components["c"] = ("NoOpComponent", {"Dim": 4})
    net.lines += lines
    net.output("a")
    (tmp_path / "final.raw").write_bytes(net.data(binary=True))
    with pytest.raises(UsageError, match=message):
        load_model(tmp_path / "final.raw", shapes={"input": (1, 10, 4)})
