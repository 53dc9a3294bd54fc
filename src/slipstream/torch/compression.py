"""Compression of DistributedDataParallel's gradients between hosts, with error feedback.

Each rank owns a part of the gradients. The other ranks send it their encoded gradients of this
part; the owner sums them in float32, and encodes the sum once for all ranks. Within a host nothing
is encoded. docs/performance.md states the speed-up of each codec. docs/convergence.md states
the effect of each codec on training.
"""

# No annotations from __future__, because DistributedDataParallel inspects those of the hook.

import contextlib
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from slipstream.codecs import LOSSY
from slipstream.errors import PeerError, UsageError
from slipstream.torch.cuda.work import CudaWork
from slipstream.torch.process_group import SlipstreamProcessGroup, own_group


def compress(
    model: DistributedDataParallel, codec: str = "fp16", *, error_feedback: bool | None = None
) -> "GradientCodec":
    """Encode a model's gradients between hosts.

    Call `compress` once, on every rank, before training.

    Args:
        model: DDP model, made with a process group of Slipstream.
        codec: Codec: fp16 (default; half the bytes, scaled against overflow), bf16 (half the bytes)
            or int8 (a quarter of the bytes).
        error_feedback: Whether the rounding errors of the codec are added to the gradients of the
            next step (default: for int8 only). Error feedback takes the memory of another copy of
            the gradients.

    Returns:
        The state of the codec. Put the `state_dict()` of the codec into checkpoints.

    Raises:
        UsageError: The codec is unknown, or the process group belongs to another backend.
    """
    check_codec(codec, LOSSY)
    group = own_group(cast(Any, model).process_group)
    state = GradientCodec(model, group, codec, uses_error_feedback(codec, error_feedback))
    model.register_comm_hook(state, _average)  # pyright: ignore[reportUnknownMemberType]
    return state


def check_codec(codec: str, allowed: Sequence[str]) -> None:
    """Check the name of a codec.

    Raises:
        UsageError: The codec is not an allowed one.
    """
    if codec not in allowed:
        raise UsageError(f"codec is {codec!r}; allowed: {', '.join(allowed)}")


def uses_error_feedback(codec: str, error_feedback: bool | None) -> bool:
    """Return whether to use error feedback; by default (None), only int8 uses it."""
    return codec == "int8" if error_feedback is None else error_feedback


class GradientCodec:
    """Codec of DDP's gradients, with its rounding errors (losses) for each parameter on this rank.

    The losses are stored per parameter, so they stay valid if DDP forms other buckets.

    Args:
        model: Model whose gradients are encoded.
        group: Process group over which gradients are averaged.
        codec: Codec of the gradients.
        error_feedback: Whether losses are added to the gradients of the next step.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        group: SlipstreamProcessGroup,
        codec: str,
        error_feedback: bool,
    ) -> None:
        self.codec = codec
        self.error_feedback = error_feedback
        self._group = group
        module = cast(Module, model.module)  # pyright: ignore[reportUnknownMemberType]
        self._names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in module.named_parameters()
        }
        self._losses: dict[torch.Tensor, torch.Tensor] = {}
        self._buckets: dict[tuple[torch.Tensor, ...], torch.Tensor] = {}
        self._works: dict[int, CudaWork] = {}  # last work of each bucket on a GPU

    def state_dict(self) -> dict[str, Any]:
        """Return the codec's name and this rank's losses by parameter name."""
        self._settle()
        residuals = {self._names[p]: losses.clone() for p, losses in self._losses.items()}
        return {"codec": self.codec, "residuals": residuals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the losses that this rank saved with state_dict().

        Raises:
            UsageError: Losses differ in size from their parameter, or the model lacks the
                parameter.
        """
        parameters = {name: parameter for parameter, name in self._names.items()}
        for name, losses in state["residuals"].items():
            parameter = parameters.get(name)
            if parameter is None or parameter.numel() != losses.numel():
                size = "is unknown" if parameter is None else f"has {parameter.numel()} elements"
                raise UsageError(
                    f"the residual of {name!r} has {losses.numel()} elements, the parameter {size};"
                    " load the state of the same model"
                )
        self._settle()
        self._buckets.clear()
        self._losses = {
            parameters[name]: losses.detach().clone().float().reshape(-1)
            for name, losses in state["residuals"].items()
        }

    def average(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin to average a bucket over all ranks; return a future for the averaged buffer."""
        work = self._group.average_encoded(bucket.buffer(), self.codec, self._residual(bucket))
        if isinstance(work, CudaWork):
            self._works[bucket.index()] = work
        return work.get_future().then(lambda done: done.value()[0])

    def _residual(self, bucket: GradBucket) -> torch.Tensor | None:
        """Return the losses of a bucket; None without error feedback."""
        buffer = bucket.buffer()
        if not self.error_feedback or buffer.dtype != torch.float32:
            return None
        parameters = tuple(bucket.parameters())
        residual = self._buckets.get(parameters)
        return self._gather(bucket, parameters) if residual is None else residual

    def _settle(self) -> None:
        """Wait for averages on GPUs, so that their losses can be read.

        The call blocks until the engine has exchanged the data. For what the GPU still computes,
        the current stream waits, but the CPU does not.
        """
        for work in self._works.values():
            work.block()
            with contextlib.suppress(PeerError):  # a later call raises it
                work.wait()
        self._works.clear()

    def _gather(self, bucket: GradBucket, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Copy the losses of a bucket's parameters into new memory with the bucket's layout."""
        self._settle()
        buffer = bucket.buffer()
        residual = torch.zeros_like(buffer, device=self._group.losses_on(buffer))
        gradients = bucket.gradients()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            begin = gradient.storage_offset() - buffer.storage_offset()
            part = residual[begin : begin + gradient.numel()]
            if parameter in self._losses:
                part.copy_(self._losses[parameter])
            self._losses[parameter] = part
        stale = [members for members in self._buckets if not set(members).isdisjoint(parameters)]
        for members in stale:
            del self._buckets[members]
        self._buckets[parameters] = residual
        return residual


def _average(state: GradientCodec, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.average(bucket)
