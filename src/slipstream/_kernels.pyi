from collections.abc import Sequence
import enum
from typing import Annotated, Any

import numpy
import numpy.typing
from numpy.typing import NDArray


class Number(enum.Enum):
    FLOAT32 = 0

    UINT8 = 1

    BFLOAT16 = 2

class Activation(enum.Enum):
    NONE = 0

    SILU = 1

    HARD_SWISH = 2

    SIGMOID = 3

    HARD_SIGMOID = 4

    GELU = 5

    TANH = 6

    LEAKY_RELU = 7

    INVERSE_ROOT = 8

class Adds(enum.Enum):
    NOTHING = 0

    BEFORE = 1

    AFTER = 2

class Pooling(enum.Enum):
    MAX = 0

    MEAN = 1

class Tensor:
    def __init__(self, number: Number, buffer: int, offset: int, sizes: Sequence[int], pitch: Sequence[int]) -> None: ...

class Operands:
    def __init__(self, input: Tensor, output: Tensor, addend: Tensor | None = None, factors: Tensor | None = None, gate: Tensor | None = None, room: Tensor | None = None, ranges: Tensor | None = None) -> None: ...

class Window:
    def __init__(self, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], before: Sequence[int]) -> None: ...

class Epilogue:
    def __init__(self, scale: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None: ...

    def offset(self, values: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)]) -> None:
        """Set the numbers added per channel after a factor of the run."""

    @property
    def activation(self) -> Activation: ...

    @activation.setter
    def activation(self, arg: Activation, /) -> None: ...

    @property
    def alpha(self) -> float: ...

    @alpha.setter
    def alpha(self, arg: float, /) -> None: ...

    @property
    def beta(self) -> float: ...

    @beta.setter
    def beta(self, arg: float, /) -> None: ...

    @property
    def coarse(self) -> bool: ...

    @coarse.setter
    def coarse(self, arg: bool, /) -> None: ...

    @property
    def stretch(self) -> float: ...

    @stretch.setter
    def stretch(self, arg: float, /) -> None: ...

    @property
    def shift(self) -> float: ...

    @shift.setter
    def shift(self, arg: float, /) -> None: ...

    @property
    def low(self) -> float: ...

    @low.setter
    def low(self, arg: float, /) -> None: ...

    @property
    def high(self) -> float: ...

    @high.setter
    def high(self, arg: float, /) -> None: ...

    @property
    def output(self) -> Number: ...

    @output.setter
    def output(self, arg: Number, /) -> None: ...

    @property
    def adds(self) -> Adds: ...

    @adds.setter
    def adds(self, arg: Adds, /) -> None: ...

    @property
    def addend(self) -> Number: ...

    @addend.setter
    def addend(self, arg: Number, /) -> None: ...

    @property
    def addend_weight(self) -> float: ...

    @addend_weight.setter
    def addend_weight(self, arg: float, /) -> None: ...

def adds_pairs() -> bool:
    """
    Tell whether this CPU adds products of bytes in 16 bits. Then sums of two neighbouring
    weights of one sign, and of four of two units, must be at most 128.
    """

def level() -> int:
    """Return 0 for float32 only, 1 for bytes, 2 for bfloat16 as well."""

class Workers:
    def __init__(self, threads: int) -> None: ...

    @property
    def threads(self) -> int: ...

class Program:
    def __init__(self, bytes: int) -> None: ...

    @property
    def names(self) -> list[str]: ...

    def run(self, buffers: Sequence[numpy.typing.NDArray[Any]], workers: Workers) -> None: ...

    def profile(self, buffers: Sequence[numpy.typing.NDArray[Any]], workers: Workers) -> list[float]: ...

    def convolution(self, operands: Operands, window: Window, weights: numpy.typing.NDArray[Any], epilogue: Epilogue) -> None: ...

    def depthwise(self, operands: Operands, window: Window, weights: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], whole: bool, epilogue: Epilogue) -> None: ...

    def border(self, inner: Tensor, around: Sequence[int], byte: int) -> None: ...

    def pooling(self, input: Tensor, output: Tensor, window: Window, kind: Pooling, count_outside: bool) -> None: ...

    def global_mean(self, input: Tensor, output: Tensor, scale: float, zero: float) -> None: ...

    def gate(self, input: Tensor, factors: Tensor, output: Tensor, offset: float, scale: float, shift: float, low: float, high: float) -> None: ...

    def copy(self, input: Tensor, output: Tensor, sizes: Sequence[int], source: Sequence[int], target: Sequence[int], scale: float, shift: float) -> None: ...

    def normalise(self, input: Tensor, output: Tensor, scale: Sequence[float], shift: Sequence[float]) -> None: ...

    def layer_norm(self, input: Tensor, output: Tensor, epsilon: float, epilogue: Epilogue) -> None: ...

    def quantise(self, input: Tensor, output: Tensor, ranges: Tensor) -> None: ...

    def softmax(self, input: Tensor, output: Tensor) -> None: ...

    def attention(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, output: Tensor, heads: int, scale: float, epilogue: Epilogue) -> None: ...

def as_floats(weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """Copy a matrix (channel, row) of any strides to contiguous rows."""

def as_halves(weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """Copy a matrix like as_floats, rounded to bfloat16."""

def as_bytes(weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], out: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order='C', device='cpu')], scale: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], sums: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> None:
    """Round a matrix to int8, with a scale and sum per channel."""

def resize(source: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], box: Sequence[float], target: Annotated[NDArray[numpy.uint8], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
    """
    Resize the part of an image in a box (top, left, bottom, right) to fill the target.
    """
