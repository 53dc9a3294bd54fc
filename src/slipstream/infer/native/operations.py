"""Table that gives, for each operator, the function that plans the operator's memory and steps."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.infer.native.images import global_mean, normalise, pooling, squeeze_excite
from slipstream.infer.native.lowering import Lowering
from slipstream.infer.native.moves import concat, relayout, resize, split
from slipstream.infer.native.pointwise import multiply, pointwise
from slipstream.infer.native.products import convolution, linear
from slipstream.infer.native.stages import Stage
from slipstream.infer.native.text import attention, layer_norm, softmax
from slipstream.infer.native.transposed import transposed_convolution

OPERATIONS: dict[str, Callable[[Lowering, Stage], None]] = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Linear": linear,
    "Gemm": linear,
    "Mul": multiply,
    "SqueezeExcite": squeeze_excite,
    "Pixels": normalise,
    "GlobalAveragePool": global_mean,
    "ReduceMean": global_mean,
    "MaxPool": pooling,
    "AveragePool": pooling,
    "Concat": concat,
    "Split": split,
    "Resize": resize,
    "LayerNormalization": layer_norm,
    "Attention": attention,
    "Softmax": softmax,
    **dict.fromkeys(
        (
            "Add",
            "Relu",
            "Clip",
            "Silu",
            "HardSwish",
            "Sigmoid",
            "HardSigmoid",
            "Gelu",
            "Tanh",
            "LeakyRelu",
            "InverseRoot",
        ),
        pointwise,
    ),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"), relayout),
}
