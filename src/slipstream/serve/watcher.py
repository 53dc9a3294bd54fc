"""Changed model files are loaded again, while the server continues to answer requests."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import SlipstreamError
from slipstream.serve.repository import ModelSpec, Repository, ServedModel

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """The identity of a file's content; all values are 0 if the file does not exist."""

    inode: int = 0
    size: int = 0
    changed: int = 0

    @staticmethod
    def of(path: Path) -> _Stamp:
        try:
            found = path.stat()
        except OSError:
            return _Stamp()
        return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


class ModelWatcher:
    """A task that loads a model's version again if the file has changed.

    A changed file is loaded once it has not changed for one period, so that no file is loaded while
    it is being written. The best way to replace a file is to write a new file and rename it. If a
    changed file cannot be served, the log reports it, and the old version stays.

    Args:
        repository: Repository that loads the models.
        period: Time in seconds between two checks.
    """

    def __init__(self, repository: Repository, period: float) -> None:
        self._repository, self._period = repository, period
        self._loaded = {spec: _Stamp.of(spec.path) for spec in repository.specs}
        self._seen = dict(self._loaded)

    async def run(self) -> None:
        """Check all files again and again until the task is cancelled."""
        while True:
            await asyncio.sleep(self._period)
            for spec in self._repository.specs:
                await self.check(spec)

    async def check(self, spec: ModelSpec) -> None:
        """Check one file, and load it if it has changed and is no longer being written."""
        stamp, before = _Stamp.of(spec.path), self._seen[spec]
        self._seen[spec] = stamp
        if stamp in (self._loaded[spec], _Stamp()) or stamp != before:
            return
        self._loaded[spec] = stamp
        served = self._repository.get(spec.name, spec.version)
        before = None if served is None else describe(served)
        try:
            now = describe(await self._repository.load(spec.name, spec.version))
        except SlipstreamError as error:
            _LOG.error("%s, version %s, is not replaced: %s", spec.name, spec.version, error)
            return
        _LOG.info("%s, version %s, was loaded from %s", spec.name, spec.version, spec.path)
        if before not in (None, now):
            words = "%s, version %s, HAS OTHER INPUTS OR OUTPUTS NOW: %s; before: %s"
            _LOG.warning(words, spec.name, spec.version, now, before)


def describe(served: ServedModel) -> str:
    """Return the inputs and outputs of a model as text."""
    inputs, outputs = (
        ", ".join(f"{each['name']} {each['datatype']} {each['shape']}" for each in described)
        for described in map(
            served.signature.described, (served.signature.inputs, served.signature.outputs)
        )
    )
    return f"{inputs} to {outputs}"
