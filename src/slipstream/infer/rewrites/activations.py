"""An activation that exporters write as several operators becomes one operator.

`slipstream.Silu(x)` is x sigmoid(x). `slipstream.Gelu(x)` is x Phi(x) with the normal distribution
Phi; the attribute `approximate` of Gelu says whether erf ("none") or tanh ("tanh") computes Phi.
HardSwish is an operator of ONNX.
"""

from __future__ import annotations

import math

from slipstream.infer.graph.graph import SLIPSTREAM, Node
from slipstream.infer.rewrites.editor import Editor, Replacement, rewrite
from slipstream.infer.rewrites.patterns import factors, factors_of, is_close, plus

HARD_SWISH_OPSET = 14
CUBIC = 0.044715  # factor of x^3 in GELU's approximation by tanh: Hendrycks and Gimpel (2016)


def _pair(editor: Editor, node: Node, scale: float) -> list[tuple[str, str]]:
    """Return the pairs (x, y) and (y, x) if the node computes `scale` * x * y, else no pair."""
    number, values = factors_of(editor, node)
    if not is_close(number, scale) or len(values) != 2:
        return []
    one, other = values
    return [(one, other), (other, one)]


def _silu(editor: Editor, node: Node) -> Replacement:
    """Replace x * Sigmoid(x) by slipstream.Silu(x)."""
    for x, gate in _pair(editor, node, 1):
        sigmoid = editor.only(gate, "Sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] == x:
            return [Node("Silu", [x], node.outputs, domain=SLIPSTREAM, name=node.name)]
    return None


# ---- HardSwish --------------------------------------------------------------------------------


def _hard_swish(editor: Editor, node: Node) -> Replacement:
    """Replace x * HardSigmoid(x), or x * Clip(x + 3, 0, 6) / 6, by HardSwish(x)."""
    if editor.opset < HARD_SWISH_OPSET:
        return None
    matched = [x for x, gate in _pair(editor, node, 1) if _is_hard_sigmoid(editor, gate, x)]
    matched += [x for x, gate in _pair(editor, node, 1 / 6) if _clipped(editor, gate) == x]
    return [Node("HardSwish", matched[:1], node.outputs, name=node.name)] if matched else None


def _is_hard_sigmoid(editor: Editor, name: str, x: str) -> bool:
    node = editor.only(name, "HardSigmoid")
    return node is not None and node.inputs[0] == x and is_sixth(node)


def is_sixth(node: Node) -> bool:
    """Return whether a HardSigmoid is that of PyTorch, which computes relu6(x + 3) / 6."""
    return is_close(node.get("alpha", 0.2), 1 / 6) and is_close(node.get("beta", 0.5), 0.5)


def _clipped(editor: Editor, name: str) -> str | None:
    """Return x if the value is Clip(x + 3, 0, 6), else None."""
    node = editor.only(name, "Clip")
    if node is None or len(node.inputs) != 3:
        return None
    bounds = [editor.scalar(bound) for bound in node.inputs[1:]]
    return plus(editor, node.inputs[0], 3) if bounds == [0, 6] else None


def _hard_sigmoid(editor: Editor, node: Node) -> Replacement:
    """Replace Clip(x + 3, 0, 6) / 6 by HardSigmoid(x)."""
    number, values = factors_of(editor, node)
    x = _clipped(editor, values[0]) if is_close(number, 1 / 6) and len(values) == 1 else None
    if x is None:
        return None
    return [Node("HardSigmoid", [x], node.outputs, {"alpha": 1 / 6, "beta": 0.5}, name=node.name)]


# ---- GELU -------------------------------------------------------------------------------------


def _gelu(editor: Editor, node: Node) -> Replacement:
    """Replace x * 0.5 * (1 + e) by slipstream.Gelu(x).

    The term e is Erf(x / sqrt(2)) or Tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
    """
    for x, gate in _pair(editor, node, 0.5):
        inner = plus(editor, gate, 1)
        if inner is None:
            continue
        for approximate, is_inner in (("none", _is_erf), ("tanh", _is_tanh)):
            if is_inner(editor, inner, x):
                attributes = {"approximate": approximate}
                return [Node("Gelu", [x], node.outputs, {**attributes}, SLIPSTREAM, node.name)]
    return None


def _is_erf(editor: Editor, name: str, x: str) -> bool:
    erf = editor.only(name, "Erf")
    if erf is None:
        return False
    scale, values = factors(editor, erf.inputs[0])
    return values == [x] and is_close(scale, math.sqrt(0.5))


def _is_tanh(editor: Editor, name: str, x: str) -> bool:
    tanh = editor.only(name, "Tanh")
    if tanh is None:
        return False
    scale, values = factors(editor, tanh.inputs[0])
    if not is_close(scale, math.sqrt(2 / math.pi)):
        return False
    if len(values) == 1:
        term = _other_term(editor, values[0], x)
        return term is not None and _is_cubic(editor, term, x, 3)
    if len(values) == 2 and x in values:
        term = plus(editor, values[1 - values.index(x)], 1)
        return term is not None and _is_cubic(editor, term, x, 2)
    return False


def _other_term(editor: Editor, name: str, x: str) -> str | None:
    """Return y if the value is x + y, else None."""
    node = editor.only(name, "Add")
    if node is None or x not in node.inputs:
        return None
    return node.inputs[1 - node.inputs.index(x)]


def _is_cubic(editor: Editor, name: str, x: str, exponent: int) -> bool:
    """Return whether the value is 0.044715 * x^n, where n is `exponent`."""
    scale, values = factors(editor, name)
    return is_close(scale, CUBIC) and sum(_degree(editor, value, x) for value in values) == exponent


def _degree(editor: Editor, name: str, x: str) -> float:
    """Return the exponent if the value is a power of x, else nan."""
    if name == x:
        return 1
    node = editor.only(name, "Pow")
    if node is None or node.inputs[0] != x:
        return math.nan
    return editor.scalar(node.inputs[1]) or math.nan


REWRITES = (
    rewrite("silu", "x sigmoid(x) becomes one operator", _silu, "Mul"),
    rewrite("hard-swish", "x relu6(x + 3) / 6 becomes one operator", _hard_swish, "Div", "Mul"),
    rewrite("hard-sigmoid", "relu6(x + 3) / 6 becomes one operator", _hard_sigmoid, "Div", "Mul"),
    rewrite(
        "gelu",
        "x (1 + erf(x / sqrt(2))) / 2, or by tanh, becomes one operator",
        _gelu,
        "Div",
        "Mul",
    ),
)
