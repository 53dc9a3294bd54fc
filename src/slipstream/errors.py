"""The errors of Slipstream, sorted by the remedy that the caller should try.

The C++ binding raises these classes by name, so a class that is renamed must also be renamed in the
binding.
"""


class SlipstreamError(RuntimeError):
    """Catch this class to catch every error that Slipstream raises on purpose.

    The class is a RuntimeError, because programs catch RuntimeError around collectives of PyTorch.
    """


class UsageError(SlipstreamError):
    """Fix the call: an argument is not allowed, or the call comes at the wrong moment."""


class MismatchError(UsageError):
    """Pass the same arguments on every rank: sizes, dtypes or operations differ."""


class ConfigError(SlipstreamError):
    """Fix the setting that the message names: an environment variable, option or file is wrong."""


class AuthError(ConfigError):
    """Give every rank the same job key: one end of a connection could not prove its key."""


class PeerError(SlipstreamError):
    """Rebuild the group without the peer that the message names: the peer is gone."""


class PeerTimeoutError(PeerError):
    """Rebuild the group, or raise the time limit: a peer was silent for longer than the limit."""


class AbortedError(PeerError):
    """Stop waiting and rebuild the group: the operation or its group was aborted or torn down."""


class UnsupportedError(SlipstreamError):
    """Use an alternative from the message: this build or machine does not support the call."""


class QuotaError(SlipstreamError):
    """Ask for less, elsewhere or later: a provider or a queue has none of it left."""


class InternalError(SlipstreamError):
    """Report the message and traceback to the authors: an invariant of Slipstream is broken."""


def reason_of(error: BaseException) -> str:
    """Return an error's message, without the error number and file name that a system call adds."""
    return getattr(error, "strerror", None) or str(error)
