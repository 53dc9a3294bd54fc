"""MXNet's operators, each compared with MXNet 1.9.1 itself."""

from __future__ import annotations

import itertools

import pytest

PICTURE = (2, 6, 7, 9)


def cases(*expressions: str, **shapes):
    shapes = shapes or {"x": PICTURE}
    return {expression: (expression, shapes) for expression in expressions}


UNARY = [
    "abs",
    "exp",
    "floor",
    "ceil",
    "negative",
    "relu",
    "sigmoid",
    "sign",
    "sin",
    "cos",
    "arctan",
]
UNARY += ["softsign", "square", "tanh", "erf", "hard_sigmoid", "identity", "BlockGrad", "Dropout"]
POSITIVE = ["log", "sqrt", "rsqrt", "reciprocal", "cbrt"]
PAIR = {"x": (2, 3, 4), "y": (2, 3, 4)}
CASES = {
    # ---- convolutions
    **cases(
        *(
            f"sym.Convolution(x, num_filter=12, kernel=(3, 3), {options})"
            for options in (
                "",
                "no_bias=True",
                "stride=(2, 2), pad=(1, 1)",
                "stride=(2, 1), pad=(0, 2), num_group=2",
                "dilate=(2, 2), pad=(2, 2), num_group=6",
            )
        ),
        "sym.Convolution(x, num_filter=4, kernel=(1, 5))",
        *(
            f"sym.Deconvolution(x, num_filter=12, {options})"
            for options in (
                "kernel=(3, 3)",
                "kernel=(4, 4), stride=(2, 2), pad=(1, 1), no_bias=False",
                "kernel=(3, 3), stride=(2, 2), pad=(1, 1), adj=(1, 1)",
                "kernel=(2, 3), stride=(2, 3), num_group=3",
                "kernel=(3, 3), dilate=(2, 2)",
            )
        ),
        "sym.FullyConnected(x, num_hidden=5)",
        "sym.FullyConnected(x, num_hidden=5, no_bias=True)",
        "sym.FullyConnected(x, num_hidden=5, flatten=False)",
    ),
    **cases("sym.Convolution(x, num_filter=4, kernel=(3,), stride=(2,), pad=(1,))", x=(2, 6, 9)),
    **cases("sym.Convolution(x, num_filter=4, kernel=(2, 3, 2), num_group=2)", x=(1, 4, 5, 6, 4)),
    **cases("sym.FullyConnected(x, num_hidden=5)", x=(3, 7)),
    # ---- norms
    **cases(
        "sym.BatchNorm(x)",
        "sym.BatchNorm(x, fix_gamma=False, eps=1e-5)",
        "sym.BatchNorm(x, fix_gamma=False, axis=3)",
        "sym.BatchNorm(x, fix_gamma=False, use_global_stats=True)",
        "sym.LayerNorm(x)",
        "sym.LayerNorm(x, axis=1, eps=1e-3)",
        "sym.InstanceNorm(x)",
        "sym.L2Normalization(x)",
        "sym.L2Normalization(x, mode='channel')",
        "sym.L2Normalization(x, mode='spatial')",
        "sym.LRN(x, nsize=5)",
        "sym.LRN(x, nsize=3, alpha=0.5, beta=0.6, knorm=1)",
    ),
    # ---- pooling
    **cases(
        *(
            f"sym.Pooling(x, kernel=({kernel}, {kernel}), stride=({stride}, {stride}),"
            f" pad=({pad}, {pad}), pool_type='{kind}', pooling_convention='{convention}')"
            for kernel, stride, pad in itertools.product((2, 3), (1, 2), (0, 1))
            for kind, convention in itertools.product(("max", "avg", "sum"), ("valid", "full"))
            if not (kernel == 3 and stride == 2 and pad == 1 and convention == "full")
            # Empty windows are refused.
            if not (kernel == 2 and stride == 2 and pad == 1 and convention == "full")
        ),
        "sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type='avg',"
        " count_include_pad=False)",
        "sym.Pooling(x, kernel=(3, 2), stride=(2, 3), pad=(1, 0), pool_type='avg')",
        "sym.Pooling(x, global_pool=True, pool_type='avg', kernel=(1, 1))",
        "sym.Pooling(x, global_pool=True, pool_type='max')",
        "sym.Pooling(x, global_pool=True, pool_type='sum')",
    ),
    **cases("sym.Pooling(x, kernel=(3,), stride=(2,), pool_type='avg')", x=(2, 3, 9)),
    # ---- activations
    **cases(
        *(
            f"sym.Activation(x, act_type='{kind}')"
            for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign")
        ),
        *(
            f"sym.LeakyReLU(x, act_type='{kind}')"
            for kind in ("leaky", "elu", "selu", "gelu", "prelu")
        ),
        "sym.LeakyReLU(x, act_type='leaky', slope=0.1)",
        "sym.LeakyReLU(x, act_type='elu', slope=0.3)",
        *(f"sym.{name}(x)" for name in UNARY),
        *(f"sym.{name}(abs(x) + 1)" for name in POSITIVE),
        "sym.clip(x, a_min=-0.5, a_max=0.7)",
        "sym.softmax(x)",
        "sym.softmax(x, axis=1, temperature=2.0)",
        "sym.log_softmax(x, axis=1)",
        "sym.SoftmaxActivation(x, mode='channel')",
        "sym.SoftmaxOutput(x, multi_output=True, name='softmax')",
        "sym.SoftmaxOutput(x, preserve_shape=True, name='softmax')",
        "sym.LogisticRegressionOutput(x, name='logistic')",
        "sym.LinearRegressionOutput(x, name='linear')",
        "contrib.div_sqrt_dim(x)",
    ),
    **cases("sym.SoftmaxActivation(x)", "sym.SoftmaxOutput(x, name='softmax')", x=(3, 7)),
    # ---- arithmetic
    **cases(
        "x + y",
        "x - y",
        "x * y",
        "x / (abs(y) + 1)",
        "sym.broadcast_power(abs(x), y)",
        "sym.maximum(x, y)",
        "sym.minimum(x, y)",
        "sym.add_n(x, y, x)",
        "sym.where(x > y, x, y)",
        "sym.broadcast_greater(x, y)",
        "sym.broadcast_equal(x, x) + sym.broadcast_lesser_equal(x, y)",
        "sym.Concat(x, y, dim=1)",
        "sym.Concat(x, y)",
        "sym.Concat(x, y, dim=-1)",
        "sym.stack(x, y, axis=1)",
        "sym.batch_dot(x, y, transpose_b=True)",
        "sym.batch_dot(x, y, transpose_a=True)",
        "sym.dot(x, sym.transpose(y))",
        "sym.broadcast_like(sym.sum(x, axis=1, keepdims=True), y)",
        **PAIR,
    ),
    **cases(
        "sym.broadcast_add(x, y)",
        "sym.broadcast_sub(x, y)",
        "sym.broadcast_mul(x, y)",
        "sym.broadcast_div(x, abs(y) + 1)",
        "sym.broadcast_maximum(x, y)",
        "sym.slice_like(x, y)",
        x=(2, 3, 4),
        y=(2, 1, 4),
    ),
    **cases("sym.dot(x, y)", "sym.dot(x, y, transpose_b=False)", x=(3, 4), y=(4, 5)),
    **cases("sym.dot(x, y, transpose_a=True, transpose_b=True)", x=(4, 3), y=(5, 4)),
    **cases("sym.slice_like(x, y, axes=(0, -1))", x=(3, 4, 5), y=(2, 1, 4)),
    **cases(
        "1 + x * 2 - 0.5",
        "3 - x / 4",
        "2 / (abs(x) + 1)",
        "abs(x) ** 1.5",
        "sym._internal._rpower_scalar(x, scalar=2)",
        "sym._internal._maximum_scalar(x, scalar=0.3)",
        "sym._internal._minimum_scalar(x, scalar=0.3)",
        "(x > 0.1) + (x <= -0.2)",
        "sym.cast(sym.cast(x, dtype='int32'), dtype='float32')",
    ),
    # ---- moves
    **cases(
        "sym.Flatten(x)",
        *(
            f"sym.reshape(x, shape={shape})"
            for shape in (
                "(0, -1)",
                "(-1, 0)",
                "(2, 3, -1)",
                "(-2,)",
                "(0, -2)",
                "(-3, -3)",
                "(0, -3, -2)",
                "(-4, 1, 2, -2)",
                "(0, -4, -1, 3, -2)",
                "(0, 0, -4, 7, -1, 0)",
                "(-1,)",
            )
        ),
        "sym.reshape(x, shape=(-1, 0), reverse=True)",
        "sym.reshape(x, shape=(0, -1, 3), reverse=True)",
        "sym.transpose(x)",
        "sym.transpose(x, axes=(0, 2, 3, 1))",
        "sym.SwapAxis(x, dim1=1, dim2=3)",
        "sym.expand_dims(x, axis=0)",
        "sym.expand_dims(x, axis=-1)",
        "sym.squeeze(sym.expand_dims(x, axis=2))",
        "sym.squeeze(sym.expand_dims(x, axis=2), axis=2)",
        "sym.slice(x, begin=(0, 1), end=(2, 5))",
        "sym.slice(x, begin=(None, None, -3), end=(None, None, None))",
        "sym.slice(x, begin=(0, 5, 0, 8), end=(2, 0, 7, None), step=(1, -2, 3, -1))",
        "sym.slice_axis(x, axis=1, begin=2, end=5)",
        "sym.slice_axis(x, axis=-1, begin=-4, end=None)",
        "sym.SliceChannel(x, num_outputs=3)",
        "sym.split(x, num_outputs=2, axis=0, squeeze_axis=True)",
        "sym.split(x, num_outputs=9, axis=3)[4]",
        "sym.tile(x, reps=(2, 3))",
        "sym.tile(x, reps=(2, 1, 1, 1, 2))",
        "sym.repeat(x, repeats=2, axis=1)",
        "sym.repeat(x, repeats=2)",
        "sym.reverse(x, axis=(1, 3))",
        "sym.Pad(x, mode='constant', pad_width=(0, 0, 0, 0, 1, 2, 3, 4), constant_value=0.5)",
        "sym.Pad(x, mode='edge', pad_width=(0, 0, 0, 0, 1, 2, 3, 4))",
        "sym.Pad(x, mode='reflect', pad_width=(0, 0, 0, 0, 1, 2, 3, 4))",
        "sym.UpSampling(x, scale=2, sample_type='nearest')",
        "contrib.BilinearResize2D(x, height=12, width=5)",
        "contrib.BilinearResize2D(x, height=12, width=18, align_corners=False)",
    ),
    **cases("sym.depth_to_space(x, block_size=2)", x=(2, 8, 3, 4)),
    **cases("sym.space_to_depth(x, block_size=2)", x=(2, 3, 4, 6)),
    **cases(
        "sym.broadcast_to(x, shape=(2, 3, 4))", "sym.broadcast_to(x, shape=(0, 3, 0))", x=(2, 1, 4)
    ),
    **cases("sym.broadcast_axis(x, axis=(1,), size=(5,))", x=(2, 1, 4)),
    **cases(
        "sym.Embedding(indices, input_dim=5, output_dim=3)",
        "sym.one_hot(indices, depth=5)",
        "sym.take(sym.var('table', shape=(5, 4)), indices)",
        indices=(2, 6),
    ),
    # ---- reductions
    **cases(
        *(
            f"sym.{name}(x, {options})"
            for name in ("sum", "mean", "max", "min", "prod")
            for options in ("", "axis=1", "axis=(2, 3), keepdims=True", "axis=-1, exclude=True")
        ),
        "sym.norm(x, axis=1)",
        "sym.norm(x, ord=1, axis=(2, 3), keepdims=True)",
        "sym.argmax(x, axis=1)",
        "sym.argmin(x, axis=-1, keepdims=True)",
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_operators_beside_mxnet(same, name):
    same(name)
