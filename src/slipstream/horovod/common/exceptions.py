"""Exceptions of Horovod's API."""

from slipstream.errors import SlipstreamError

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class HorovodInternalError(SlipstreamError):
    """Failure of a collective, for example because ranks passed different shapes or a rank died.

    It is a RuntimeError, as in Horovod. Its `__cause__` is the error of the engine.
    """


class RefusedError(HorovodInternalError, ValueError):
    """Refusal of an argument. Horovod raises one of the base classes, depending on its backend."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """Notice that hosts were added or removed, which only happens in elastic jobs.

    Args:
        skip_sync: Whether the ranks need not synchronize their state.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync
