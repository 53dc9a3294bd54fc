"""From a model to a package: import, rewrite, search, write."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.data import Batches, Sample, Samples, load_data, synthetic
from slipstream.infer.engines import Rounding, engine_of
from slipstream.infer.engines.inductor import Inductor
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.open_sizes import with_output_shapes
from slipstream.infer.images.pictures import PictureOptions, Reader
from slipstream.infer.images.pixels import picture_input, with_pixels
from slipstream.infer.importers import Imported, load_model
from slipstream.infer.machine import (
    LARGE_BYTES,
    give_memory_back,
    this_machine,
    usable_cores,
)
from slipstream.infer.measure import LEAST_ROUNDS, MOST_ROUNDS
from slipstream.infer.outputs.boxes import BoxOptions
from slipstream.infer.outputs.reduction import Reduction
from slipstream.infer.package.first_load import try_package
from slipstream.infer.package.package import Check, Manifest, Package, Reading, tensors, write
from slipstream.infer.package.report import Candidate, Report, Rewritten, State
from slipstream.infer.search.objective import AGREEMENT, TARGETS, Objective, Target
from slipstream.infer.search.search import SearchResult, Tell, search

NUM_RUNS = 3  # runs that show which output sizes vary with the input; chosen by hand


def compile_model(
    model: Any,
    output: str | Path,
    *,
    example_inputs: object = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    weights: str | Path | None = None,
    data: Any = None,
    pictures: PictureOptions | None = None,
    pixels: bool = False,
    top: int | None = None,
    boxes: BoxOptions | None = None,
    budget: float = 0.3,
    snr_db: float | None = None,
    agreement: float = AGREEMENT,
    target: Target = "latency",
    seconds: float = 300.0,
    most_rounds: int = MOST_ROUNDS,
    threads: int | None = None,
    engines: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    large_bytes: int = LARGE_BYTES,
    tell: Tell = lambda text, share: None,
) -> Report:
    """Compile a model to the fastest form on this machine that is accurate enough.

    Args:
        model: ONNX file or its bytes; PyTorch module, exported program or .pt2 file; Keras model
            or file; SavedModel folder; file of Caffe, MXNet or Kaldi; or the name of a factory of
            one of these or of a JAX function, "package.module:function".
        output: Path of the package, by convention model.slip. An existing file is replaced.
        example_inputs: Arrays for a module or function, in the order of its arguments or by name.
        shapes: Shapes of the inputs whose dimensions the model leaves open, by input name.
        weights: File of the model's weights if the model does not contain them, net.caffemodel;
            default the one beside it.
        data: Samples, which int8 needs: a folder, an .npz file, "package.module:loader" or an
            iterable; see `slipstream.infer.data.load_data`.
        pictures: Options for reading a folder of images (default `PictureOptions()`).
        pixels: True if the package takes uint8 (n, height, width, channels), the layout of cameras
            and decoders, and image files of any size, read according to `pictures`; the graph
            normalises them. The samples must be such pixels too (default False).
        top: Number of `labels` with the highest `scores` that the package returns in place of all
            scores (default: all scores).
        boxes: Options of a package that returns the best `boxes` that do not overlap, with their
            `scores`, `labels` and `counts`, in place of all boxes; see
            `slipstream.infer.outputs.boxes.with_boxes`.
        budget: Percentage points of top-1 accuracy that may be lost if the data has labels
            (default 0.3).
        snr_db: Least signal-to-noise ratio in dB of each output, and of each group of its channels
            if their magnitudes differ; default 20, or none if labels alone prove that the loss is
            within the budget.
        agreement: Percentage of answers that must equal the model's own if the data has no labels
            and an output gives classes (default 95).
        target: "latency" of one call, "throughput" of as many calls as there are threads, or
            "memory" (default "latency").
        seconds: Duration allowed for the search (default 300). A step whose expected time does not
            fit is left out and named in the report's notes; a step that has begun is finished. The
            import before the search and the package's first load after it take extra time.
        most_rounds: Greatest number of timing rounds per candidate, 5 or more (default 200). A
            lower number ends the search of a small model early, and leaves `seconds` to its other
            steps.
        threads: Threads of one call; default all cores that this process may use.
        engines: Names of the engines to try; default all whose results a package can store.
        without: Names of the rewrites to leave out.
        large_bytes: Size of the model's constants in bytes (default 1 GiB) from which one candidate
            is open at a time, so that the search takes less than twice the model's memory; fewer
            candidates are tried.
        tell: Function called with the current step and the share of `seconds` that has passed,
            0 to 1.

    Returns the report: all candidates, and the reason for the choice. The package contains it too.

    Raises UsageError for an invalid model, data or option; UnsupportedError if no candidate keeps
    to the budget. The package is loaded and called once in another process before it is moved to
    `output`. Blocks. Other work on the machine during the search may lead to a wrong choice.
    """
    begin = time.monotonic()
    objective = Objective(
        target=target,
        budget=budget,
        snr_db=snr_db,
        agreement=agreement,
        is_classifier=top is not None,
        seconds=seconds,
        most_rounds=most_rounds,
        threads=usable_cores() if threads is None else threads,
        engines=engines,
        without=without,
        large_bytes=large_bytes,
    )
    _check(objective)
    path = Path(output)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    reduction = Reduction(top, boxes)
    tell("the model is imported", 0.0)
    imported = load_model(
        model, example_inputs, shapes=shapes, weights=weights, large_bytes=large_bytes
    )
    if not any(name.startswith(Inductor.name) for name in engines):
        imported = replace(imported, module=None)  # nobody else runs it, and it has the weights
        give_memory_back()
    reading: Reading | None = None
    if pixels:
        graph = with_pixels(imported.graph, pictures or PictureOptions())
        imported = replace(imported, graph=graph, module=None, is_module=False)
        reading = _reading(graph, pictures or PictureOptions())
    imported = reduction.prepared(imported)
    samples = None if data is None else load_data(data, imported.graph, pictures)
    classes, remark = _classes(imported.graph, samples)
    reduction, other = reduction.settled(imported, samples, objective.threads)
    imported = replace(imported, notes=(*imported.notes, *remark, *other))
    began = time.monotonic()
    found = search(imported, objective, samples, tell)
    now = time.monotonic()
    report = _report(imported, objective, found, now - begin, now - began)
    tell("the package is written", 1.0)
    found = replace(found, graph=reduction.of(found.graph))
    package = _package(imported, objective, found, report, samples, reading, classes)
    tell("the package is loaded in another process", 1.0)
    write(path, package, try_package)
    return report


def _reading(graph: Graph, options: PictureOptions) -> Reading:
    """Return the reading of image files into the input of a graph that takes pixels."""
    name = picture_input(graph)
    _, height, width, channels = graph.shape(name) or (0, 0, 0, 0)
    return Reading(input=name, size=Reader.of(options, height, width, channels).size)


def _classes(graph: Graph, samples: Batches | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the classes, and a remark if their number differs from the folders'."""
    names = () if samples is None else samples.classes
    count = (graph.shape(graph.outputs[0]) or (0,))[-1]
    if not names or len(names) == count:
        return names, ()
    return (), (f"there are {len(names)} folders and {count} classes, so their names are not kept",)


