"""The order of updates on a GPU whose parameters are read on several streams."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

from slipstream.torch.cuda.kinds import kind_of


class UpdateStream:
    """The stream of a GPU that updates parameters; streams that read them wait for the updates.

    With `overlap`, a parameter is updated when it is first read. It still runs on the stream on
    which `step()` was called, because scripts make their other streams wait for that stream.

    Args:
        device: GPU of the parameters.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._kind = device, kind_of(device)
        self._stream = self._current()
        self._last: torch.Event | None = None  # after the last update

    def follow(self) -> None:
        """Let the next updates run on the current stream, after all earlier updates."""
        self.wait()
        self._stream = self._current()

    @contextlib.contextmanager
    def updating(self) -> Generator[None]:
        """Let commands within the context run on the stream for updates."""
        with self._kind.module.stream(self._stream):
            yield
            self._last = self._stream.record_event()
        self.wait()

    def wait(self) -> None:
        """Make the current stream wait for the last update; the CPU does not wait."""
        current = self._current()
        if self._last is not None and current != self._stream:
            current.wait_event(self._last)

    def _current(self) -> torch.Stream:
        return self._kind.module.current_stream(self._device)


class NoStream:
    """Order of updates on the CPU, where every command is done when its call returns."""

    def follow(self) -> None:
        """Do nothing."""

    def updating(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing."""
        return contextlib.nullcontext()

    def wait(self) -> None:
        """Do nothing."""


def updates_on(device: torch.device) -> UpdateStream | NoStream:
    """Return the order of updates for parameters on a device."""
    return NoStream() if device.type == "cpu" else UpdateStream(device)
