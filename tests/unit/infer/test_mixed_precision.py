"""Mixed precision: which values stay in floating point."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import _kernels as kernels
from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.data import load_data
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.importers import Imported
from slipstream.infer.native.precision import storable
from slipstream.infer.package.report import State
from slipstream.infer.quantize.observe import METHODS, observe
from slipstream.infer.rewrites import optimise
from slipstream.infer.search.mixed_precision import MixedPrecision, PrecisionPart
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.search import search
from slipstream.infer.search.time_limit import TimeLimit
from slipstream.infer.search.trial import weights_bytes

LAYERS = "".join(
    f"c{i} = Conv <pads=[1,1,1,1]> (r{i - 1}, w{i}) r{i} = Relu(c{i})\n" for i in range(1, 6)
)
TEXT = f"""(float[1,3,10,10] r0) => (float[1,5] logits) {{
    {LAYERS} p = GlobalAveragePool(r5) f = Flatten(p) logits = Gemm(f, v)
}}"""
CONVOLVED = ("r1", "r2", "r3", "r4")
SENSITIVE = "r2"  # one channel of it is a thousand times the others


@pytest.fixture(scope="module")
def graph(build):
    random = np.random.default_rng(3)
    sizes = [3, 32, 32, 32, 32, 32]
    weights = {
        f"w{i}": random.standard_normal((sizes[i], sizes[i - 1], 3, 3)) / np.sqrt(9 * sizes[i - 1])
        for i in range(1, 6)
    }
    weights["w2"][7] *= 1000
    weights["w3"][:, 7] /= 1000
    return build(TEXT, **weights, v=random.standard_normal((32, 5)))


@pytest.fixture(scope="module")
def samples(graph):
    random = np.random.default_rng(11)
    return load_data(list(random.standard_normal((40, 3, 10, 10)).astype(np.float32)), graph)


@pytest.fixture(scope="module")
def cases(graph, samples):
    reference = Reference(graph, 1, "the graph")
    yield reference.cases(samples[index] for index in range(8))
    reference.close()


def mixture_of(graph, samples, cases, engine="native", methods=METHODS):
    rewritten, _ = optimise(graph)
    inputs = [samples[index].inputs for index in range(8)]
    found = observe(rewritten, inputs, storable(rewritten))
    ranges = [{name: values.range(method) for name, values in found.items()} for method in methods]
    recipe = Recipe(engine=engine, precision="int8", ranges=ranges[0])
    return MixedPrecision(ENGINES[engine], rewritten, recipe, ranges, 1, cases), recipe


def names(parts):
    return sorted(name for part in parts for name in part.ranges)


@pytest.mark.parametrize("engine", ["native", "onnxruntime"])
def test_the_value_that_costs_most_comes_first(graph, samples, cases, engine):
    """Only values that convolutions read count; the others save almost no time."""
    mixture, recipe = mixture_of(graph, samples, cases, engine)
    order = mixture.order(60, lambda text: None)
    assert next(n for part in order for n in part.ranges if n in CONVOLVED) == SENSITIVE
    assert names(order) == sorted(recipe.ranges)


def test_values_are_measured_together_where_time_is_short(graph, samples, cases):
    mixture, recipe = mixture_of(graph, samples, cases)
    order = mixture.order(0, lambda text: None)
    assert len(order) == 2
    assert names(order) == sorted(recipe.ranges)


def test_every_value_has_the_ranges_of_the_least_noise(graph, samples, cases):
    best = {n: p.noise for p in order_of(graph, samples, cases, METHODS) for n in p.ranges}
    for method in METHODS:
        for part in order_of(graph, samples, cases, [method]):
            (name,) = part.ranges
            assert best[name] <= part.noise * 1.01


def order_of(graph, samples, cases, methods):
    return mixture_of(graph, samples, cases, methods=methods)[0].order(60, lambda text: None)


def test_halving_finds_how_many_have_to_stay(graph, samples, cases):
    """The results get better with every value that stays, and a certain number is enough."""
    mixture, _ = mixture_of(graph, samples, cases)
    order = mixture.order(60, lambda text: None)
    quality = [mixture._compared(mixture.of(order[n:]), cases).snr_db for n in range(len(order))]
    for wanted in range(len(order) + 1):
        if wanted and wanted < len(order) and quality[wanted] in quality[:wanted]:
            continue  # one more value that stays changes nothing
        enough = set(quality[wanted:])
        found = mixture.least(order, lambda it, enough=enough: it.snr_db in enough)
        assert found == wanted


def test_what_is_good_enough_as_bytes_after_all_becomes_bytes(graph, samples, cases):
    mixture, _ = mixture_of(graph, samples, cases)
    order = mixture.order(60, lambda text: None)
    first = next(at for at, part in enumerate(order) if SENSITIVE in part.ranges)
    order = [order[first], *order[:first], *order[first + 1 :]]
    least = mixture._compared(mixture.of(order[1:]), cases).snr_db - 3
    for count in (1, 4):
        taken = mixture.pruned(order, count, lambda it: it.snr_db >= least, lambda: True)
        assert names(taken) == names(order[1:])
    assert mixture.pruned(order, 4, lambda it: True, lambda: False) == order[4:]


def test_only_the_parts_become_bytes(graph, samples, cases):
    mixture, _ = mixture_of(graph, samples, cases)
    ends = {SENSITIVE: (0.0, 1.0)}
    assert mixture.of([PrecisionPart(ends, 1, 1)]).ranges == ends


def test_the_search_keeps_the_sensitive_value_in_floating_point(graph, samples):
    found = search(
        Imported(graph, None, "it"), Objective(most_rounds=5, seconds=100, snr_db=30), samples
    )
    whole = [c for c in found.candidates if c.precision == "int8" and not c.kept]
    mixed = [c for c in found.candidates if c.kept and c.state is not State.REJECTED]
    assert all(item.state is State.REJECTED for item in whole)
    assert {item.engine for item in mixed} >= {"native", "onnxruntime"}
    assert all(item.snr_db >= 30 and item.median_ms > 0 for item in mixed)
    assert min(item.kept for item in mixed) < 3
    assert all("int8+" in item.title for item in mixed)


def test_a_mixture_that_cannot_be_good_enough_is_not_proposed(graph, samples):
    found = search(
        Imported(graph, None, "it"), Objective(most_rounds=5, seconds=100, snr_db=90), samples
    )
    assert not any(item.kept for item in found.candidates)
    assert any("no mixed precision" in note for note in found.notes)


def test_bytes_that_are_good_enough_are_not_mixed(net):
    random = np.random.default_rng(11)
    images = list(random.standard_normal((16, 3, 8, 8)).astype(np.float32))
    found = search(
        Imported(net, None, "it"), Objective(most_rounds=5, seconds=100), load_data(images, net)
    )
    assert not any(item.kept for item in found.candidates)


def test_weights_of_what_stays_are_counted_as_floats(graph):
    rewritten, _ = optimise(graph)
    recipe = Recipe(engine="native", precision="int8")
    ends = dict.fromkeys(storable(rewritten), (-1.0, 1.0))
    sizes = [
        weights_bytes(rewritten, recipe.model_copy(update={"ranges": ranges, "rest": rest}))
        for ranges in (ends, {n: e for n, e in ends.items() if n != SENSITIVE}, {})
        for rest in ("bf16", "fp32")
    ]
    layer = 32 * 32 * 9
    assert sizes[0] == sizes[1]
    assert sizes[2] - sizes[0] == layer
    assert sizes[3] - sizes[0] == 3 * layer
    assert sizes[5] == weights_bytes(rewritten, Recipe(engine="native"))


def test_values_that_the_engine_leaves_to_another_one_are_no_trouble(build):
    """Our kernels have no CumSum, so what follows it is ONNX Runtime's."""
    random = np.random.default_rng(3)
    graph = build(
        """(float[1,3,10,10] x) => (float[1,5] logits) {
            c = Conv <pads=[1,1,1,1]> (x, w1) r = Relu(c) d = Conv <pads=[1,1,1,1]> (r, w2)
            e = Relu(d) p = GlobalAveragePool(e) f = Flatten(p) s = CumSum(f, one) t = Relu(s)
            logits = Gemm(t, v)
        }""",
        one=np.array(1),
        w1=random.standard_normal((32, 3, 3, 3)) / 5,
        w2=random.standard_normal((32, 32, 3, 3)) / 16,
        v=random.standard_normal((32, 5)),
    )
    samples = load_data(list(random.standard_normal((16, 3, 10, 10)).astype(np.float32)), graph)
    reference = Reference(graph, 1, "the graph")
    cases = reference.cases(samples[index] for index in range(4))
    reference.close()
    mixture, recipe = mixture_of(graph, samples, cases)
    order = mixture.order(60, lambda text: None)
    assert names(order) == sorted(recipe.ranges)
    assert order[-1].noise == 0
    assert mixture.least(order, lambda found: False) == len(order)
    assert mixture.pruned(order, len(order), lambda found: True, lambda: True)
    found = search(
        Imported(graph, None, "it"), Objective(most_rounds=5, seconds=100, snr_db=90), samples
    )
    assert found.recipe.precision != "int8"


