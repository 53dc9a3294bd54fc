"""The models that are served: their versions, what runs them, and files that take their place."""

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
    """A version of a model, as it is named on the command line.

    Args:
        name: of the model.
        version: "1", "2", in the order in which they are named.
        path: of its package.
        share: of the requests that name no version, 0 to 1; None: what others leave.
    """

    name: str
    version: str
    path: Path
    share: float | None = None


class ServedModel:
    """A version of a model that is ready.

    Args:
        spec: that it was loaded from.
        manifest: of its package.
        signature: of the model.
        batcher: of its requests.
        unload: lets go of it.
    """

    def __init__(
        self,
        spec: ModelSpec,
        manifest: Manifest,
        signature: Signature,
        batcher: Batcher,
        unload: Callable[[], Awaitable[None]],
    ) -> None:
        self.spec, self.manifest = spec, manifest
        self.signature, self.batcher = signature, batcher
        self._unload = unload
        self._users = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def used(self) -> Generator[ServedModel]:
        """Keeps it from being closed meanwhile."""
        self._users += 1
        self._free.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._free.set()

    async def submit(self, taken: RequestInputs, until: float) -> InferenceResult:
        """As of `Batcher`, for one of those that use it."""
        return await self.batcher.submit(taken, until, self._users == 1)

    async def close(self) -> None:
        """Lets go of the model, once nobody uses it."""
        await self._free.wait()
        await self.batcher.drained()
        await self._unload()


class Repository:
    """Models by name and version. Its methods are for one event loop.

    Args:
        specs: of all versions.
        replicas: that run them.
        limits: of each batcher; its runs are those of the replicas.
        most_rows: of a request.
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
        self.is_ending = False  # whoever balances the load is to go elsewhere

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """All versions, whether they are ready or not."""
        return tuple(self._specs.values())

    @property
    def names(self) -> list[str]:
        """Of the models, each once."""
        return list(dict.fromkeys(each.name for each in self.specs))

    @property
    def is_ready(self) -> bool:
        """All versions are ready, and it is not about to end."""
        return not self.is_ending and all(
            (each.name, each.version) in self._served for each in self.specs
        )

    def versions(self, name: str) -> list[str]:
        """Returns the versions of a model."""
        return [each.version for each in self.specs if each.name == name]

    def get(self, name: str, version: str = "") -> ServedModel | None:
        """Returns a version that is ready; "": one of them, by their shares."""
        if version:
            return self._served.get((name, version))
        ready = [each for each in self._served.values() if each.spec.name == name]
        return ready[0] if len(ready) == 1 else _by_share(ready)

    def find(self, name: str, version: str = "") -> ServedModel:
        """Returns as `get`; raises RequestRefusedError if it is not known or not ready."""
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
        """Loads a version from its file; requests go to it once it is ready, and never to none.

        Raises UsageError or UnsupportedError for a file that cannot be served; what was there
        before goes on.
        """
        spec = self._specs[name, version]
        key = f"{name}/{version}/{next(self._numbers)}"
        made = self._made(spec, key, await self._replicas.load(key, spec.path))
        before = self._served.get((name, version))
        self._served[name, version] = made
        if before is not None:
            task = asyncio.get_running_loop().create_task(before.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return made

    async def close(self) -> None:
        """Lets go of all models, when the requests that they have are answered."""
        await asyncio.gather(*self._closing, *(each.close() for each in self._served.values()))
        self._served.clear()
        await self._replicas.close()

    def _made(self, spec: ModelSpec, key: str, ready: LoadedModel) -> ServedModel:
        manifest = ready.manifest
        signature = Signature(manifest.inputs, manifest.outputs, self._most_rows, manifest.pictures)
        limits = replace(self._limits, runs=ready.runs)
        batcher = Batcher(signature, partial(self._replicas.run, key), limits, ready.seconds)
        return ServedModel(spec, manifest, signature, batcher, partial(self._replicas.unload, key))


def parse_model_specs(texts: Sequence[str]) -> list[ModelSpec]:
    """Returns what a command line names: PATH, NAME=PATH, and NAME=PATH@10% for a share.

    Raises UsageError for what cannot be read, and shares of more than all.
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
                f"versions of {name!r} have {total:.0%} of its requests; at most 100 %"
            )
    return found


def _by_share(ready: Sequence[ServedModel]) -> ServedModel | None:
    if not ready:
        return None
    given = sum(each.spec.share or 0.0 for each in ready)
    rest = [each for each in ready if each.spec.share is None]
    weights = [
        (1 - given) / len(rest) if each.spec.share is None else each.spec.share for each in ready
    ]
    if not sum(weights):
        return ready[-1]
    return random.choices(ready, weights)[0]  # no secret