def _check(objective: Objective) -> None:
    """Raise UsageError for an objective outside of the allowed ranges."""
    if objective.target not in TARGETS:
        allowed = ", ".join(TARGETS)
        raise UsageError(f"the target is {objective.target!r}; allowed: {allowed}")
    if objective.seconds <= 0 or objective.budget < 0 or objective.threads < 1:
        raise UsageError(
            f"seconds is {objective.seconds}, budget {objective.budget}, threads"
            f" {objective.threads}; allowed: more than 0, 0 and more, 1 and more"
        )
    if objective.most_rounds < LEAST_ROUNDS:
        raise UsageError(
            f"most_rounds is {objective.most_rounds}; allowed: {LEAST_ROUNDS} and more,"
            " because fewer rounds have no quartiles"
        )


def _report(
    imported: Imported,
    objective: Objective,
    found: SearchResult,
    seconds: float,
    search_seconds: float,
) -> Report:
    return Report(
        origin=imported.origin,
        machine=this_machine(),
        threads=objective.threads,
        target=objective.target,
        allowed=objective.allowed(found.comparison),
        accuracy=found.accuracy,
        data=found.accuracy.data,
        notes=(*imported.notes, *found.notes),
        nodes_before=len(imported.graph.nodes),
        nodes_after=len(found.rewritten.nodes),
        rewrites=tuple(
            Rewritten(
                name=item.name,
                matches=item.matches,
                nodes_saved=item.nodes_before - item.nodes_after,
                gained_ms=1e3 * found.speed_ups[item.name]
                if item.name in found.speed_ups
                else None,
            )
            for item in found.applied
            if item.matches
        ),
        candidates=found.candidates,
        segments=found.segments,
        choice=choice_of(found.candidates, objective),
        seconds=seconds,
        search_seconds=search_seconds,
    )


def choice_of(candidates: tuple[Candidate, ...], objective: Objective) -> str:
    """Return the reason for choosing the first of the candidates, in a sentence."""
    chosen = candidates[0]
    assert chosen.low_ms is not None
    graph = "the rewritten graph" if chosen.rewrites else "the graph as imported"
    text = f"{chosen.title} on {graph}: {chosen.low_ms:.3f} ms in the best quarter of its rounds"
    if objective.target == "memory":
        text += f" and {(chosen.weights_bytes or 0) / 1e6:.1f} MB of weights, the least of all"
    others = [
        (item.low_ms, item)
        for item in candidates[1:]
        if item.low_ms is not None
        and item.state is State.MEASURED
        and (item.engine != chosen.engine or item.precision != chosen.precision)
    ]
    if not others:
        return f"{text}; nothing else could be chosen."
    time_ms, other = min(others, key=lambda pair: pair[0])
    ratio = time_ms / chosen.low_ms
    return f"{text}; next is {other.title} with {time_ms:.3f} ms, {ratio:.2f} times that."


def _package(
    imported: Imported,
    objective: Objective,
    found: SearchResult,
    report: Report,
    samples: Samples | None,
    reading: Reading | None,
    classes: tuple[str, ...],
) -> Package:
    """Return the package; the chosen candidate runs once more for its outputs and roundings."""
    given = synthetic(imported.graph, NUM_RUNS) if samples is None else samples
    first: Sample = given[0]
    engine = engine_of(found.recipe.engine, objective.large_bytes)
    executable = engine.prepare(found.graph, found.recipe, objective.threads)
    outputs = executable.run(first.inputs)
    others = (given[index].inputs for index in range(1, min(NUM_RUNS, len(given))))
    runs = [outputs, *(executable.run(inputs) for inputs in others)]
    small: Mapping[str, Small] = executable.small if isinstance(executable, Rounding) else {}
    executable.close()
    give_memory_back()
    graph = with_output_shapes(found.graph, runs)
    manifest = Manifest(
        graph="model.onnx" if found.recipe.rewrites else "source.onnx",
        inputs=tensors(graph, list(graph.inputs)),
        outputs=tensors(graph, graph.outputs),
        pictures=reading,
        classes=classes,
        recipe=found.recipe,
        threads=objective.threads,
        accuracy=found.accuracy,
        machine=report.machine,
    )
    check = Check(first.inputs, {name: outputs[name] for name in graph.outputs})
    return Package(manifest, lambda: graph, report, check, small)
