"""The models of a server by name and version; a model whose file changes is loaded again."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.infer.package.package import Manifest
from slipstream.serve.batcher import Batcher, BatcherLimits, InferenceResult
from slipstream.serve.refusals import Reason, RequestRefusedError
from slipstream.serve.replicas import LoadedModel, Replicas
from slipstream.serve.signature import RequestInputs, Signature

_SPEC = re.compile(
    r"(?:(?P<name>[\w.-]+)=)?(?P<path>[^@=](?:[^@]*[^@=])?)(?:@(?P<share>\d+(?:\.\d+)?)%)?"
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A version of a model, as the command line names it.

    Args:
        name: Name of the model.
        version: Number of the version as text: "1", "2" and so on, in the order of the command
            line.
        path: Path of the model's package.
        share: Share (0 to 1) of the requests that name no version. Versions whose share is None
            (the default) divide the remaining requests equally.
    """

    name: str
    version: str
    path: Path
    share: float | None = None


class ServedModel:
    """A version of a model that is loaded and can be used.

    Args:
        spec: Specification by which the model was loaded.
        manifest: Manifest of the model's package.
        signature: Inputs and outputs of the model.
        batcher: Dynamic batcher of the requests for this version.
        unload: Function that releases the model.
    """

    def __init__(
        self,
        spec: ModelSpec,
        manifest: Manifest,
        signature: Signature,
        batcher: Batcher,
        unload: Callable[[], Awaitable[None]],
        devices: tuple[str, ...] = ("cpu",),
    ) -> None:
        self.spec, self.manifest, self.devices = spec, manifest, devices
        self.signature, self.batcher = signature, batcher
        self._unload = unload
        self._users = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def used(self) -> Generator[ServedModel]:
        """Keep the model loaded while the context is open."""
        self._users += 1
        self._free.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._free.set()

    async def submit(self, inputs: RequestInputs, deadline: float) -> InferenceResult:
        """Queue a request and return its result; see `Batcher.submit`."""
        return await self.batcher.submit(inputs, deadline, self._users == 1)

    async def close(self) -> None:
        """Release the model as soon as no request uses it."""
        await self._free.wait()
        await self.batcher.drained()
        await self._unload()


class Repository:
    """The loaded models, by name and version.

    The methods of a repository must be called in one event loop.

    Args:
        specs: Specifications of all versions of all models.
        replicas: Replicas that execute the models.
        limits: Limits of each batcher, except for concurrent runs, whose number the replicas
            determine.
        most_rows: Largest number of rows of a request.
    """

    def __init__(
        self, specs: Sequence[ModelSpec], replicas: Replicas, limits: BatcherLimits, most_rows: int
    ) -> None:
        self._replicas = replicas
        self._numbers = itertools.count(1)
        self._specs = {(each.name, each.version): each for each in specs}
        self._limits, self._most_rows = limits, most_rows
        self._served: dict[tuple[str, str], ServedModel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.is_ending = False  # True once load balancers should send requests elsewhere

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """Specifications of all versions, including those that are not ready."""
        return tuple(self._specs.values())

    @property
    def names(self) -> list[str]:
        """Names of the models, each name once."""
        return list(dict.fromkeys(each.name for each in self.specs))

    @property
    def is_ready(self) -> bool:
        """True if all versions are loaded and the server has not begun to end."""
        return not self.is_ending and all(
            (each.name, each.version) in self._served for each in self.specs
        )

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model."""
        return [each.version for each in self.specs if each.name == name]

    def get(self, name: str, version: str = "") -> ServedModel | None:
        """Return a loaded version or None; "" means a random version, weighted by the shares."""
        if version:
            return self._served.get((name, version))
        ready = [each for each in self._served.values() if each.spec.name == name]
        return ready[0] if len(ready) == 1 else _by_share(ready)

    def find(self, name: str, version: str = "") -> ServedModel:
        """Return a loaded version like `get`; raise RequestRefusedError if no version is found."""
        found = self.get(name, version)
        if found is not None:
            return found
        versions = self.versions(name)
        if not versions:
            names = ", ".join(dict.fromkeys(each.name for each in self.specs))
            raise RequestRefusedError(
                Reason.UNKNOWN, f"there is no model {name[:64]!r}; there are {names}"
            )
        if version and version not in versions:
            raise RequestRefusedError(
                Reason.UNKNOWN,
                f"the model {name!r} has no version {version[:64]!r}; it has {', '.join(versions)}",
            )
        raise RequestRefusedError(Reason.UNAVAILABLE, f"the model {name!r} is not ready yet", 1.0)

    async def load(self, name: str, version: str) -> ServedModel:
        """Load a version from its file.

        Until the new version is ready, the old version answers requests.

        Raises UsageError or UnsupportedError if the file cannot be served; in that case the old
        version stays.
        """
        spec = self._specs[name, version]
        key = f"{name}/{version}/{next(self._numbers)}"
        loaded = self._build(spec, key, await self._replicas.load(key, spec.path))
        before = self._served.get((name, version))
        self._served[name, version] = loaded
        if before is not None:
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return loaded

    async def close(self) -> None:
        """Release all models after their requests are answered."""
        await asyncio.gather(*self._closing, *(each.close() for each in self._served.values()))
        self._served.clear()
        await self._replicas.close()

    def _build(self, spec: ModelSpec, key: str, ready: LoadedModel) -> ServedModel:
        manifest = ready.manifest
        signature = Signature(manifest.inputs, manifest.outputs, self._most_rows, manifest.images)
        limits = replace(self._limits, runs=ready.runs)
        batcher = Batcher(signature, partial(self._replicas.run, key), limits, ready.seconds)
        unload = partial(self._replicas.unload, key)
        return ServedModel(spec, manifest, signature, batcher, unload, ready.devices)


def parse_model_specs(texts: Sequence[str]) -> list[ModelSpec]:
    """Parse the models of a command line: PATH, NAME=PATH, or NAME=PATH@10% with a share.

    Raises UsageError for a text of another form, and if the shares of a model exceed 100 %.
    """
    found: list[ModelSpec] = []
    for text in texts:
        match = _SPEC.fullmatch(text)
        if match is None:
            raise UsageError(f"the model is {text!r}; allowed: file.slip, name=file.slip@10%")
        path = Path(match["path"])
        name = match["name"] or path.name.removesuffix(".slip")
        version = str(1 + sum(each.name == name for each in found))
        share = None if match["share"] is None else float(match["share"]) / 100
        found.append(ModelSpec(name, version, path, share))
    for name in {each.name for each in found}:
        total = sum(each.share or 0.0 for each in found if each.name == name)
        if total > 1:
            raise UsageError(
                f"versions of {name!r} have shares of {total:.0%} together; at most 100 %"
            )
    return found


def _by_share(ready: Sequence[ServedModel]) -> ServedModel | None:
    if not ready:
        return None
    assigned = sum(model.spec.share or 0.0 for model in ready)
    without_share = [model for model in ready if model.spec.share is None]
    weights = [
        (1 - assigned) / len(without_share) if each.spec.share is None else each.spec.share
        for each in ready
    ]
    if not sum(weights):
        return ready[-1]
    return random.choices(ready, weights)[0]  # no cryptographic randomness is needed
