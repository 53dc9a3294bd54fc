"""Compiled models, ready to be called."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import Executable, Recipe, engine_of
from slipstream.infer.graph.graph import Array
from slipstream.infer.machine import usable_cores
from slipstream.infer.outputs.outputs import LABELS, SCORES
from slipstream.infer.package.package import Check, Manifest, Package, read
from slipstream.infer.package.report import Report
from slipstream.infer.run.inputs import Taker, kept
from slipstream.infer.run.sharing import Sharing, fastest_sharing
from slipstream.infer.run.stream import Errors, Stages, preloaded, serial

Inputs: TypeAlias = "Mapping[str, Any] | Sequence[Any] | Any"
Outputs: TypeAlias = "Array | dict[str, Array]"

LEAST_DB = 15.0  # of results here beside those at compile time; bytes round a little differently


class Model:
    """A compiled model: call it.

        with infer.load("model.slip") as model:
            logits = model(image)

    Every method may be called by any number of threads at a time. Calls block and let other threads
    of Python run; those that run at a time share the processor's cores, so each takes longer.
    """

    def __init__(self, package: Package, executable: Executable, threads: int) -> None:
        """`executable`, whose calls use `threads`, is closed by this object from now on."""
        self._package = package
        self._manifest = package.manifest
        self._executable = executable
        self._threads = threads
        self._taker = Taker(package.manifest)
        self._outputs = [item.name for item in package.manifest.outputs]
        self._sharing: Sharing | None = None  # how streams run, once one has begun
        self._measuring = threading.Lock()
        self._callers = ThreadPoolExecutor(
            max(package.manifest.recipe.streams, 1), thread_name_prefix="slipstream-infer"
        )
        self._is_closed = False

    @property
    def manifest(self) -> Manifest:
        """What it takes and gives, how it runs, and how accurate it is."""
        return self._manifest

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by number, as the output `labels` has them; none where they are not
        known."""
        return self._manifest.classes

    @property
    def report(self) -> Report:
        """What was tried when it was compiled."""
        return self._package.report

    def __call__(self, *inputs: Any, **named: Any) -> Outputs:
        """Run the model on one input, or one batch, as its shape says.

        Args:
            inputs: a dictionary by name, or arrays in the order of the model's inputs: NumPy
                arrays, or anything that has `__dlpack__` and is in the processor's memory. Of the
                dtypes and shapes in `manifest.inputs`; where the batch is 1, it may be left out.
                The input in `manifest.images` takes the bytes of JPEG, PNG and other files too,
                and uint8 (rows, columns, channels) of any size, which are resized and cut; where
                the batch is not 1, a list of as many.
            named: or by keyword.

        Returns: the output's array where there is only one, else a dictionary by name. They belong
        to the caller. Shapes are those in `manifest.outputs`, of which -1 may be any size.

        Raises UsageError for inputs that are missing, unknown, or of another dtype or shape.
        """
        return self._run(self._taken(inputs, named))

    def submit(self, *inputs: Any, **named: Any) -> Future[Outputs]:
        """Run the model in the background; see `__call__`. Inputs are checked at once, and are not
        to be written to until the result is there. As many run at a time as the recipe has streams,
        the others wait in line."""
        return self._callers.submit(self._run, self._taken(inputs, named))

    def batch(self, several: Sequence[Inputs]) -> list[Outputs]:
        """Run the model on several inputs, each as one call takes it; results in their order."""
        taken = [
            self._taken((item,) if not isinstance(item, tuple) else item, {}) for item in several
        ]
        return list(self._callers.map(self._run, taken))

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

        Args:
            items: each as one call takes it, a tuple for several inputs. May be without end: no
                more than `depth` are taken ahead. It may reuse its arrays: they are copied.
            preload: the next items are decoded and laid out by threads while others run; False:
                one after another, in the caller's thread.
            depth: items on their way at a time, 1 or more; default twice the number of cores, 4 at
                least.
            after: what is done with each result, by the same threads; default nothing.
            errors: "raise" ends at the first item that fails, with an ItemError that has its
                number; "yield" gives the ItemError in place of the result and goes on.

        Returns: an iterator over the results, in the order of the items. They belong to the caller.
        Closing it (`del`, `.close()`, leaving a generator) ends its threads.

        The first stream of a model measures for some seconds how the cores are best shared: all for
        one run after another, or one for each of several runs, which takes more memory.
        """
        cores = usable_cores()
        depth = max(2 * cores, 4) if depth is None else depth
        if depth < 1 or errors not in ("raise", "yield"):
            raise UsageError(
                f"depth is {depth}, errors {errors!r}; allowed: 1 and more, 'raise' or 'yield'"
            )
        self._check_open()
        if not preload:
            return serial(self._stages(self._executable, after), items, errors)
        sharing = self._shared(cores)
        stages = self._stages(sharing.executable, after)
        threads = max(sharing.runs, cores, 2)
        return preloaded(stages, items, errors, threads=threads, runs=sharing.runs, depth=depth)

    def close(self) -> None:
        """Wait for calls that were submitted, and let go of the engine. Streams have to be closed
        before."""
        if not self._is_closed:
            self._is_closed = True
            self._callers.shutdown()
            self._executable.close()
            if self._sharing is not None:
                self._sharing.executable.close()

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
            return self._taker.taken(item if isinstance(item, tuple) else (item,), {}, buffers)

        def run(inputs: dict[str, Array]) -> Any:
            outputs = self._given(executable.run(inputs))
            return outputs if after is None else after(outputs)

        return Stages(buffer=self._taker.buffers, keep=kept, prepare=prepare, run=run)

    def _shared(self, cores: int) -> Sharing:
        """How streams run; measured once."""
        with self._measuring:
            if self._sharing is None:
                streams = self._manifest.recipe.streams
                first = Sharing(self._executable, streams * max(cores // self._threads, 1))
                self._sharing = fastest_sharing(
                    first,
                    self._package.check.inputs,
                    cores,
                    lambda runs: prepared(self._package, cores, runs),
                )
            return self._sharing

    def _run(self, inputs: dict[str, Array]) -> Outputs:
        return self._given(self._executable.run(inputs))

    def _given(self, found: Mapping[str, Array]) -> Outputs:
        names = self._outputs
        return found[names[0]] if len(names) == 1 else {name: found[name] for name in names}

    def _taken(self, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Array]:
        """Every input by name, checked."""
        self._check_open()
        return self._taker.taken(inputs, named)

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the model is closed; load it again")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A package that was read and checked on this machine.

    Args:
        package: as it was read.
        executable: of it, whose calls use `threads`.
        threads: that one call uses.
    """

    package: Package
    executable: Executable
    threads: int


