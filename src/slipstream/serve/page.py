"""The web page of a server: models, their measurements, a form to try a model, and recent load."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from slipstream.serve.record import OK, RequestRecord
from slipstream.serve.refusals import Reason
from slipstream.serve.repository import ModelSpec, Repository

SECONDS = 300  # length of the history
_GONE = Reason.GONE.name.lower()
# Times are counted in histogram bins from 10 us to 60 s; each is 5 % wider than the one before.
_WIDER, _LEAST, _MOST = 1.05, 1e-5, 60.0

_POLICY = (
    "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_FILES = {
    "/": ("index.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
# Paths that need no token, because their content is the same on every server.
OPEN_PATHS = frozenset(_FILES)


@dataclass(slots=True)
class _Count:
    """Numbers of answered and refused requests, and the times that successful requests took."""

    requests: int = 0
    refused: int = 0
    times: Counter[int] = field(default_factory=Counter[int])

    def add(self, refused: bool, bin_of_time: int | None) -> None:
        self.requests += 1
        self.refused += refused
        if bin_of_time is not None:
            self.times[bin_of_time] += 1

    def take_away(self, other: _Count) -> None:
        self.requests -= other.requests
        self.refused -= other.refused
        self.times -= other.times

    def summary(self) -> dict[str, Any]:
        return {
            "requests": self.requests,
            "refused": self.refused,
            "p50_ms": _quantile_ms(self.times, 0.5),
            "p99_ms": _quantile_ms(self.times, 0.99),
        }


@dataclass(slots=True)
class _Second:
    """The requests of one second, in total (with a cached summary) and by model."""

    at: int
    whole: _Count = field(default_factory=_Count)
    parts: dict[tuple[str, str], _Count] = field(default_factory=dict[tuple[str, str], _Count])
    summary: dict[str, Any] | None = None


class History:
    """The requests of each of the last 300 seconds.

    The methods of a history must be called in one event loop.

    The history stores counts only: a histogram of times with about 300 bins for each second and
    each version of a model. So the history's memory does not grow with the number of requests.
    Quantiles of times between 10 us and 60 s have an error of at most 2.5 %.

    Args:
        clock: Function that returns monotonic seconds (default `time.monotonic`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds: deque[_Second] = deque()
        self._parts: dict[tuple[str, str], _Count] = {}  # sums of all seconds

    def add(self, record: RequestRecord) -> None:
        """Count an answered request.

        Args:
            record: Record of the request.
        """
        now = self._now()
        if not self._seconds or self._seconds[-1].at != now:
            self._seconds.append(_Second(now))
        second, key = self._seconds[-1], (record.model, record.version)
        bin_of_time = _bin_of(record.seconds) if record.outcome == OK else None
        refused = record.outcome not in (OK, _GONE)
        for each in (second.whole, _part(second.parts, key), _part(self._parts, key)):
            each.add(refused, bin_of_time)

    def series(self) -> dict[str, list[Any]]:
        """Return the columns of the last 300 complete seconds, oldest first.

        `requests` and `refused` are counts. `p50_ms` and `p99_ms` are quantiles of the times of
        successful requests in milliseconds, or None in a second without successful requests.
        """
        now, none = self._now(), _Count().summary()
        known = {each.at: _summary_of(each) for each in self._seconds if each.at < now}
        summaries = [known.get(at, none) for at in range(now - SECONDS, now)]
        return {name: [each[name] for each in summaries] for name in none}

    def load(self, model: str, version: str) -> dict[str, Any]:
        """Return the counts and quantiles of one version of a model over the last 300 seconds."""
        self._now()
        return self._parts.get((model, version), _Count()).summary()

    def _now(self) -> int:
        """Return the current second, and drop the seconds that are older than the history."""
        now = int(self._clock())
        while self._seconds and self._seconds[0].at < now - SECONDS:
            for key, each in self._seconds.popleft().parts.items():
                self._parts[key].take_away(each)
        return now


def page_routes(repository: Repository, history: History) -> list[Route]:
    """Return the routes of the page `/`, of the page's files, and of its data, `/page/state`.

    Args:
        repository: Repository of the models.
        history: History of the requests for the models.
    """
    folder = resources.files("slipstream.serve") / "page"
    files = [
        Route(path, partial(_file, (folder / name).read_bytes(), kind))
        for path, (name, kind) in _FILES.items()
    ]
    return [*files, Route("/page/state", partial(_state, repository, history))]


async def _file(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers=_HEADERS)


async def _state(repository: Repository, history: History, _: Request) -> Response:
    models = [_model(repository, history, each) for each in repository.specs]
    content = {"models": models, "series": history.series()}
    return JSONResponse(content, headers={**_HEADERS, "cache-control": "no-store"})


def _model(repository: Repository, history: History, spec: ModelSpec) -> dict[str, Any]:
    said = {"name": spec.name, "version": spec.version, "share": spec.share, "ready": False}
    served = repository.get(spec.name, spec.version)
    if served is None:
        return said
    manifest, signature = served.manifest, served.signature
    return said | {
        "ready": True,
        "inputs": signature.described(signature.inputs),
        "outputs": signature.described(signature.outputs),
        "classes": manifest.classes,
        "images": None if manifest.images is None else manifest.images.input,
        "engine": manifest.recipe.engine,
        "precision": manifest.recipe.precision,
        "devices": served.devices,
        "accuracy": manifest.accuracy.model_dump(),
        "load": history.load(spec.name, spec.version),
    }


def _part(parts: dict[tuple[str, str], _Count], key: tuple[str, str]) -> _Count:
    found = parts.get(key)
    if found is None:
        found = parts[key] = _Count()
    return found


def _summary_of(second: _Second) -> dict[str, Any]:
    if second.summary is None:
        second.summary = second.whole.summary()
    return second.summary


def _bin_of(seconds: float) -> int:
    return math.floor(math.log(min(max(seconds, _LEAST), _MOST) / _LEAST, _WIDER))


def _quantile_ms(times: Counter[int], part: float) -> float | None:
    """Return the middle, in ms, of the bin that contains a quantile; None if no time is counted."""
    left = math.ceil(part * times.total())
    for each in sorted(times):
        left -= times[each]
        if left <= 0:
            return round(1e3 * _LEAST * _WIDER ** (each + 0.5), 4)
    return None
