"""Compiled models that are loaded and ready to be called."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import (
    Executable,
    Recipe,
    engine_of,
    engines_of,
    kind_of,
    overlapped_runs_of,
)
from slipstream.infer.engines.gpu.cards import device_title, parse_device
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.machine import usable_cores
from slipstream.infer.outputs.outputs import LABELS, SCORES
from slipstream.infer.package.package import Check, Manifest, Package, read
from slipstream.infer.package.report import Report
from slipstream.infer.run.inputs import InputReader, copy_item
from slipstream.infer.run.sharing import Sharing, fastest_sharing
from slipstream.infer.run.stream import Errors, Stages, run_preloaded, run_serially

Inputs: TypeAlias = "Mapping[str, Any] | Sequence[Any] | Any"
Outputs: TypeAlias = "Array | dict[str, Array]"

# Least signal-to-noise ratio in dB of the example's results against those at compile time. Other
# processors round int8 a little differently. Chosen by hand, not measured.
LEAST_DB = 15.0


class Model:
    """A compiled model, which is called like a function.

        with infer.load("model.slip") as model:
            logits = model(image)

    Any number of threads may call any method at the same time. A call blocks, and other Python
    threads run meanwhile. Simultaneous calls share the cores, so each call takes longer.
    """

    def __init__(self, loaded: Loaded) -> None:
        """Make a model from a package that was loaded; `close` closes its executable."""
        package = loaded.package
        self._loaded = loaded
        self._package = package
        self._manifest = package.manifest
        self._executable = loaded.executable
        self._reader = InputReader(package.manifest)
        self._outputs = [item.name for item in package.manifest.outputs]
        self._sharing: Sharing | None = None  # sharing of the cores, once a stream has begun
        self._measuring = threading.Lock()
        self._callers = ThreadPoolExecutor(
            max(package.manifest.recipe.streams, 1), thread_name_prefix="slipstream-infer"
        )
        self._is_closed = False

    @property
    def manifest(self) -> Manifest:
        """Description of the package: inputs, outputs, recipe and accuracy."""
        return self._manifest

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the class indices; empty if unknown."""
        return self._manifest.classes

    @property
    def report(self) -> Report:
        """Report of the compilation: the candidates and the choice."""
        return self._package.report

    def __call__(self, *inputs: Any, **named: Any) -> Outputs:
        """Run the model on one input, or on one batch if its inputs have a batch dimension.

        Args:
            inputs: Arrays in the order of the model's inputs, or one dictionary by input name. An
                array is a NumPy array or any object in host memory that has `__dlpack__`. An array
                has the dtype and shape in `manifest.inputs`; a batch dimension of 1 may be left
                out. The input in `manifest.images` also accepts the bytes of an image file (JPEG,
                PNG and others) and uint8 (rows, columns, channels) of any size. Image files, and
                arrays of another size, are resized and cropped. A batch of images may be a list of
                images.
            named: Inputs by name, as keyword arguments.

        Returns:
            The array of the output if the model has one output, else a dictionary of arrays by
            output name. The returned arrays belong to the caller. The arrays have the shapes in
            `manifest.outputs`, where -1 stands for any size.

        Raises:
            UsageError: an input is missing, unknown, or of another dtype or shape.
        """
        return self._run(self._checked(inputs, named))

    def submit(self, *inputs: Any, **named: Any) -> Future[Outputs]:
        """Run the model, as `__call__` does, in the background; return a future of the result.

        The inputs are checked at once. The caller must not change the inputs until the future is
        done. As many calls run at the same time as the recipe has streams. Further calls wait in a
        queue.
        """
        return self._callers.submit(self._run, self._checked(inputs, named))

    def batch(self, inputs_of_calls: Sequence[Inputs]) -> list[Outputs]:
        """Run the model on several inputs, and return the results in the order of the inputs.

        Args:
            inputs_of_calls: One item per call: the input, or a tuple of inputs if the model has
                several inputs.
        """
        checked = [
            self._checked((item,) if not isinstance(item, tuple) else item, {})
            for item in inputs_of_calls
        ]
        return list(self._callers.map(self._run, checked))

    def stream(
        self,
        items: Iterable[Inputs],
        *,
        preload: bool = True,
        depth: int | None = None,
        after: Callable[[Outputs], Any] | None = None,
        errors: Errors = "raise",
    ) -> Iterator[Any]:
        """Run the model on one input after another, on all cores that this process may use.

        The first stream of a model spends some seconds on a measurement: which number of
        simultaneous runs is fastest. If more runs are simultaneous, each run has fewer cores, and
        all runs together take more memory.

        Args:
            items: One item per run: the input, or a tuple of inputs if the model has several
                inputs. The iterable may be endless, because at most `depth` items are drawn ahead.
                The iterable may reuse its arrays, because the items are copied.
            preload: Whether threads prepare the next items while the model runs on earlier items
                (default True). If False, the caller's thread processes one item after another.
            depth: Greatest number of items whose results are not yet returned, 1 or more (default:
                twice the number of cores, at least 4).
            after: Function to apply to each result, in the thread that ran the model (default none:
                results are returned unchanged).
            errors: Reaction to an item that fails: "raise" (the default) raises an ItemError with
                the item's index, and ends the stream. "yield" returns the ItemError in place of the
                result, and continues.

        Returns:
            An iterator over the results, in the order of the items. The results belong to the
            caller. The iterator's threads end when the iterator is closed, by `.close()` or `del`.

        Raises:
            UsageError: the model is closed, or an option is out of range.
        """
        cores = usable_cores()
        depth = max(2 * cores, 4) if depth is None else depth
        if depth < 1 or errors not in ("raise", "yield"):
            raise UsageError(
                f"depth is {depth}, errors {errors!r}; allowed: 1 and more, 'raise' or 'yield'"
            )
        self._check_open()
        if not preload:
            return run_serially(self._stages(self._executable, after), items, errors)
        sharing = self._stream_sharing(cores)
        stages = self._stages(sharing.executable, after)
        threads = max(sharing.runs, cores, 2)
        return run_preloaded(stages, items, errors, threads=threads, runs=sharing.runs, depth=depth)

    def close(self) -> None:
        """Wait for submitted calls, and release the engine. Close streams before."""
        if not self._is_closed:
            self._is_closed = True
            self._callers.shutdown()
            self._executable.close()
            if self._sharing is not None:
                self._sharing.executable.close()
            # The graph has the weights, and callers may keep the closed model.
            self._package = replace(self._package, make_graph=_closed_graph)
            self._loaded = replace(self._loaded, package=self._package)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        recipe = self._manifest.recipe
        inputs = ", ".join(
            f"{item.name} {item.dtype} {item.shape}" for item in self._manifest.inputs
        )
        return f"<Model of {inputs} by {recipe.engine} in {recipe.precision}>"

    def _stages(
        self, executable: Executable, after: Callable[[Outputs], Any] | None
    ) -> Stages[dict[str, Array]]:
        def prepare(item: Inputs, buffers: dict[str, Array]) -> dict[str, Array]:
            self._check_open()
            return self._reader.read(item if isinstance(item, tuple) else (item,), {}, buffers)

        def run(inputs: dict[str, Array]) -> Any:
            outputs = self._as_returned(executable.run(inputs))
            return outputs if after is None else after(outputs)

        return Stages(
            buffer=lambda: self._reader.buffers(executable.buffer),
            keep=copy_item,
            prepare=prepare,
            run=run,
        )

    def _stream_sharing(self, cores: int) -> Sharing:
        """Return the fastest sharing of the cores for streams; it is measured only once."""
        with self._measuring:
            if self._sharing is None:
                self._sharing = sharing_of(self._loaded, cores)
            return self._sharing

    def _run(self, inputs: dict[str, Array]) -> Outputs:
        return self._as_returned(self._executable.run(inputs))

    def _as_returned(self, arrays: Mapping[str, Array]) -> Outputs:
        names = self._outputs
        return arrays[names[0]] if len(names) == 1 else {name: arrays[name] for name in names}

    def _checked(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Array]:
        """Check the inputs, and return them by name."""
        self._check_open()
        return self._reader.read(inputs, named)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the model is closed; load it again")


