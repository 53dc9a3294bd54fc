"""The names of horovod.torch.mpi_ops, for scripts that import from there."""

from slipstream.horovod.torch import *  # noqa: F403
