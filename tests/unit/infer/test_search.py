"""The search: what it tries, what it rejects, what it chooses."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import ENOUGH
from slipstream.infer.data import load_data
from slipstream.infer.engines import ENGINES, FLOATS, Recipe
from slipstream.infer.importers import Imported, load_model
from slipstream.infer.package.report import State
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.search import search
from slipstream.infer.search.trial import weights_bytes


@pytest.fixture(scope="module")
def imported(net):
    return Imported(net, None, "the net")


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(11)
    return random.standard_normal((40, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def samples(net, images):
    return load_data(list(images), net)


@pytest.fixture(scope="module")
def found(imported, samples):
    return search(imported, goal(snr_db=20), samples)


def goal(**more):
    return Objective(**{"seconds": 60, "most_rounds": 5, **more})


def titles(found, *states):
    return {item.title for item in found.candidates if item.state in states}


def test_every_engine_is_tried_in_every_precision_it_has(found):
    for engine in ENGINES.values():
        if engine.available() is None:
            tried = {item.precision for item in found.candidates if item.engine == engine.name}
            assert tried == set(engine.precisions()) - {"int8-dynamic"}


def test_ranges_that_calls_find_are_tried_where_most_work_is_products_of_matrices(build):
    random = np.random.default_rng(5)
    graph = build(
        """(float[1,64] x) => (float[1,64] y) {
            a = Gemm(x, v, b) r = Relu(a) y = Gemm(r, w, b)
        }""",
        v=random.standard_normal((64, 64)) / 8,
        w=random.standard_normal((64, 64)) / 8,
        b=random.standard_normal(64),
    )
    images = load_data(list(random.standard_normal((40, 64)).astype(np.float32)), graph)
    found = search(Imported(graph, None, "the net"), goal(snr_db=25), images)
    tried = [item for item in found.candidates if item.precision == "int8-dynamic"]
    assert {item.engine for item in tried} == {
        engine.name
        for engine in ENGINES.values()
        if engine.available() is None and "int8-dynamic" in engine.precisions()
    }
    assert all(item.snr_db > 25 and item.weights_bytes < 4 * 64 * 64 * 2 for item in tried)


def test_floating_point_is_tried_on_both_graphs(found):
    routes = {(item.engine, item.rewrites) for item in found.candidates if item.precision == "fp32"}
    assert routes >= {
        ("onnxruntime", True),
        ("onnxruntime", False),
        ("openvino", True),
        ("openvino", False),
        ("native", True),
    }


def test_the_chosen_one_comes_first_and_is_the_fastest(found):
    chosen = found.candidates[0]
    assert chosen.state is State.CHOSEN
    assert found.recipe.engine == chosen.engine
    for item in found.candidates[1:]:
        assert item.low_ms is None or item.low_ms >= chosen.low_ms


def test_every_measured_candidate_keeps_to_the_budget(found):
    measured = [item for item in found.candidates if item.median_ms is not None]
    assert all(item.snr_db >= 20 for item in measured)
    assert all(item.snr_db > 60 for item in measured if item.precision == "fp32")
    assert all(item.rounds > 0 and item.prepare_seconds > 0 for item in measured)


def test_candidates_of_bytes_say_how_they_were_calibrated(found):
    methods = {item.method for item in found.candidates if item.precision == "int8"}
    assert len(methods) == 1
    assert methods <= {"min-max", "percentile", "entropy", "error"}


def test_engines_that_cannot_run_are_named_with_the_reason(found):
    (inductor,) = (item for item in found.candidates if item.engine == "inductor")
    assert (inductor.state, inductor.reason != "") == (State.UNTRIED, True)


def test_samples_that_judge_are_not_those_that_calibrate(found):
    assert found.accuracy.data == "10 samples held out; 20 others judged, 10 calibrated"
    assert (found.comparison.samples, found.accuracy.samples) == (20, 10)


def test_without_data_it_stays_in_floating_point_and_says_so(imported):
    found = search(imported, goal())
    assert {item.precision for item in found.candidates} - {None} <= set(FLOATS)
    assert "int8 was not tried" in found.notes[0]
    assert found.accuracy.data == "4 random inputs, because there is no data"
    assert found.accuracy.sure_db is None


def test_labels_make_the_budget_one_of_answers(imported, images, net):
    data = load_data([(image, 2) for image in images], net)
    found = search(imported, goal(budget=100.0, engines=("onnxruntime",)), data)
    assert found.comparison.labelled == 20
    assert all(item.top1_loss is not None for item in found.candidates if item.snr_db is not None)


def test_only_the_engines_that_are_wanted_are_tried(imported):
    found = search(imported, goal(engines=("native",)))
    assert {item.engine for item in found.candidates} == {"native"}
    assert found.recipe.rewrites


def test_no_candidate_that_is_good_enough_is_an_error_with_reasons(imported, samples):
    with pytest.raises(UnsupportedError, match=r"no candidate.*openvino int8: .* dB, and 199"):
        search(imported, goal(snr_db=199.0, engines=("openvino",)), samples)


def test_wrong_names_are_refused(imported):
    with pytest.raises(UsageError, match=r"no engine is called turbo; allowed: onnxruntime"):
        search(imported, goal(engines=("turbo",)))
    with pytest.raises(UsageError, match=r"no rewrite is called 'magic'"):
        search(imported, goal(without=("magic",)))


def test_memory_prefers_the_least_weights(imported, samples, net):
    found = search(imported, goal(target="memory"), samples)
    assert found.recipe.precision in ("int8", "int8-weights")
    assert found.candidates[0].weights_bytes < weights_bytes(net, Recipe(engine="native")) / 2


def test_throughput_runs_as_many_calls_as_threads(imported):
    found = search(imported, goal(target="throughput", threads=2, engines=("native",)))
    assert {item.streams for item in found.candidates} == {1, 2}


def test_progress_is_told(imported):
    told = []
    search(imported, goal(engines=("native",)), tell=lambda text, share: told.append((text, share)))
    assert all(0 <= share <= 1 for _, share in told)
    assert "candidates are timed" in {text for text, _ in told}


def test_a_graph_that_nobody_can_run_is_an_error(build):
    graph = build("(float[2] x) => (float[2] y) { y = Relu(x) }")
    graph.nodes[0].attributes["unheard"] = 1
    with pytest.raises(UsageError, match="cannot be run"):
        search(Imported(graph, None, "it"), goal())


def test_inductor_is_measured_beside_and_never_chosen():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    found = search(load_model(module, torch.ones(1, 4)), goal(engines=("onnxruntime",)))
    assert found.recipe.engine == "onnxruntime"
    plain = search(load_model(module, torch.ones(1, 4)), goal())
    (inductor,) = (item for item in plain.candidates if item.engine == "inductor")
    assert (inductor.state, "cannot store" in inductor.reason) == (State.UNTRIED, True)


def test_the_first_samples_are_judged_and_timed_however_little_time_there_is(imported, samples):
    found = search(imported, goal(seconds=1e-3, engines=("onnxruntime",)), samples)
    assert found.comparison.samples == ENOUGH
    assert {item.rounds for item in found.candidates if item.median_ms is not None} == {5}


# ---- rewrites ---------------------------------------------------------------------------------


def test_what_rewrites_gained_is_measured(imported):
    found = search(imported, goal(engines=("onnxruntime",)))
    matched = {item.name for item in found.applied if item.matches}
    assert found.recipe.rewrites is False or found.speed_ups.keys() <= matched
    if found.recipe.rewrites:
        assert found.speed_ups


def test_rewrites_that_the_engine_needs_have_no_gain(imported):
    """Our kernels have no MatMul that is not linear."""
    found = search(imported, goal(engines=("native",)))
    assert "silu" in found.speed_ups
    assert "gemm-linear" in {item.name for item in found.applied if item.matches}


@pytest.mark.parametrize("masked", [0.0, 1.0, -1e4, -np.inf])
def test_bytes_are_tried_where_a_value_never_changes_or_is_infinite(build, masked):
    """A user reported this for a mask that is the same in all samples."""
    random = np.random.default_rng(5)
    graph = build(
        """(float[4,32] x, float[4,32] mask) => (float[4,32] y) {
            a = MatMul(x, v) r = Relu(a) b = MatMul(r, v) c = Add(b, mask) s = Softmax(c)
            y = MatMul(s, w)
        }""",
        v=random.standard_normal((32, 32)) / 6,
        w=random.standard_normal((32, 32)),
    )
    mask = np.full((4, 32), masked, np.float32)
    mask[:, 0] = 0 if np.isinf(masked) else masked
    data = [{"x": random.standard_normal((4, 32)), "mask": mask} for _ in range(24)]
    data = [{name: array.astype(np.float32) for name, array in each.items()} for each in data]
    found = search(Imported(graph, None, "it"), goal(snr_db=15.0), load_data(data, graph))
    tried = [item for item in found.candidates if item.precision == "int8"]
    assert {item.engine for item in tried} >= {"native", "onnxruntime", "openvino"}
    assert not any(item.state is State.FAILED for item in tried)
