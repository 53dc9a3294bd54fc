"""Records of inference are plain values, which threads share."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pytest
from pydantic import BaseModel, ValidationError

pytest.importorskip("starlette")

from slipstream import infer, serve
from slipstream.infer.engines import ENGINES
from slipstream.infer.engines.protocol import Part, Recipe, Small
from slipstream.infer.graph.graph import Node
from slipstream.infer.package.package import Accuracy, Manifest, Reading, Tensor
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.trial import Trial

# They are filled in while a graph is made, a search goes on, or a request is answered.
CHANGED = {
    "Comparison", "Node", "Graph", "_Contender", "Lowering", "Need", "Tail", "Stage", "Histogram",
    "_Moved", "BodyReservation", "_QueuedRequest", "_Batch", "_Count", "_Second",
    "RequestRecord", "ActiveRequest", "Server", "_StreamPool", "Trial", "Powers", "ClientRequest",
    "Reception", "_Probes", "GrpcAnswer", "ReplicaServer", "_Place", "ReplicaAnswer",
}  # fmt: skip
# Those of which there are many.
SMALL = (
    "graph.analysis",
    "search.objective",
    "images.reader",
    "rewrites",
    "serve",
    "run.session",
)


def _records(kind) -> Iterator[type]:
    inside = pkgutil.walk_packages(infer.__path__, "slipstream.infer.")
    above = pkgutil.walk_packages(serve.__path__, "slipstream.serve.")
    for module in (*inside, *above):
        if ".importers" in module.name:
            continue
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and found.__module__ == module.name and kind(found):
                yield found


RECORDS = list(_records(is_dataclass))


def test_records_cannot_be_changed_but_for_those_that_are_filled_in():
    assert len(RECORDS) > 70
    assert {each.__name__ for each in RECORDS} > CHANGED
    for record in RECORDS:
        is_changed = True
        made, name = object.__new__(record), fields(record)[0].name if fields(record) else "name"
        try:
            setattr(made, name, None)
        except AttributeError:
            is_changed = False
        assert is_changed == (record.__name__ in CHANGED), record


def test_small_records_have_no_room_for_more():
    found = [each for each in RECORDS if any(f".{name}" in each.__module__ for name in SMALL)]
    assert len(found) > 30
    for record in found:
        if record.__name__ != "_Moved":
            assert "__slots__" in vars(record), record


@pytest.mark.parametrize("record", ["Objective", "BatcherLimits", "ServeOptions", "RequestRecord",
                                    "ImageOptions", "ImageReader", "BoxOptions", "Stages",
                                    "NodeCost"])  # fmt: skip
def test_records_of_many_fields_are_made_by_name(record):
    (found,) = (each for each in RECORDS if each.__name__ == record)
    with pytest.raises(TypeError, match="positional argument"):
        found(*[1] * len(fields(found)))


def test_what_is_stored_cannot_be_changed_and_has_nothing_else():
    stored = list(_records(lambda each: issubclass(each, BaseModel)))
    stored = [each for each in stored if ".serve." not in each.__module__]
    assert len(stored) == 13
    for record in stored:
        made = record.model_construct()
        with pytest.raises(ValidationError, match="frozen"):
            setattr(made, next(iter(record.model_fields)), None)
    for record in (Recipe, Part, Small, Tensor, Accuracy, Reading, Manifest):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            record.model_validate({"other": 1})


def test_nodes_and_trials_are_themselves_only():
    assert Node("Relu", ["x"], ["y"]) != Node("Relu", ["x"], ["y"])
    engine, recipe = ENGINES["native"], Recipe(engine="native")
    assert Trial(engine, recipe) != Trial(engine, recipe)


def test_a_recipe_is_of_floats_on_a_rewritten_graph_one_call_at_a_time():
    assert Recipe(engine="native").model_dump() == {
        "engine": "native", "precision": "fp32", "rewrites": True, "streams": 1, "ranges": {},
        "shifts": {}, "rest": "fp32", "parts": (),
    }  # fmt: skip
    assert Small(dtype="int8").axis == 0
    for streams, is_allowed in ((0, False), (1, True), (1024, True), (1025, False)):
        if is_allowed:
            assert Recipe(engine="native", streams=streams).streams == streams
            continue
        with pytest.raises(ValidationError, match="streams"):
            Recipe(engine="native", streams=streams)


def test_a_search_is_for_latency_and_takes_five_minutes_at_most():
    found = {each.name: getattr(Objective(), each.name) for each in fields(Objective)}
    assert found == {
        "target": "latency", "budget": 0.3, "snr_db": None, "agreement": 95.0,
        "seconds": 300.0, "most_rounds": 200, "threads": 1, "engines": (),
        "without": (), "device": "auto", "large_bytes": 2**30,
    }  # fmt: skip
