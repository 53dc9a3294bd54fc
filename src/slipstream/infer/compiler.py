"""Compile a model to a package: import it, search for the fastest form, and write the package."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from slipstream.errors import UsageError
from slipstream.infer.data import load_data
from slipstream.infer.engines import ENGINES, engine_of
from slipstream.infer.engines.gpu.cards import parse_device
from slipstream.infer.engines.protocol import Small
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.open_sizes import with_output_shapes
from slipstream.infer.images.pixels import image_input, with_pixels
from slipstream.infer.images.reader import ImageOptions, ImageReader
from slipstream.infer.importers import Imported, load_model
from slipstream.infer.machine import give_memory_back
from slipstream.infer.options import CompileOptions
from slipstream.infer.outputs.reduction import OutputReduction
from slipstream.infer.package.first_load import try_package
from slipstream.infer.package.package import Check, Manifest, Package, Reading, tensors, write
from slipstream.infer.package.report import Report
from slipstream.infer.samples import Batches, Sample, Samples, synthetic
from slipstream.infer.search.reporting import report_of
from slipstream.infer.search.search import SearchResult, Tell, search

# Number of runs that show which output sizes vary with the input. Chosen by hand, not measured.
NUM_RUNS = 3


@dataclass(frozen=True, slots=True)
class _Source:
    """A model that is ready for the search, with its samples and further contents of its package.

    Args:
        imported: Imported model; its input is uint8 pixels if `CompileOptions.pixels` is set.
        samples: Samples of the search; None if there is no data.
        reduction: Choice of the package's outputs: the best classes, selected boxes, or the model's
            own outputs.
        reading: Description of the input that is made from image files; None if the package reads
            no image files.
        classes: Names of the classes; empty if they are unknown.
    """

    imported: Imported
    samples: Samples | None
    reduction: OutputReduction
    reading: Reading | None
    classes: tuple[str, ...]


def compile_model(
    model: Any,
    output: str | Path,
    options: CompileOptions | None = None,
    tell: Tell = lambda text, share: None,
) -> Report:
    """Compile a model to the fastest form on this machine that is accurate enough.

    Args:
        model: ONNX file or its bytes; PyTorch module, exported program or .pt2 file; Keras model or
            file; SavedModel folder; file of Caffe, MXNet or Kaldi; name of a JAX function; or name
            of a function that returns any of these models. The name of a function is
            "package.module:function" or "path.py:function".
        output: Path of the package to write, by convention model.slip. An existing file is
            replaced.
        options: Options of the compilation (default `CompileOptions()`).
        tell: Function called with the current step and the share of `options.seconds` that has
            passed, 0 to 1.

    Returns the report: all candidates, and the reason for the choice. The package contains the
    report too.

    Raises UsageError for an invalid model, data or option; UnsupportedError if no candidate stays
    within the accuracy budget. The package is loaded and called once in another process before it
    is moved to `output`. `compile_model` blocks until the package is at `output`. Other work on the
    machine during the search may lead to a wrong choice.
    """
    options = CompileOptions() if options is None else options
    path = Path(output)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    begin = time.monotonic()
    tell("the model is imported", 0.0)
    source = _source(model, options)
    search_begin = time.monotonic()
    result = search(source.imported, options, source.samples, tell)
    now = time.monotonic()
    report = report_of(source.imported, options, result, now - begin, now - search_begin)
    tell("the package is written", 1.0)
    package = _package(source, options, result, report)
    tell("the package is loaded in another process", 1.0)
    write(path, package, partial(try_package, device=options.device))
    return report


def _source(model: Any, options: CompileOptions) -> _Source:
    """Import a model and its samples."""
    imported = _imported(model, options)
    reading: Reading | None = None
    if options.pixels:
        graph = with_pixels(imported.graph, options.images)
        imported = replace(imported, graph=graph, module=None, is_module=False)
        reading = _reading(graph, options.images)
    reduction = OutputReduction(options.top, options.boxes)
    imported = reduction.prepare(imported)
    data = options.data
    samples = None if data is None else load_data(data, imported.graph, options.images)
    classes, class_notes = _classes(imported.graph, samples)
    reduction, box_notes = reduction.with_known_layout(imported, samples, options.threads)
    imported = replace(imported, notes=(*imported.notes, *class_notes, *box_notes))
    return _Source(imported, samples, reduction, reading, classes)


def _imported(model: Any, options: CompileOptions) -> Imported:
    """Import a model; drop its PyTorch module to free memory, unless an engine runs it."""
    imported = load_model(
        model,
        options.example_inputs,
        shapes=options.shapes,
        weights=options.weights,
        large_bytes=options.large_bytes,
    )
    if not any(ENGINES[name].runs_module for name in options.engines):
        imported = replace(imported, module=None)
        give_memory_back()
    return imported


def _reading(graph: Graph, options: ImageOptions) -> Reading:
    """Return the manifest's description of the image input of a graph that takes pixels."""
    name = image_input(graph)
    _, height, width, channels = graph.shape(name) or (0, 0, 0, 0)
    return Reading(input=name, size=ImageReader.of(options, height, width, channels).size)


def _classes(graph: Graph, samples: Batches | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a pair: the names of the classes, and notes for the report.

    If data and model differ in the number of classes, there are no names, and a note says so.
    """
    names = () if samples is None else samples.classes
    count = (graph.shape(graph.outputs[0]) or (0,))[-1]
    if not names or len(names) == count:
        return names, ()
    return (), (f"there are {len(names)} folders and {count} classes, so their names are not kept",)


def _package(
    source: _Source, options: CompileOptions, result: SearchResult, report: Report
) -> Package:
    """Return the package of the chosen candidate.

    The candidate runs again, on up to `NUM_RUNS` samples. The package stores the first sample with
    its outputs, as an example. The runs also show the output sizes that the graph leaves unknown,
    and which constants the candidate's engine rounds.
    """
    samples = source.samples
    samples = synthetic(source.imported.graph, NUM_RUNS) if samples is None else samples
    first: Sample = samples[0]
    others = [samples[index].inputs for index in range(1, min(NUM_RUNS, len(samples)))]
    result = replace(result, graph=source.reduction.apply(result.graph))
    runs, small = _run([first.inputs, *others], options, result)
    graph = with_output_shapes(result.graph, runs)
    manifest = Manifest(
        graph="model.onnx" if result.recipe.rewrites else "source.onnx",
        inputs=tensors(graph, list(graph.inputs)),
        outputs=tensors(graph, graph.outputs),
        images=source.reading,
        classes=source.classes,
        recipe=result.recipe,
        threads=options.threads,
        accuracy=result.accuracy,
        machine=report.machine,
    )
    check = Check(first.inputs, {name: runs[0][name] for name in graph.outputs})
    return Package(manifest, lambda: graph, report, check, small)


def _run(
    inputs: list[Mapping[str, Array]], options: CompileOptions, result: SearchResult
) -> tuple[list[dict[str, Array]], Mapping[str, Small]]:
    """Run the chosen candidate on each of several inputs.

    Returns a pair: the outputs of each run, and the forms of the constants that the candidate's
    engine rounds (see `Executable.small`).
    """
    engine = engine_of(result.recipe.engine, options.large_bytes, parse_device(options.device).card)
    executable = engine.prepare(result.graph, result.recipe, options.threads)
    try:
        return [executable.run(feeds) for feeds in inputs], executable.small
    finally:
        executable.close()
        give_memory_back()
