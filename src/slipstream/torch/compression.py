"""Gradients of DistributedDataParallel in fewer bytes between hosts, with error feedback.

Contributors encode, the owner of each part sums in float32 and encodes once; within a host nothing
is encoded. See docs/performance.md for what each codec gains, and docs/convergence.md for what it
costs.
"""

# No annotations from __future__: DistributedDataParallel looks at those of the hook.

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from slipstream.codecs import LOSSY
from slipstream.errors import UsageError
from slipstream.torch.process_group import SlipstreamProcessGroup, own_group


def compress(
    model: DistributedDataParallel, codec: str = "fp16", *, error_feedback: bool | None = None
) -> "GradientCodec":
    """Encode a model's gradients between hosts; call it once, on every rank, before training.

    Args:
        model: Model whose process group is Slipstream's.
        codec: fp16 (half the bytes, scaled so that nothing overflows), bf16 or int8 (a quarter).
        error_feedback: add what was lost to the next step's gradients; costs the memory of one
            more copy of the gradients. Default: for int8 only.

    Returns:
        What keeps the losses; put its `state_dict()` into checkpoints.

    Raises:
        UsageError: the codec is unknown, or the process group is another's.
    """
    check_codec(codec, LOSSY)
    group = own_group(cast(Any, model).process_group)
    state = GradientCodec(model, group, codec, keeps_what_is_lost(codec, error_feedback))
    model.register_comm_hook(state, _average)  # pyright: ignore[reportUnknownMemberType]
    return state


def check_codec(codec: str, allowed: Sequence[str]) -> None:
    """Check the name of a codec.

    Raises:
        UsageError: it is not among those allowed.
    """
    if codec not in allowed:
        raise UsageError(f"codec is {codec!r}; allowed: {', '.join(allowed)}")


def keeps_what_is_lost(codec: str, error_feedback: bool | None) -> bool:
    """Return whether to use error feedback; where nobody says, int8 does."""
    return codec == "int8" if error_feedback is None else error_feedback


class GradientCodec:
    """What the codec has lost of each parameter's gradient so far, on this rank.

    Losses belong to parameters, and move with them when DDP forms other buckets.

    Args:
        model: Model whose gradients are encoded.
        group: Group over which gradients are averaged.
        codec: Codec of the gradients.
        error_feedback: Whether losses are kept for the next step.
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
        self._kept: dict[torch.Tensor, torch.Tensor] = {}
        self._buckets: dict[tuple[torch.Tensor, ...], torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the codec and the losses by parameter name; they differ from rank to rank."""
        kept = {self._names[each]: losses.clone() for each, losses in self._kept.items()}
        return {"codec": self.codec, "residuals": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the losses that this rank saved.

        Raises:
            UsageError: a loss has another size than its parameter, or belongs to none.
        """
        parameters = {name: parameter for parameter, name in self._names.items()}
        for name, losses in state["residuals"].items():
            known = parameters.get(name)
            if known is None or known.numel() != losses.numel():
                size = "is unknown" if known is None else f"has {known.numel()} elements"
                raise UsageError(
                    f"the residual of {name!r} has {losses.numel()} elements, the parameter {size};"
                    " load the state of the same model"
                )
        self._buckets.clear()
        self._kept = {
            parameters[name]: losses.detach().clone().float().reshape(-1)
            for name, losses in state["residuals"].items()
        }

    def average(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Average a bucket over all ranks; the future holds its buffer."""
        work = self._group.average_encoded(bucket.buffer(), self.codec, self._residual(bucket))
        return work.get_future().then(lambda done: done.value()[0])

    def _residual(self, bucket: GradBucket) -> torch.Tensor | None:
        buffer = bucket.buffer()
        if not self.error_feedback or buffer.dtype != torch.float32:
            return None
        parameters = tuple(bucket.parameters())
        known = self._buckets.get(parameters)
        return self._gather(bucket, parameters) if known is None else known

    def _gather(self, bucket: GradBucket, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Lay the losses of a bucket's parameters out as the bucket is."""
        buffer = bucket.buffer()
        residual = torch.zeros_like(buffer)
        gradients = bucket.gradients()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            begin = gradient.storage_offset() - buffer.storage_offset()
            place = residual[begin : begin + gradient.numel()]
            if parameter in self._kept:
                place.copy_(self._kept[parameter])
            self._kept[parameter] = place
        stale = [each for each in self._buckets if not set(each).isdisjoint(parameters)]
        for each in stale:
            del self._buckets[each]
        self._buckets[parameters] = residual
        return residual


def _average(state: GradientCodec, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    return state.average(bucket)
