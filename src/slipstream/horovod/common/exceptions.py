"""Exceptions of Horovod's API."""

from slipstream.comm.elastic import MembershipChanged
from slipstream.errors import SlipstreamError

NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."


class HorovodInternalError(SlipstreamError):
    """Failure of a collective, for example because ranks passed different shapes or a rank died.

    The class is a RuntimeError, as in Horovod. The `__cause__` of the error is the engine's error.
    """


class RefusedError(HorovodInternalError, ValueError):
    """Error of a call that has an argument that is not allowed, or that comes before init().

    Horovod itself raises HorovodInternalError or ValueError for such calls, depending on its
    backend. Scripts that catch one of these two classes catch this class too.
    """


class HostsUpdatedInterrupt(MembershipChanged, RuntimeError):  # noqa: N818  Horovod's name
    """Notice that ranks join or leave an elastic job, which all ranks get at the same commit.

    `hvd.elastic.run` handles it.

    Args:
        skip_sync: Whether the ranks may continue without a synchronization of their state. `run`
            itself decides about this, so it raises the notice with False.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__(skip_sync)
        self.skip_sync = skip_sync