def test_matrices_beside_bytes_may_find_their_ranges_in_each_call(build):
    """If bytes are too coarse in all other cases, products use them with their own ranges."""
    random = np.random.default_rng(5)
    graph = build(
        """(float[8,64] x) => (float[8,64] y) {
            a = Gemm(x, u) r = Relu(a) b = Gemm(r, v) s = Relu(b) y = Gemm(s, w)
        }""",
        u=random.standard_normal((64, 256)) / 8,
        v=random.standard_normal((256, 256)) / 16,
        w=random.standard_normal((256, 64)) / 16,
    )
    rows = random.standard_normal((160, 8, 64)) * 10.0 ** random.integers(-1, 2, (160, 8, 1))
    samples = load_data(list(rows.astype(np.float32)), graph)
    asked = 32 if kernels.adds_pairs() else 34
    found = search(
        Imported(graph, None, "it"), Objective(most_rounds=5, seconds=100, snr_db=asked), samples
    )
    mixed = [item for item in found.candidates if item.rest == "int8-dynamic"]
    assert mixed
    assert {item.engine for item in mixed} == {"native"}
    assert all(item.snr_db > asked and item.kept > 0 for item in mixed)
    assert {item.rest for item in found.candidates if item.engine != "native"} == {"fp32"}
    goal = Objective(most_rounds=5, seconds=100, snr_db=asked - 1, engines=("onnxruntime",))
    found = search(Imported(graph, None, "it"), goal, samples)
    assert {item.rest for item in found.candidates} == {"fp32"}


def test_a_mixture_that_was_found_late_is_still_made_ready(graph, samples, monkeypatch):
    """The search for it once took all of the time, and nothing was prepared after it."""
    whole, seconds = MixedPrecision.pruned, [0.0]

    def slow(self, order, count, is_good, go_on):
        found = whole(self, order, count, is_good, go_on)
        while go_on():
            seconds[0] += 1
        return found

    monkeypatch.setattr(MixedPrecision, "pruned", slow)
    limit = TimeLimit(400, lambda: seconds[0])
    goal = Objective(most_rounds=5, seconds=400, snr_db=30)
    found = search(Imported(graph, None, "it"), goal, samples, limit=limit)
    mixed = [item for item in found.candidates if item.kept]
    assert any(item.snr_db is not None and item.snr_db >= 30 for item in mixed)
