"""Names of horovod.torch.mpi_ops, for scripts that import from it."""

from slipstream.horovod.common import basics as _basics  # noqa: F401  # pyright: ignore
from slipstream.horovod.torch import *  # noqa: F403
