"""New files take the place of old ones while requests go on."""

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
    """What is another once a file is another; of a file that is not there, nothing."""

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
    """Loads versions again whose files have changed.

    A file is loaded once it stays the same for as long as `period`, so that one that is still
    written to is left alone; best is a rename. What cannot be served is told to the log, and what
    was served before goes on.

    Args:
        repository: that loads.
        period: seconds between looks.
    """

    def __init__(self, repository: Repository, period: float) -> None:
        self._repository, self._period = repository, period
        self._loaded = {spec: _Stamp.of(spec.path) for spec in repository.specs}
        self._seen = dict(self._loaded)

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(self._period)
            for spec in self._repository.specs:
                await self.look(spec)

    async def look(self, spec: ModelSpec) -> None:
        """Looks at one file, and loads it if it has settled on something new."""
        stamp, before = _Stamp.of(spec.path), self._seen[spec]
        self._seen[spec] = stamp
        if stamp in (self._loaded[spec], _Stamp()) or stamp != before:
            return
        self._loaded[spec] = stamp
        served = self._repository.get(spec.name, spec.version)
        before = None if served is None else said_of(served)
        try:
            now = said_of(await self._repository.load(spec.name, spec.version))
        except SlipstreamError as error:
            _LOG.error("%s, version %s, stays as it was: %s", spec.name, spec.version, error)
            return
        _LOG.info("%s, version %s, was loaded from %s", spec.name, spec.version, spec.path)
        if before not in (None, now):
            words = "%s, version %s, TAKES OR GIVES SOMETHING ELSE NOW: %s; before: %s"
            _LOG.warning(words, spec.name, spec.version, now, before)


def said_of(served: ServedModel) -> str:
    """Returns what a model takes and gives, in words."""
    inputs, outputs = (
        ", ".join(f"{each['name']} {each['datatype']} {each['shape']}" for each in described)
        for described in map(
            served.signature.described, (served.signature.inputs, served.signature.outputs)
        )
    )
    return f"{inputs} to {outputs}"
