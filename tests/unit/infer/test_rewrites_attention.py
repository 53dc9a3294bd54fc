"""Attention of several heads, and the projections before it."""

from __future__ import annotations

import math

import pytest

from slipstream.infer.rewrites import optimise

TOKENS, HEADS, SIZE = 5, 2, 4

SPLIT = "a = Reshape(q, heads) b = Reshape(k, heads) c = Reshape(v, heads)"
TURN = "d = Transpose <perm=[0,2,1,3]> (a) e = Transpose <perm=[0,2,1,3]> (c)"
KEYS = "f = Transpose <perm=[0,2,3,1]> (b)"
KEYS_TWICE = "b2 = Transpose <perm=[0,2,1,3]> (b) f = Transpose <perm=[0,1,3,2]> (b2)"
SCORES = "s = MatMul(d, f) t = Div(s, root)"
MIX = "p = Softmax <axis=-1> (t) m = MatMul(p, e)"
MASKED = "u = Add(t, mask) p = Softmax <axis=-1> (u) m = MatMul(p, e)"
JOIN = "j = Transpose <perm=[0,2,1,3]> (m) y = Reshape(j, joined)"

PLAIN = f"{SPLIT} {TURN} {KEYS} {SCORES} {MIX} {JOIN}"
WITH_MASK = PLAIN.replace(MIX, MASKED)

PACKED = f"""
    h = Reshape(x, parts) o = Transpose <perm=[2,0,3,1,4]> (h)
    SELECT
    f = Transpose <perm=[0,1,3,2]> (k) d2 = Mul(d, scale) f2 = Mul(f, scale)
    t = MatMul(d2, f2) {MIX} {JOIN}
"""
UNBOUND = """
    d1, k1, e1 = Split <axis=0> (o, ones)
    d = Squeeze(d1, zeros) k = Squeeze(k1, zeros) e = Squeeze(e1, zeros)
"""
GATHERED = """
    d = Gather <axis=0> (o, zero) k = Gather <axis=0> (o, one) e = Gather <axis=0> (o, two)
"""

SLICED = """
    d1 = Slice(o, zeros, firsts, zeros) k1 = Slice(o, firsts, seconds, zeros)
    e1 = Slice(o, seconds, thirds, zeros)
    d = Squeeze(d1, zeros) k = Squeeze(k1, zeros) e = Squeeze(e1, zeros)
"""


def written(build, text, *, inputs=None, outputs="float[2,5,8] y", **constants):
    given = {
        "heads": [2, TOKENS, HEADS, SIZE],
        "parts": [2, TOKENS, 3, HEADS, SIZE],
        "joined": [2, TOKENS, HEADS * SIZE],
        "root": math.sqrt(SIZE),
        "scale": [SIZE**-0.25],
        **{"zero": 0, "one": 1, "two": 2, "zeros": [0], "ones": [1, 1, 1]},
        **{"firsts": [1], "seconds": [2], "thirds": [3]},
    }
    inputs = inputs or "float[2,5,8] q, float[2,5,8] k, float[2,5,8] v, float[2,1,1,5] mask"
    return build(f"({inputs}) => ({outputs}) {{ {text} }}", **(given | constants))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace(KEYS, KEYS_TWICE),
        PLAIN.replace(SCORES, "d2 = Mul(scale, d) f2 = Mul(f, scale) t = MatMul(d2, f2)"),
        PLAIN.replace(SCORES, "d2 = Div(d, root) t = MatMul(d2, f)"),
    ],
)
def test_without_mask(build, rewritten, text):
    outcome = rewritten(written(build, text))
    assert outcome.ops == ["Attention"]
    node = outcome.node("Attention")
    assert (node.inputs, node.get("heads")) == (["q", "k", "v"], HEADS)
    assert node.get("scale") == pytest.approx(0.5)


def test_without_scale(build, rewritten):
    outcome = rewritten(written(build, PLAIN.replace(SCORES, "t = MatMul(d, f)")))
    assert outcome.node("Attention").get("scale") == 1


@pytest.mark.parametrize("shape", ["2,1,1,5", "1,1,5,5", "5,5", "2,2,5,5", "5"])
@pytest.mark.parametrize("operands", ["(t, mask)", "(mask, t)"])
def test_with_mask(build, rewritten, shape, operands):
    inputs = f"float[2,5,8] q, float[2,5,8] k, float[2,5,8] v, float[{shape}] mask"
    text = WITH_MASK.replace("(t, mask)", operands)
    outcome = rewritten(written(build, text, inputs=inputs))
    assert outcome.node("Attention").inputs == ["q", "k", "v", "mask"]


@pytest.mark.parametrize("select", [UNBOUND, GATHERED, SLICED])
def test_queries_keys_and_values_of_one_projection(build, rewritten, select):
    text = PACKED.replace("SELECT", select)
    outcome = rewritten(written(build, text, inputs="float[2,5,24] x"))
    assert outcome.ops == ["Attention", "Split"]
    assert outcome.node("Split").outputs == outcome.node("Attention").inputs


def test_attention_to_other_tokens(build, rewritten):
    inputs = "float[2,5,8] q, float[2,3,8] k, float[2,3,8] v"
    text = PLAIN.replace("Reshape(k, heads)", "Reshape(k, others)")
    text = text.replace("Reshape(v, heads)", "Reshape(v, others)")
    graph = written(build, text, inputs=inputs, others=[2, 3, HEADS, SIZE])
    assert rewritten(graph).ops == ["Attention"]


def test_unknown_batch_and_tokens(build, rewritten):
    inputs = "float[b,5,8] q, float[b,n,8] k, float[b,n,8] v, float[b,1,1,n] mask"
    graph = written(
        build,
        WITH_MASK,
        inputs=inputs,
        outputs="float[b,5,8] y",
        heads=[0, 0, HEADS, SIZE],
        joined=[-1, TOKENS, HEADS * SIZE],
    )
    assert rewritten(graph).ops == ["Attention"]


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("axis=-1", "axis=2"),
        PLAIN.replace(KEYS, "f = Transpose <perm=[0,2,1,3]> (b)"),
        PLAIN.replace("d = Transpose <perm=[0,2,1,3]> (a)", "d = Reshape(a, turned)"),
        PLAIN.replace("j = Transpose <perm=[0,2,1,3]> (m)", "j = Reshape(m, heads)"),
        PLAIN.replace("MatMul(p, e)", "MatMul(e, p)"),
        WITH_MASK.replace("Add", "Mul"),
    ],
)
def test_other_layouts_match_nothing(build, text):
    turned = [2, HEADS, TOKENS, SIZE]
    graph = written(build, text, turned=turned, outputs="float[k,l,m] y")
    assert "Attention" not in [node.op for node in optimise(graph)[0].nodes]


def test_a_result_of_another_shape_matches_nothing(build, rewritten):
    graph = written(build, PLAIN, joined=[5, 2, 8], outputs="float[5,2,8] y")
    assert "Attention" not in rewritten(graph).ops


def test_a_mask_that_widens_the_scores_matches_nothing(build, rewritten):
    inputs = "float[1,5,8] q, float[1,5,8] k, float[1,5,8] v, float[2,1,1,5] mask"
    graph = written(build, WITH_MASK, inputs=inputs, heads=[1, TOKENS, HEADS, SIZE])
    assert "Attention" not in rewritten(graph).ops


@pytest.mark.parametrize("name", ["s", "t", "p", "m", "j", "f", "d"])
def test_inner_values_that_are_outputs_match_nothing(build, rewritten, name):
    graph = written(build, PLAIN, outputs=f"float[2,5,8] y, float[2,h,i,j] {name}")
    assert "Attention" not in rewritten(graph).ops


# ---- projections ------------------------------------------------------------------------------

PROJECTIONS = "q0 = MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(z, wv)"
BIASES = "q = Add(q0, bq) k = Add(k0, bk) v = Add(v0, bv)"
UNBIASED = "q = Identity(q0) k = Identity(k0) v = Identity(v0)"


def projected(build, random, text, *, same=True):
    return written(
        build,
        f"{PROJECTIONS.replace('(z', '(x') if same else PROJECTIONS} {text} {PLAIN}",
        inputs="float[2,5,6] x, float[2,5,6] z",
        **{name: random.standard_normal((6, 8)) for name in ("wq", "wk", "wv")},
        **{name: random.standard_normal(8) for name in ("bq", "bk", "bv")},
    )


@pytest.mark.parametrize("text", [BIASES, UNBIASED])
def test_projections_of_one_value_are_one(build, rewritten, random, text):
    outcome = rewritten(projected(build, random, text))
    assert outcome.ops == ["Attention", "Linear", "Split"]
    assert outcome.graph.shape(outcome.node("Linear").output) == (2, 5, 24)


def test_projections_of_two_values_stay(build, rewritten, random):
    outcome = rewritten(projected(build, random, BIASES, same=False))
    assert outcome.ops == ["Attention", "Linear", "Linear", "Linear"]


def test_projections_of_which_one_has_no_bias_stay(build, rewritten, random):
    text = BIASES.replace("Add(k0, bk)", "Identity(k0)")
    outcome = rewritten(projected(build, random, text))
    assert outcome.ops == ["Attention", "Linear", "Linear", "Linear"]


def test_projections_left_out(build, rewritten, random):
    outcome = rewritten(projected(build, random, BIASES), without=["projections"])
    assert outcome.ops == ["Attention", "Linear", "Linear", "Linear"]


def test_attention_left_out(build, rewritten):
    assert "Softmax" in rewritten(written(build, PLAIN), without=["attention"]).ops
