"""Data-parallel training in which communication continues into the next forward pass.

DistributedDataParallel waits for all gradients at the end of the backward pass. With `overlap`,
`step()` only records that an update is pending. The gradients that the next forward pass needs
first are sent first. The first read of a parameter after the step waits for its averaged gradient
and updates the parameter (Peng et al., ByteScheduler, SOSP 2019). The result is the same as in
synchronous training; it is the same bit for bit if the buckets are the same.

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slipstream.torch.overlap(model, optimizer)
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
"""

from __future__ import annotations

import logging
import types
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from slipstream.codecs import CODECS
from slipstream.comm.tuner import Knob
from slipstream.comm.tuning import Tuning
from slipstream.errors import UnsupportedError, UsageError
from slipstream.torch.buckets import Bucket, Phase, cut, gradients_of
from slipstream.torch.compression import check_codec, uses_error_feedback
from slipstream.torch.cuda.kinds import KINDS
from slipstream.torch.cuda.updates import updates_on
from slipstream.torch.process_group import SlipstreamProcessGroup, own_group
from slipstream.torch.waiting import no_longer_wait, wait_when_read

_FIRST_BUCKET_BYTES = 1 << 20  # as in DistributedDataParallel
# Bucket size before tuning, and the sizes that tuning tries (1 to 64 MiB). Chosen by hand.
_BUCKET_BYTES = 8 << 20
_BUCKET_SIZES = [1 << exponent for exponent in range(20, 27)]

_log = logging.getLogger(__name__)


def overlap(
    model: Module,
    optimizer: Optimizer,
    *,
    group: dist.ProcessGroup | None = None,
    bucket_bytes: int | None = None,
    codec: str = "none",
    error_feedback: bool | None = None,
    across_steps: bool = True,
) -> Overlap:
    """Train a model data-parallel, with communication that overlaps with whole training steps.

    Call `overlap` on every rank, after the optimizer was created. The function copies the
    parameters and buffers of rank 0 to all ranks. The model is not wrapped, and the script needs no
    other change; do not also use DistributedDataParallel. Functions that need all gradients
    (clip_grad_norm_, GradScaler) wait until all have arrived; code that reads parameters outside
    the forward pass (state_dict, an average of weights) waits too. Buffers, such as those of batch
    normalization, are not synchronized.

    Args:
        model: Model on the CPU or on one GPU. On a GPU no call blocks: streams wait for averages
            and updates. Bucket sizes are not tuned there.
        optimizer: Optimizer of the model's parameters. The optimizer must update each parameter
            independently, like all optimizers of torch.optim except LBFGS.
        group: Process group over which gradients are averaged, which must be a group of Slipstream
            (default: the group of all ranks).
        bucket_bytes: Approximate size in bytes of the buckets into which gradients are fused
            (default: 8 MiB at first, then the size with the shortest steps; see `Overlap.tuning`).
        codec: Codec of the gradients between hosts: none (default), fp16, bf16 or int8.
        error_feedback: Whether the rounding errors of the codec are added to the gradients of the
            next step (default: for int8 only).
        across_steps: Whether communication may continue after `step()` (default True). If
            `across_steps` is False, `step()` waits, and the results are the same bit for bit.

    Returns:
        An `Overlap`, with methods for accumulation (`no_sync`) and checkpoints (`state_dict`).

    Raises:
        UsageError: The group belongs to another backend, or no parameter is trained.
        UnsupportedError: The model is neither on the CPU nor on one GPU.
    """
    group = own_group(dist.group.WORLD if group is None else group)
    check_codec(codec, tuple(CODECS))
    keeps_losses = uses_error_feedback(codec, error_feedback)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("no parameter of the model requires a gradient; there is nothing to train")
    device = _device_of(model)
    in_model = {id(parameter) for parameter in model.parameters()}
    optimized = [p for param_group in optimizer.param_groups for p in param_group["params"]]
    if strangers := sum(id(parameter) not in in_model for parameter in optimized):
        raise UsageError(
            f"the optimizer has {strangers} parameters that do not belong to the model; put them"
            " into the model, or into an optimizer of their own"
        )
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), group_src=0, group=group)
    fusion = Knob(
        "bucket bytes",
        _BUCKET_SIZES if bucket_bytes is None and device.type == "cpu" else [],
        bucket_bytes or _BUCKET_BYTES,
    )
    wire = Wire(group, codec, keeps_losses)
    return Overlap(model, optimizer, wire, fusion, across_steps)