def load(path: str | Path, threads: int | None = None, *, check: bool = True) -> Model:
    """Load a compiled model.

    Args:
        path: of a file that `slipstream compile` or `infer.compile` made.
        threads: that one call uses, 1 or more; default those that it was compiled for, or the cores
            that there are, if these are fewer.
        check: run it once, and hold the results against those at compile time.

    Raises UsageError for a file that is no such package, or damaged; UnsupportedError where its
    engine is not there, and where its results are different on this machine. Blocks.
    """
    loaded = load_executable(path, threads, check=check)
    return Model(loaded.package, loaded.executable, loaded.threads)


def load_executable(path: str | Path, threads: int | None = None, *, check: bool = True) -> Loaded:
    """As `load`, without what makes calls of Python's values."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; allowed: 1 and more")
    package = read(Path(path))
    manifest = package.manifest
    engine = engine_of(manifest.recipe.engine)
    reason = engine.available()
    if reason is not None:
        raise UnsupportedError(f"{path} needs the engine {engine.name}: {reason}")
    count = threads or min(manifest.threads, usable_cores())
    executable = prepared(package, count, manifest.recipe.streams)
    if check:
        _hold(path, package.check, executable)
    return Loaded(package, executable, count)


def prepared(package: Package, threads: int, streams: int) -> Executable:
    """The executable of a package: `streams` calls at a time share `threads`."""
    recipe = _with_streams(package.manifest.recipe, streams)
    return engine_of(recipe.engine).prepare(package.graph, recipe, threads)


def _with_streams(recipe: Recipe, streams: int) -> Recipe:
    parts = tuple(
        part.model_copy(update={"recipe": _with_streams(part.recipe, streams)})
        for part in recipe.parts
    )
    return recipe.model_copy(update={"streams": streams, "parts": parts})


def _hold(path: str | Path, check: Check, executable: Executable) -> None:
    """The results for the package's example are those at compile time. Of labels and boxes, scores
    are compared: those that score almost the same may change places."""
    outputs = check.outputs
    if {LABELS, SCORES} <= outputs.keys():
        outputs = {SCORES: outputs[SCORES]}
    comparison = Comparison()
    comparison.add(executable.run(check.inputs), outputs)
    if comparison.snr_db < LEAST_DB:
        executable.close()
        raise UnsupportedError(
            f"{path}: its results here are not those at compile time (signal to noise"
            f" {comparison.snr_db:.0f} dB, and {LEAST_DB:g} is the least); compile the model here"
        )