def _closed_graph() -> Graph:
    raise UsageError("the model is closed; load it again")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A package that was read and checked on this machine.

    Args:
        package: Content of the package.
        executable: Executable that runs the package's graph.
        threads: Number of threads that one call uses.
        card: Number of the GPU that runs the model; None (the default) for the first one, and for
            a model that was compiled for the CPU.
    """

    package: Package
    executable: Executable
    threads: int
    card: int | None = None


def device_of(loaded: Loaded) -> str:
    """Return the words for the device that runs a package; see `device_title`."""
    return device_title(kind_of(loaded.package.manifest.recipe), loaded.card)


def sharing_of(loaded: Loaded, cores: int, runs: int | None = None) -> Sharing:
    """Return the executable for simultaneous runs of a package, and the number of runs.

    The calls share the cores in the fastest way, which takes seconds to measure. On a GPU they
    share the executable, and their copies and computations overlap.

    Args:
        loaded: Package that was loaded. Its executable stays open in any case.
        cores: Number of cores that all runs share.
        runs: Number of runs, if known from an earlier measurement (default None: it is measured).
    """
    recipe = loaded.package.manifest.recipe
    overlapped = overlapped_runs_of(recipe)
    if overlapped:
        return Sharing(loaded.executable, max(overlapped, recipe.streams))
    first = Sharing(loaded.executable, recipe.streams * max(cores // loaded.threads, 1))

    def make(count: int) -> Executable:
        return prepare_executable(loaded.package, cores, count, loaded.card)

    if runs is None:
        return fastest_sharing(first, loaded.package.check.inputs, cores, make)
    return first if runs == first.runs else Sharing(make(runs), runs)


def load(
    path: str | Path,
    threads: int | None = None,
    *,
    device: str = "auto",
    check: bool = True,
) -> Model:
    """Load a compiled model. Blocks.

    Args:
        path: File that `slipstream compile` or `infer.compile` made.
        threads: Number of threads that one call uses, 1 or more (default: the number for which the
            model was compiled, but at most the number of cores).
        device: Device that runs the model: "cuda:1" for the second GPU, "cuda" for the first, or
            "cpu" (default "auto": the CPU, or the first GPU if the model was compiled for GPUs).
        check: Whether to run the package's example and compare its results with those of the
            compilation (default True).

    Raises:
        UsageError: the file is no package, is damaged, or was compiled for another device.
        UnsupportedError: the package's engine is not installed, or the example's results differ
            too much on this machine.
    """
    return Model(load_executable(path, threads, device=device, check=check))


def load_executable(
    path: str | Path,
    threads: int | None = None,
    *,
    device: str = "auto",
    check: bool = True,
) -> Loaded:
    """Load a package like `load`, but return a `Loaded` in place of a `Model`."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; allowed: 1 and more")
    package = read(Path(path))
    manifest = package.manifest
    choice, kind = parse_device(device), kind_of(manifest.recipe)
    if choice.kind not in ("auto", kind):
        name = manifest.recipe.engine
        raise UsageError(
            f"{path} runs on {kind} by the engine {name}, and the device is {device};"
            f" compile the model with --device {choice.kind}"
        )
    for engine in engines_of(manifest.recipe):
        reason = engine.available()
        if reason is not None:
            raise UnsupportedError(f"{path} needs the engine {engine.name}: {reason}")
    count = threads or min(manifest.threads, usable_cores())
    executable = prepare_executable(package, count, manifest.recipe.streams, choice.card)
    if check:
        _check_example(path, package.check, executable)
    return Loaded(package, executable, count, choice.card)


def prepare_executable(
    package: Package, threads: int, streams: int, card: int | None = None
) -> Executable:
    """Return the executable of a package, in which `streams` calls share `threads` threads.

    Args:
        package: Package that was read and checked.
        threads: Number of threads of all calls together.
        streams: Number of simultaneous calls.
        card: Number of the GPU, if the package's engine uses one (default: the first GPU).
    """
    recipe = _with_streams(package.manifest.recipe, streams)
    return engine_of(recipe.engine, card=card).prepare(package.graph, recipe, threads)


def _with_streams(recipe: Recipe, streams: int) -> Recipe:
    parts = tuple(
        part.model_copy(update={"recipe": _with_streams(part.recipe, streams)})
        for part in recipe.parts
    )
    return recipe.model_copy(update={"streams": streams, "parts": parts})


def _check_example(path: str | Path, check: Check, executable: Executable) -> None:
    """Check that the package's example has nearly the same results as during the compilation.

    If a model returns labels or boxes, only the scores are compared, because entries with almost
    equal scores may change places.

    Raises:
        UnsupportedError: the results differ too much from those during the compilation.
    """
    outputs = check.outputs
    if {LABELS, SCORES} <= outputs.keys():
        outputs = {SCORES: outputs[SCORES]}
    comparison = Comparison()
    comparison.add(executable.run(check.inputs), outputs)
    if comparison.snr_db < LEAST_DB:
        executable.close()
        raise UnsupportedError(
            f"{path}: its results here are not those at compile time (signal to noise"
            f" {comparison.snr_db:.0f} dB, and at least {LEAST_DB:g} dB are required); compile the"
            " model on this machine"
        )