def _device_of(model: Module) -> torch.device:
    """Return the device of a model's parameters.

    Raises:
        UnsupportedError: There are several devices, or the engine does not support the device.
    """
    devices = {parameter.device for parameter in model.parameters()}
    device = next(iter(devices))
    if len(devices) > 1 or device.type not in ("cpu", *KINDS):
        names = ", ".join(sorted(map(str, devices)))
        raise UnsupportedError(
            f"overlap of a model on {names}; allowed: one device, which is the CPU or a CUDA GPU;"
            " move the model, or wrap it in DistributedDataParallel"
        )
    return device


class Wire(NamedTuple):
    """Process group and codec for the gradients of a model.

    Args:
        group: Process group over which gradients are averaged.
        codec: Codec of the gradients between hosts.
        keeps_losses: Whether the rounding errors (losses) of the codec are added to the gradients
            of the next step.
    """

    group: SlipstreamProcessGroup
    codec: str
    keeps_losses: bool


class Overlap:
    """Overlap of communication with training. `overlap` creates it.

    Args:
        model: Model whose parameters, when they are read, block until they have been updated.
        optimizer: Optimizer whose `step` and `zero_grad` are replaced.
        wire: Process group and codec for the gradients.
        fusion: Knob (tunable setting) for the bucket size in bytes.
        across_steps: Whether an update is delayed until its parameter is read.
    """

    tuning: Tuning
    """Tuning of the bucket size and the allreduces, with its choices and their reasons."""

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer,
        wire: Wire,
        fusion: Knob,
        across_steps: bool,
    ) -> None:
        self._model, self._optimizer, self._wire = model, optimizer, wire
        self._fusion, self._across = fusion, across_steps
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._gradients = gradients_of(trained, wire.keeps_losses, wire.group.losses_on)
        self._updates = updates_on(trained[0].device)
        self._fuse()
        self.tuning = wire.group.make_tuning([fusion])
        self._next = 0  # index of the bucket to send next
        self._in_backward = False
        self._used = _UsedParameters(wire.group, list(self._bucket_of))
        self._paused = False
        self._logged: set[str] = set()
        self._step: Callable[..., Any] = optimizer.step
        self._undo: list[Callable[[], None]] = []
        self._install()

    # Methods for the user.

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Within this context, add up gradients on this rank, without communication."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def wait(self) -> None:
        """Block until the last step has updated every parameter."""
        for bucket in self._buckets:
            self._finish(bucket)

    def remove(self) -> None:
        """Wait for updates; restore the model and the optimizer as they were before `overlap`."""
        self.wait()
        self._uninstall()

    def abandon(self) -> None:
        """Restore the model and the optimizer without waiting, because a rank is lost.

        The last updates may be missing for some of the parameters, so load a commit or a
        checkpoint. The versions of these parameters change as if they had been updated.
        """
        self._uninstall()
        for parameter, bucket in self._bucket_of.items():
            parameter.grad = None
            if bucket.options is not None:
                torch.autograd.graph.increment_version(parameter)

    def _uninstall(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        _active.discard(self)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's rounding errors of the codec by parameter name."""
        self._block()
        residuals = {
            self._names[parameter]: gradients.losses(parameter).clone()
            for gradients in self._gradients
            if gradients.residual is not None
            for parameter in gradients.views
        }
        return {"codec": self._wire.codec, "residuals": residuals}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the rounding errors that this rank saved; bucket sizes may have changed since."""
        self._block()
        for gradients in self._gradients:
            for parameter in gradients.views if gradients.residual is not None else ():
                losses = state["residuals"].get(self._names[parameter])
                if losses is not None:
                    gradients.losses(parameter).copy_(losses)

    def _block(self) -> None:
        """Wait for all updates, and block until the engine has written all rounding errors."""
        self.wait()
        for bucket in self._buckets:
            bucket.block()

    # Fusion of gradients.

    def _fuse(self) -> None:
        """Create the buckets in the order in which they will be sent."""
        self._fused = size = self._fusion.value
        self._buckets: list[Bucket] = []
        for gradients in self._gradients:
            for parameters in cut(gradients.views, size, min(_FIRST_BUCKET_BYTES, size)):
                self._buckets.append(Bucket(gradients, parameters, len(self._buckets)))
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}

    def _fuse_anew(self) -> None:
        """Create new buckets if the tuning has chosen another bucket size.

        Call `_fuse_anew` before a step's first gradient moves into a bucket. By then the
        forward pass has waited for the gradients of the previous step.
        """
        if self._fused == self._fusion.value:
            return
        self.wait()
        if all(b.phase is Phase.IDLE for b in self._buckets):  # else gradients still add up in them
            self._fuse()

    # Methods for parameters that are read; see waiting.py.

    def settle_value(self, parameter: Parameter) -> None:
        """Block until the last step has updated the parameter."""
        bucket = self._bucket_of[parameter]
        if bucket.options is not None:
            self._finish(bucket)
        self._updates.wait()

    def settle_gradient(self, parameter: Parameter) -> None:
        """Block until the parameter has its averaged gradient."""
        bucket = self._bucket_of[parameter]
        if bucket.phase in (Phase.REDUCING, Phase.REDUCED):
            if self._across:
                self._log_once(
                    "gradients are read before the next forward pass by clip_grad_norm_, GradScaler"
                    " or the like. The reader waits for them, so communication overlaps with the"
                    " backward pass only"
                )
            self._finish(bucket)
            if not bucket.dropped:
                bucket.expose(self._used.unused())
        self._updates.wait()

    # The training steps.

    def _ready(self, parameter: Parameter) -> None:
        """Move a gradient into its bucket; called in a thread of autograd."""
        if self._paused:
            return
        if not self._in_backward:
            self._in_backward = True
            _at_end_of_backward(self._complete)
            self._fuse_anew()
        bucket = self._bucket_of[parameter]
        if bucket.options is not None:
            self._finish(bucket)
        self._updates.wait()
        with torch.no_grad(), _without_waiting():
            bucket.fill(parameter)
        self._launch()

    def _launch(self) -> None:
        """Send buckets that are full, in the order that is the same on all ranks."""
        while self._next < len(self._buckets) and self._buckets[self._next].is_full:
            self._buckets[self._next].launch(self._wire.group, self._wire.codec)
            self._next += 1

    def _complete(self) -> None:
        """Fill and send the remaining buckets after the backward pass.

        A gradient that is missing on this rank may exist on another rank.
        """
        missing: list[Parameter] = []
        while self._next < len(self._buckets):
            missing += self._buckets[self._next].fill_with_zeros()
            self._launch()
        self._next = 0
        self._in_backward = False
        if not self._used.exchange(missing):
            names = ", ".join(self._names[parameter] for parameter in missing)
            self._log_once(
                f"no gradient for {names}, which had one in earlier steps; zeros are sent"
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Record that an update is pending; apply it to buckets that are averaged already."""
        if closure is not None:
            raise UsageError(
                "step(closure) computes gradients several times, which overlap() does not support;"
                " call step() without a closure"
            )
        if all(bucket.phase is Phase.IDLE for bucket in self._buckets):
            with _without_waiting():
                return self._step()  # no backward pass since the last step
        self._updates.follow()
        for group in self._optimizer.param_groups:
            self._record_options(group)
        for bucket in self._buckets:
            if not self._across or bucket.phase is Phase.REDUCED or bucket.is_done():
                self._finish(bucket)
        self.tuning.step()
        return None

    def _record_options(self, group: dict[str, Any]) -> None:
        """Record a parameter group's options, such as the learning rate, for the update."""
        options = {name: value for name, value in group.items() if name != "params"}
        members: dict[int, list[Parameter]] = {}
        for parameter in group["params"]:
            if parameter in self._bucket_of:
                members.setdefault(id(self._bucket_of[parameter]), []).append(parameter)
        for bucket in self._buckets:
            if parameters := members.get(id(bucket)):
                bucket.options = [*(bucket.options or ()), {**options, "params": parameters}]

    def _finish(self, bucket: Bucket) -> None:
        """Update a bucket's parameters; while its averages are missing, update other buckets."""
        if bucket.phase is Phase.REDUCING and not bucket.is_done():
            for other in self._buckets:
                if other.options is not None and other is not bucket and other.is_done():
                    self._update(other)
        self._update(bucket)

    def _update(self, bucket: Bucket) -> None:
        """Wait for a bucket's averages, and make the pending optimizer step for its parameters."""
        with torch.no_grad(), _without_waiting(), self._updates.updating():
            bucket.finish()
            if bucket.options is None:
                return
            groups, bucket_groups = self._optimizer.param_groups, bucket.options
            bucket.options = None
            bucket.expose(self._used.unused())
            self._optimizer.param_groups = bucket_groups
            try:
                self._step()
            finally:
                self._optimizer.param_groups = groups
            if bucket.dropped:
                bucket.hide()
            bucket.phase = Phase.IDLE

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients.

        A pending update still uses the gradients that are being averaged.
        """
        self._updates.wait()
        with torch.no_grad(), _without_waiting():
            for bucket in self._buckets:
                if not set_to_none:
                    self._finish(bucket)
                    bucket.buffer.zero_()
                bucket.dropped = bucket.dropped or set_to_none
                if set_to_none:
                    bucket.hide()

    # Hooks and replaced methods.

    def _install(self) -> None:
        _active.add(self)
        for parameter in self._bucket_of:
            trained: Any = parameter
            hook = trained.register_post_accumulate_grad_hook(self._ready)
            self._undo.append(hook.remove)
            wait_when_read(parameter, self)
            self._undo.append(lambda parameter=parameter: no_longer_wait(parameter))
        for module in self._model.modules():
            trained_here = [p for p in module.parameters(recurse=False) if p in self._bucket_of]
            if trained_here:
                hook = self._before_forward(module, trained_here)
                handle = module.register_forward_pre_hook(hook)
                self._undo.append(handle.remove)
        for name in ("step", "zero_grad"):
            self._replace(self._optimizer, name, getattr(self, name))
        self._replace(self._model, "zero_grad", self.zero_grad)
        optimizer: Any = self._optimizer
        model: Any = self._model
        for register in (
            optimizer.register_state_dict_pre_hook,
            optimizer.register_load_state_dict_pre_hook,
            model.register_load_state_dict_pre_hook,
        ):
            self._undo.append(register(self._waits()).remove)

    def _waits(self) -> Callable[..., None]:
        return lambda *_: self.wait()  # a copy of the model would also copy a bound method's object

    def _before_forward(self, owner: Module, parameters: list[Parameter]) -> Callable[..., None]:
        def settle(module: Module, _: Any) -> None:
            if module is owner:  # a copy of the module has the hook too
                for parameter in parameters:
                    self.settle_value(parameter)

        return settle

    def _replace(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Replace an object's method by a bound method, as LR schedulers expect bound methods."""

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this is owner:
                return method(*args, **kwargs)
            return getattr(cast(Any, type(this)), name)(this, *args, **kwargs)  # in a copy

        before = owner.__dict__.get(name)
        setattr(owner, name, types.MethodType(call, owner))
        self._undo.append(
            lambda: (
                owner.__dict__.pop(name, None) if before is None else setattr(owner, name, before)
            )
        )

    def _log_once(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            _log.info("overlap: %s", message)


def _at_end_of_backward(call: Callable[[], None]) -> None:
    engine: Any = torch.autograd.Variable._execution_engine  # pyright: ignore
    engine.queue_callback(call)


_active: weakref.WeakSet[Overlap] = weakref.WeakSet()


def abandon_overlaps() -> None:
    """Abandon every overlap of this process; see `Overlap.abandon`."""
    for each in list(_active):
        each.abandon()


class _UsedParameters:
    """Record of the parameters that had a gradient on some rank; no other parameter is updated.

    The ranks exchange the record in the first step. If a gradient was missing on a rank, the ranks
    also exchange the record in the next step, and so on until no gradient is missing.

    Args:
        group: Process group over which gradients are averaged.
        parameters: All parameters that are trained.
    """

    def __init__(self, group: SlipstreamProcessGroup, parameters: list[Parameter]) -> None:
        self._group = group
        self._parameters = parameters
        self._unused: frozenset[Parameter] = frozenset()
        self._exchanges = True
        self._counts = torch.zeros(len(parameters), dtype=torch.int32)
        self._work: dist.Work | None = None

    def exchange(self, missing: list[Parameter]) -> bool:
        """Tell the other ranks which parameters have no gradient on this rank; does not block.

        Args:
            missing: Parameters without a gradient on this rank in this step.

        Returns:
            False if a gradient is missing in a step in which the ranks no longer exchange the
            record, otherwise True.
        """
        self.unused()
        if not self._exchanges:
            return not missing
        absent = set(missing)
        flags = [parameter not in absent for parameter in self._parameters]
        self._counts = torch.tensor(flags, dtype=torch.int32)
        self._work = self._group.allreduce([self._counts])
        return True

    def unused(self) -> frozenset[Parameter]:
        """Return the parameters without a gradient on any rank; block until all ranks have sent."""
        if self._work is not None:
            self._work.wait()
            self._work = None
            counts = cast("list[int]", cast(Any, self._counts).tolist())
            size = self._group.size()
            self._exchanges = any(count < size for count in counts)
            pairs = zip(self._parameters, counts, strict=True)
            self._unused = frozenset(parameter for parameter, count in pairs if count == 0)
        return self._unused


@contextmanager
def _without_waiting() -> Generator[None]:
    """Within this context, reading a parameter does not wait for its update."""
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        yield
