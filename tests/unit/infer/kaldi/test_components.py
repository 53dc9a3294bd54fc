"""Components and descriptors of nnet3 give the results of their definitions, frame by frame."""

from __future__ import annotations

import numpy as np
import pytest

DIM = 12


def vector(seed, size=DIM):
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


def matrix(rows, columns=DIM):
    random = np.random.default_rng(rows)
    return (random.standard_normal((rows, columns)) / 3).astype(np.float32)


def statistics(size):
    return {
        "Count": 100.0,
        "StatsMean": vector(1, size),
        "StatsVar": vector(2, size) ** 2 + np.float32(0.1),
    }


NONLINEAR = {
    "Dim": DIM,
    "ValueAvg": vector(1),
    "DerivAvg": vector(2),
    "Count": 8.0,
    "NumDimsSelfRepaired": 1.0,
    "NumDimsProcessed": 2.0,
    "SelfRepairScale": 1e-5,
}
RATES = {"LearningRateFactor": 0.5, "MaxChange": 0.75, "LearningRate": 0.001}
TESTED = [
    ("AffineComponent", {**RATES, "LinearParams": matrix(7), "BiasParams": vector(3, 7)}),
    (
        "NaturalGradientAffineComponent",
        {
            **RATES,
            "LinearParams": matrix(7),
            "BiasParams": vector(3, 7),
            "RankIn": 20,
            "RankOut": 80,
            "OrthonormalConstraint": 0.0,
            "UpdatePeriod": 4,
            "NumSamplesHistory": 2000.0,
            "Alpha": 4.0,
        },
    ),
    ("NaturalGradientAffineComponent", {"LinearParams": matrix(7), "BiasParams": vector(3, 0)}),
    ("FixedAffineComponent", {"LinearParams": matrix(9), "BiasParams": vector(3, 9)}),
    (
        "LinearComponent",
        {
            **RATES,
            "Params": matrix(5),
            "OrthonormalConstraint": -1.0,
            "UseNaturalGradient": True,
            "RankInOut": (20, 80),
            "Alpha": 4.0,
            "NumSamplesHistory": 2000.0,
            "UpdatePeriod": 4,
        },
    ),
    ("RectifiedLinearComponent", NONLINEAR),
    ("SigmoidComponent", {**NONLINEAR, "SelfRepairLowerThreshold": 0.1}),
    ("TanhComponent", NONLINEAR),
    ("SoftmaxComponent", NONLINEAR),
    ("LogSoftmaxComponent", NONLINEAR),
    *[
        (
            "BatchNormComponent",
            {
                "Dim": DIM,
                "BlockDim": block,
                "Epsilon": epsilon,
                "TargetRms": target,
                "TestMode": False,
                **statistics(block),
            },
        )
        for block, epsilon, target in ((DIM, 0.001, 1.0), (4, 0.1, 0.5))
    ],
    ("NormalizeComponent", {"InputDim": DIM, "TargetRms": 1.0, "AddLogStddev": False}),
    ("NormalizeComponent", {"Dim": DIM, "TargetRms": 0.5, "AddLogStddev": True}),
    (
        "NormalizeComponent",
        {"InputDim": DIM, "BlockDim": 4, "TargetRms": 2.0, "AddLogStddev": True},
    ),
    ("NoOpComponent", {"Dim": DIM, "BackpropScale": 1.0}),
    ("PermuteComponent", {"ColumnMap": [5, 0, 1, 11, 10, 2, 3, 4, 9, 8, 7, 6]}),
    ("FixedScaleComponent", {"Scales": vector(4)}),
    ("FixedBiasComponent", {"Bias": vector(5)}),
    ("PerElementScaleComponent", {"LearningRate": 0.1, "Params": vector(6)}),
    (
        "NaturalGradientPerElementScaleComponent",
        {"LearningRate": 0.1, "Params": vector(6), "Rank": 8, "UpdatePeriod": 10, "Alpha": 4.0},
    ),
    ("PerElementOffsetComponent", {"LearningRate": 0.1, "Offsets": vector(7), "Dim": DIM}),
    (
        "ScaleAndOffsetComponent",
        {**RATES, "Dim": DIM, "Scales": vector(8, 4), "Offsets": vector(9, 4), "Rank": 20},
    ),
    ("SumBlockComponent", {"InputDim": DIM, "OutputDim": 4, "Scale": 0.5}),
    ("ElementwiseProductComponent", {"InputDim": DIM, "OutputDim": 6}),
    (
        "DropoutComponent",
        {"Dim": DIM, "DropoutProportion": 0.5, "DropoutPerFrame": True, "TestMode": False},
    ),
    (
        "GeneralDropoutComponent",
        {
            "Dim": DIM,
            "BlockDim": DIM,
            "TimePeriod": 0,
            "DropoutProportion": 0.5,
            "TestMode": (),
            "Continuous": (),
        },
    ),
    ("BackpropTruncationComponent", {"Dim": DIM, "Scale": 0.9, "ClippingThreshold": 30.0}),
    ("LstmNonlinearityComponent", {"LearningRate": 0.1, "Params": matrix(3, 2), "Count": 0.0}),
    (
        "CompositeComponent",
        {
            "MaxRowsProcess": 4096,
            "Parts": [
                ("AffineComponent", {"LinearParams": matrix(8), "BiasParams": vector(1, 8)}),
                ("RectifiedLinearComponent", {"Dim": 8, "Count": 0.0}),
            ],
        },
    ),
]


