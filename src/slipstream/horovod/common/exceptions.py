"""What Horovod's users catch."""

from slipstream.errors import SlipstreamError

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class HorovodInternalError(SlipstreamError):
    """A collective failed: ranks passed different things, or one is gone; the message says which.

    A RuntimeError, as Horovod's is. Its cause is the error of the engine.
    """


class RefusedError(HorovodInternalError, ValueError):
    """An argument is not allowed. Horovod says so by one of the two, as its transports have it."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """Hosts were added or removed; raised in elastic jobs only.

    Args:
        skip_sync: the state of the ranks need not be made the same.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync
