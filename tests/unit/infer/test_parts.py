"""Graphs in parts, and engines that share them."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer import load
from slipstream.infer.engines import Recipe, engine_of
from slipstream.infer.engines.protocol import Part
from slipstream.infer.graph.parts import cuts, even_cuts, part_of, pieces
from slipstream.infer.importers import Imported
from slipstream.infer.package.package import read, write
from slipstream.infer.package.report import Segment
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.search import search
from slipstream.infer.search.segments import SegmentContender, best_parts, measure_segments
from slipstream.infer.search.trial import weights_bytes

TEXT = """(float[1,3,8,8] x, float[1,8,8,8] late) => (float[1,5] y) {
    a = Conv <pads=[1,1,1,1]> (x, w) b = Relu(a)
    c = Conv <pads=[1,1,1,1]> (b, v) d = Add(c, b)
    e = Conv <pads=[1,1,1,1]> (d, u) f = Add(e, late)
    p = GlobalAveragePool(f) q = Flatten(p) y = Gemm(q, g)
}"""
ENGINES = ("native", "onnxruntime", "openvino")


def made(build, text=TEXT):
    random = np.random.default_rng(3)
    return build(
        text,
        w=random.standard_normal((8, 3, 3, 3)) / 5,
        v=random.standard_normal((8, 8, 3, 3)) / 8,
        u=random.standard_normal((8, 8, 3, 3)) / 8,
        g=random.standard_normal((8, 5)),
    )


@pytest.fixture(scope="module")
def graph(build):
    return made(build)


@pytest.fixture(scope="module")
def plain(build):
    """Return the same model with one input."""
    text = TEXT.replace(", float[1,8,8,8] late", "").replace("Add(e, late)", "Add(e, d)")
    return made(build, text)


@pytest.fixture(scope="module")
def feeds(graph):
    random = np.random.default_rng(4)
    return {
        name: random.standard_normal(value.fixed).astype(np.float32)
        for name, value in graph.inputs.items()
    }


def split(*parts):
    return Recipe(
        engine="split",
        parts=tuple(Part(end=end, recipe=Recipe(engine=engine)) for end, engine in parts),
    )


def test_cuts_are_where_all_goes_through_one_value(plain):
    assert cuts(plain) == ["a", "b", "d", "f", "p", "q"]


def test_a_late_input_is_in_the_way(graph):
    assert cuts(graph) == ["f", "p", "q"]


def test_outputs_and_other_dtypes_are_no_cuts(build):
    graph = build(
        "(float[4] x) => (float[4] y, float[4] z) { y = Relu(x) a = Cast <to=6> (y)"
        " b = Cast <to=1> (a) z = Neg(b) }"
    )
    assert cuts(graph) == []


@pytest.mark.parametrize("most", [1, 2, 3, 20])
def test_even_cuts_are_some_of_them_in_order(plain, most):
    chosen = even_cuts(plain, most)
    assert 1 <= len(chosen) <= most
    assert chosen == [name for name in cuts(plain) if name in chosen]


def test_even_cuts_divide_the_work(plain):
    assert even_cuts(plain, 2) == ["b", "d"]


def test_pieces_follow_each_other(plain):
    found = pieces(plain, ["b", "d"])
    assert [(list(piece.inputs), piece.outputs) for piece in found] == [
        (["x"], ["b"]),
        (["b"], ["d"]),
        (["d"], ["y"]),
    ]
    assert [sorted(piece.constants) for piece in found] == [["w"], ["v"], ["g", "u"]]


def test_a_part_gives_what_others_read(graph):
    part = part_of(graph, graph.nodes[:3])
    assert (list(part.inputs), part.outputs) == (["x"], ["b", "c"])


@pytest.mark.parametrize("first", ENGINES)
@pytest.mark.parametrize("second", ENGINES)
@pytest.mark.parametrize("end", ["f", "p"])
def test_two_engines_compute_what_one_does(graph, feeds, first, second, end):
    graph, _ = optimise(graph)
    recipe = split((end, first), ("", second))
    executable = engine_of("split").prepare(graph, recipe, 1)
    whole = engine_of("onnxruntime").prepare(graph, Recipe(engine="onnxruntime"), 1)
    expected = whole.run(feeds)
    found = executable.run(feeds)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(found["y"], expected["y"], rtol=1e-4, atol=1e-5)
    executable.close()
    whole.close()


def test_parts_whose_engine_cannot_are_refused(graph):
    with pytest.raises(UnsupportedError):
        engine_of("split").prepare(graph, split(("q", "onnxruntime"), ("", "inductor")), 1)
    with pytest.raises(UsageError, match="no engine"):
        engine_of("split").prepare(graph, split(("q", "onnxruntime"), ("", "magic")), 1)


# ---- what is fastest -----------------------------------------------------------------------------


def contenders(*engines):
    return [SegmentContender(name, engine_of(name), Recipe(engine=name)) for name in engines]


def test_every_part_is_timed_on_every_engine(plain):
    rewritten, _ = optimise(plain)
    x = {"x": np.ones((1, 3, 8, 8), np.float32)}
    told = []
    found = measure_segments(rewritten, contenders("native", "onnxruntime"), 1, x, 0.1, told.append)
    assert [item.end for item in found] == [*even_cuts(rewritten, 7), ""]
    assert all("onnxruntime" in item.ms and min(item.ms.values()) > 0 for item in found)
    assert "native" in found[0].ms
    assert len(told) == len(found)


def test_a_graph_that_cannot_be_cut_has_no_segments(build):
    graph = build("(float[4] x) => (float[4] y) { y = Relu(x) }")
    x = {"x": np.ones(4, np.float32)}
    assert measure_segments(graph, contenders("onnxruntime"), 1, x, 0.1, lambda text: None) == []


def test_the_best_of_each_part_neighbours_joined():
    names = "native", "onnxruntime"
    times = [("a", 1, 2), ("b", 1, 3), ("c", 4, 2), ("", 1, 2)]
    segments = [Segment(end=end, ms={names[0]: n, names[1]: o}) for end, n, o in times]
    recipe = best_parts(segments, contenders(*names))
    assert [(part.end, part.recipe.engine) for part in recipe.parts] == [
        ("b", "native"),
        ("c", "onnxruntime"),
        ("", "native"),
    ]
    assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe


def test_one_engine_that_is_best_everywhere_has_the_whole():
    segments = [Segment(end=end, ms={"native": 1, "onnxruntime": 2}) for end in ("a", "")]
    recipe = best_parts(segments, contenders("native", "onnxruntime"))
    assert (recipe.engine, recipe.parts) == ("native", ())


def test_the_precision_of_parts_is_the_least_faithful():
    floats, bytes_ = Recipe(engine="native"), Recipe(engine="openvino", precision="int8")
    both = [
        SegmentContender("native fp32", engine_of("native"), floats),
        SegmentContender("openvino int8", engine_of("openvino"), bytes_),
    ]
    segments = [
        Segment(end="a", ms={"native fp32": 1, "openvino int8": 2}),
        Segment(end="", ms={"native fp32": 2, "openvino int8": 1}),
    ]
    assert best_parts(segments, both).precision == "int8"


def test_the_search_times_parts_and_says_so(plain):
    found = search(Imported(plain, None, "it"), Objective(most_rounds=5, seconds=100))
    assert len(found.segments) > 1
    assert all(item.ms for item in found.segments)


def test_a_package_of_parts_can_be_loaded(compiled, plain, feeds, tmp_path):
    """Whatever the search finds on this machine, the form itself must work."""
    package = read(compiled)
    image = package.check.inputs["image"]
    end = cuts(package.graph)[0]
    recipe = split((end, "onnxruntime"), ("", "openvino"))
    manifest = package.manifest.model_copy(update={"recipe": recipe})
    path = tmp_path / "parts.slip"
    write(path, type(package)(manifest, lambda: package.graph, package.report, package.check, {}))
    with load(path) as model, load(compiled) as whole:
        np.testing.assert_allclose(model(image), whole(image), rtol=1e-4, atol=1e-5)


def test_weights_of_parts_are_those_of_their_recipes(plain):
    rewritten, _ = optimise(plain)
    end = cuts(rewritten)[0]
    whole = [Recipe(engine="native", precision=each) for each in ("fp32", "bf16")]
    halves = Recipe(engine="split", parts=tuple(Part(end=e, recipe=whole[1]) for e in (end, "")))
    assert weights_bytes(rewritten, halves) == weights_bytes(rewritten, whole[1])
    mixed = Recipe(
        engine="split",
        parts=(Part(end=end, recipe=whole[0]), Part(end="", recipe=whole[1])),
    )
    sizes = [weights_bytes(rewritten, each) for each in (whole[1], mixed, whole[0])]
    assert sizes == sorted(sizes)