@pytest.mark.parametrize(("kind", "values"), TESTED, ids=[kind for kind, _ in TESTED])
def test_components(new_net, same, kind, values):
    net = new_net()
    source = net.input("input", DIM)
    if kind == "LstmNonlinearityComponent":
        source = net.affine("wide", source, 10, DIM)
    net.add("tested", kind, source, **values)
    net.output("tested")
    assert same(net, 5) == (0, 0, 5)


def test_lstm_nonlinearity_with_factors_of_its_gates(new_net, same):
    net = new_net()
    net.affine("wide", net.input("input", 4), 13, 4)
    net.add("tested", "LstmNonlinearityComponent", "wide", Params=matrix(3, 2), UseDropout=True)
    net.output("tested")
    same(net, 5)


@pytest.mark.parametrize("offsets", [[0], [-1, 0, 1], [-3, 0, 3], [0, 2], [-2], [-1, 0, 2], [3, 1]])
@pytest.mark.parametrize("biases", [7, 0])
def test_tdnn(new_net, same, offsets, biases):
    net = new_net()
    net.add(
        "tested",
        "TdnnComponent",
        net.input("input", 5),
        MaxChange=0.75,
        LearningRate=0.1,
        TimeOffsets=offsets,
        LinearParams=matrix(7, 5 * len(offsets)),
        BiasParams=vector(1, biases),
        OrthonormalConstraint=0.0,
        UseNaturalGradient=True,
        NumSamplesHistory=2000.0,
        AlphaInOut=(4.0, 4.0),
        RankInOut=(20, 80),
    )
    net.output("tested")
    left, right, count = same(net)
    assert (left, right) == (-min(offsets), max(offsets))
    assert count == 12 - left - right


@pytest.mark.parametrize(
    ("descriptor", "left", "right"),
    [
        ("input", 0, 0),
        ("Offset(input, -2)", 2, -2),
        ("Append(Offset(input, -1), input, Offset(input, 2))", 1, 2),
        ("Sum(input, Offset(input, 1))", 0, 1),
        ("Sum(Offset(input, -1), input, Offset(input, 3))", 1, 3),
        ("Scale(-0.5, Offset(input,1))", -1, 1),
        ("Append(input, Const(0.7, 3))", 0, 0),
        ("Append(input, IfDefined(Offset(input, -2)))", 0, 0),
        (
            "Append(Offset(input, 1), IfDefined(Offset(input, 4)), IfDefined(Offset(input, -9)))",
            -1,
            1,
        ),
        ("Sum(Offset(input, -2), IfDefined(Append(input)))", 2, -2),
        ("Failover(Offset(input, -2), input)", 0, -2),
        ("Failover(Offset(input, 1), Scale(2.0, input))", -1, 0),
        ("Offset(Offset(Append(input, Offset(input, -1)), 2), -3)", 2, -1),
    ],
)
def test_descriptors(new_net, same, descriptor, left, right):
    net = new_net()
    net.input("input", 4)
    net.output(descriptor)
    assert same(net) == (left, right, 12 - left - right)


def test_rounded_times(new_net, same):
    net = new_net()
    net.input("input", 4)
    net.output("Append(input, Round(input, 3))")
    same(net)


def test_a_speaker_vector_is_the_same_at_all_times(new_net, same):
    net = new_net()
    net.input("input", 4)
    net.input("ivector", 3)
    net.add(
        "lda",
        "FixedAffineComponent",
        "Append(Offset(input, -1), input, Offset(input, 1), ReplaceIndex(ivector, t, 0))",
        LinearParams=matrix(7, 15),
        BiasParams=vector(1, 7),
    )
    net.affine("speaker", "ReplaceIndex(ivector, t, 0)", 7, 3)
    net.add("relu", "RectifiedLinearComponent", "Sum(lda, speaker)", Dim=7)
    net.output("relu")
    assert same(net, ivector=0) == (1, 1, 10)
