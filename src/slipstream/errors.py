"""Every error that Slipstream raises, sorted by what the caller should do about it.

The C++ binding raises these classes by name, so renaming one changes the binding too.
"""


class SlipstreamError(RuntimeError):
    """Catch this to catch everything that Slipstream raises on purpose.

    A RuntimeError, because that is what programs catch around a collective of PyTorch.
    """


class UsageError(SlipstreamError):
    """Fix the call: an argument, or the moment of the call, is not allowed."""


class MismatchError(UsageError):
    """Make every rank pass the same: sizes, dtypes or operations differ between ranks."""


class ConfigError(SlipstreamError):
    """Fix the setting that the message names: an environment variable, option or file is wrong."""


class AuthError(ConfigError):
    """Give every rank the same job key: one side of a connection could not prove it."""


class PeerError(SlipstreamError):
    """Rebuild the group without the peer that the message names: it is gone."""


class PeerTimeoutError(PeerError):
    """Rebuild the group, or raise the limit: a peer was silent for the seconds that are named."""


class AbortedError(PeerError):
    """Stop waiting and rebuild the group: the operation or its group was aborted or torn down."""


class UnsupportedError(SlipstreamError):
    """Choose another way that the message names: this build or machine cannot do it."""


class InternalError(SlipstreamError):
    """Report it with its message and traceback: an invariant of Slipstream does not hold."""
