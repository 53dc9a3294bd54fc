"""Communication that goes on across the step boundary, into the next forward pass.

DistributedDataParallel waits for all gradients at the end of backward. Here nothing does: `step()`
only notes that an update is due, what the next forward needs first travels first, and each
parameter is updated when its average is there and it is read for the first time (Peng et al.,
ByteScheduler, SOSP 2019). The result is that of synchronous training, bit for bit for the same
buckets.

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
from slipstream.errors import UsageError
from slipstream.torch.buckets import Bucket, Phase, cut, gradients_of
from slipstream.torch.compression import check_codec, keeps_what_is_lost
from slipstream.torch.process_group import SlipstreamProcessGroup, own_group
from slipstream.torch.waiting import no_longer_wait, wait_when_read

_FIRST_BYTES = 1 << 20
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
    """Train a model data-parallel, with communication that overlaps with all of the step.

    Call it on every rank, after the optimizer was made; it broadcasts parameters and buffers of
    rank 0. The model is not wrapped and the script stays as it is; do not use
    DistributedDataParallel as well. What needs all gradients (clip_grad_norm_, GradScaler) and
    whoever reads parameters outside forward (state_dict, an average of weights) waits for them.
    Buffers, such as those of batch normalisation, are each rank's own.

    Args:
        model: Model on the CPU.
        optimizer: Optimizer of the model's parameters; it must update each parameter on its own, as
            all of torch.optim do but LBFGS.
        group: Process group that averages, which must be Slipstream's (default: the world).
        bucket_bytes: Approximate size of the buckets into which gradients are fused (default: 8 MiB
            at first, then the size that makes steps shortest, `Overlap.tuning`).
        codec: Codec of the gradients between hosts: none, fp16, bf16 or int8.
        error_feedback: Whether the loss of the codec is kept for the next step (default: for int8
            only).
        across_steps: Whether communication may go on after `step()`; False waits in it, with
            bitwise the same results.

    Raises:
        UsageError: the group is another backend's, or there is nothing to train.
    """
    group = own_group(dist.group.WORLD if group is None else group)
    check_codec(codec, tuple(CODECS))
    keeps_losses = keeps_what_is_lost(codec, error_feedback)
    trained = [each for each in model.parameters() if each.requires_grad]
    if not trained:
        raise UsageError("no parameter of the model requires a gradient; there is nothing to train")
    known = {id(each) for each in model.parameters()}
    given = [each for options in optimizer.param_groups for each in options["params"]]
    if strangers := sum(id(each) not in known for each in given):
        raise UsageError(
            f"the optimizer has {strangers} parameters that are none of the model's; put them into"
            " the model, or into an optimizer of their own"
        )
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), group_src=0, group=group)
    fusion = Knob(
        "bucket bytes",
        _BUCKET_SIZES if bucket_bytes is None else [],
        bucket_bytes or _BUCKET_BYTES,
    )
    wire = Wire(group, codec, keeps_losses)
    return Overlap(model, optimizer, wire, fusion, across_steps)


class Wire(NamedTuple):
    """Group and codec of the gradients.

    Args:
        group: Process group that averages.
        codec: Codec of the gradients between hosts.
        keeps_losses: Whether the loss of the codec is kept for the next step.
    """

    group: SlipstreamProcessGroup
    codec: str
    keeps_losses: bool


class Overlap:
    """Overlap of communication with training; most scripts need only `overlap`.

    Args:
        model: Model whose parameters wait for their values.
        optimizer: Optimizer whose `step` and `zero_grad` are replaced.
        wire: Group and codec of the gradients.
        fusion: Knob of the bucket size in bytes.
        across_steps: Whether updates are put off until parameters are read.
    """

    tuning: Tuning
    """What it chooses while training, and why."""

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
        self._names = {each: name for name, each in model.named_parameters()}
        trained = [each for each in model.parameters() if each.requires_grad]
        self._gradients = gradients_of(trained, wire.keeps_losses)
        self._fuse()
        self.tuning = wire.group.make_tuning([fusion])
        self._next = 0  # the bucket that is sent next
        self._in_backward = False
        self._used = _Used(wire.group, list(self._bucket_of))
        self._paused = False
        self._told: set[str] = set()
        self._step: Callable[..., Any] = optimizer.step
        self._undo: list[Callable[[], None]] = []
        self._install()

    # For the user.

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Add up gradients on this rank without communication, for accumulation."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def wait(self) -> None:
        """Block until every parameter has the value of the last step."""
        for bucket in self._buckets:
            self._finish(bucket)

    def remove(self) -> None:
        """Wait, and make model and optimizer as they were before."""
        self.wait()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what the codec has lost so far, by parameter name; it differs by rank."""
        self.wait()
        kept = {
            self._names[parameter]: gradients.losses(parameter).clone()
            for gradients in self._gradients
            if gradients.residual is not None
            for parameter in gradients.views
        }
        return {"codec": self._wire.codec, "residuals": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the losses that this rank saved; other bucket sizes do not matter."""
        self.wait()
        for gradients in self._gradients:
            for parameter in gradients.views if gradients.residual is not None else ():
                losses = state["residuals"].get(self._names[parameter])
                if losses is not None:
                    gradients.losses(parameter).copy_(losses)

    # Fusion.

    def _fuse(self) -> None:
        """Make the buckets, in the order in which they are sent."""
        self._fused = size = self._fusion.value
        self._buckets: list[Bucket] = []
        for gradients in self._gradients:
            for parameters in cut(gradients.views, size, min(_FIRST_BYTES, size)):
                self._buckets.append(Bucket(gradients, parameters, len(self._buckets)))
        self._bucket_of = {each: bucket for bucket in self._buckets for each in bucket.parameters}

    def _fuse_anew(self) -> None:
        """Cut otherwise where that was chosen: before the first gradient of a step, when forward
        has waited for the last one's."""
        if self._fused == self._fusion.value:
            return
        self.wait()
        if all(each.phase is Phase.IDLE for each in self._buckets):  # else gradients are adding up
            self._fuse()

    # Who waits for what: see waiting.py.

    def settle_value(self, parameter: Parameter) -> None:
        """Block until the parameter has the value of the last step."""
        bucket = self._bucket_of[parameter]
        if bucket.options is not None:
            self._finish(bucket)

    def settle_gradient(self, parameter: Parameter) -> None:
        """Block until the parameter has its averaged gradient."""
        bucket = self._bucket_of[parameter]
        if bucket.phase in (Phase.REDUCING, Phase.REDUCED):
            if self._across:
                self._tell(
                    "gradients are read before the next forward pass (clip_grad_norm_, GradScaler"
                    " or the like), which waits for them: only backward hides communication"
                )
            self._finish(bucket)
            if not bucket.dropped:
                bucket.expose(self._used.nowhere())

    # The steps.

    def _ready(self, parameter: Parameter) -> None:
        """Autograd has a gradient; called in its thread."""
        if self._paused:
            return
        if not self._in_backward:
            self._in_backward = True
            _at_end_of_backward(self._complete)
            self._fuse_anew()
        bucket = self._bucket_of[parameter]
        if bucket.options is not None:
            self._finish(bucket)
        with torch.no_grad(), _plain():
            bucket.fill(parameter)
        self._launch()

    def _launch(self) -> None:
        """Send the buckets that are full, in the order that all ranks have in common."""
        while self._next < len(self._buckets) and self._buckets[self._next].is_full:
            self._buckets[self._next].launch(self._wire.group, self._wire.codec)
            self._next += 1

    def _complete(self) -> None:
        """Complete the buckets after backward; a gradient missing here may exist elsewhere."""
        lacking: list[Parameter] = []
        while self._next < len(self._buckets):
            lacking += self._buckets[self._next].fill_with_zeros()
            self._launch()
        self._next = 0
        self._in_backward = False
        if not self._used.exchange(lacking):
            names = ", ".join(self._names[each] for each in lacking)
            self._tell(f"no gradient for {names}, as there was in the first step: taken as zeros")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Note that an update is due, or do it where its gradients are there."""
        if closure is not None:
            raise UsageError(
                "step(closure) computes gradients again and again; not possible with overlap()"
            )
        if all(each.phase is Phase.IDLE for each in self._buckets):
            with _plain():
                return self._step()  # no backward pass since the last
        for group in self._optimizer.param_groups:
            self._note(group)
        for bucket in self._buckets:
            if not self._across or bucket.phase is Phase.REDUCED or bucket.is_done():
                self._finish(bucket)
        self.tuning.step()
        return None

    def _note(self, group: dict[str, Any]) -> None:
        """Remember with which learning rate (and so on) the parameters of a group are due."""
        options = {name: value for name, value in group.items() if name != "params"}
        members: dict[int, list[Parameter]] = {}
        for parameter in group["params"]:
            if parameter in self._bucket_of:
                members.setdefault(id(self._bucket_of[parameter]), []).append(parameter)
        for bucket in self._buckets:
            if parameters := members.get(id(bucket)):
                bucket.options = [*(bucket.options or ()), {**options, "params": parameters}]

    def _finish(self, bucket: Bucket) -> None:
        """Wait for a bucket, and use the time for the updates of those that are there."""
        if bucket.phase is Phase.REDUCING and not bucket.is_done():
            for other in self._buckets:
                if other.options is not None and other is not bucket and other.is_done():
                    self._update(other)
        self._update(bucket)

    def _update(self, bucket: Bucket) -> None:
        with torch.no_grad(), _plain():
            bucket.finish()
            if bucket.options is None:
                return
            groups, bucket_groups = self._optimizer.param_groups, bucket.options
            bucket.options = None
            bucket.expose(self._used.nowhere())
            self._optimizer.param_groups = bucket_groups
            try:
                self._step()
            finally:
                self._optimizer.param_groups = groups
            if bucket.dropped:
                bucket.hide()
            bucket.phase = Phase.IDLE

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients; those that are under way are still used by the step that is due."""
        with torch.no_grad(), _plain():
            for bucket in self._buckets:
                if not set_to_none:
                    self._finish(bucket)
                    bucket.buffer.zero_()
                bucket.dropped = bucket.dropped or set_to_none
                if set_to_none:
                    bucket.hide()

    # What is put in place.

    def _install(self) -> None:
        for parameter in self._bucket_of:
            trained: Any = parameter
            hook = trained.register_post_accumulate_grad_hook(self._ready)
            self._undo.append(hook.remove)
            wait_when_read(parameter, self)
            self._undo.append(lambda parameter=parameter: no_longer_wait(parameter))
        for module in self._model.modules():
            own = [each for each in module.parameters(recurse=False) if each in self._bucket_of]
            if own:
                handle = module.register_forward_pre_hook(self._before_forward(module, own))
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
        return lambda *_: self.wait()  # no bound method, which would be copied with the model

    def _before_forward(self, owner: Module, parameters: list[Parameter]) -> Callable[..., None]:
        def settle(module: Module, _: Any) -> None:
            if module is owner:  # and not a copy, which has the hooks as well
                for parameter in parameters:
                    self.settle_value(parameter)

        return settle

    def _replace(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Give an object another method. It is a bound one, as LR schedulers expect of `step`."""

        def call(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this is owner:
                return method(*args, **kwargs)
            return getattr(cast(Any, type(this)), name)(this, *args, **kwargs)  # a copy

        had = owner.__dict__.get(name)
        setattr(owner, name, types.MethodType(call, owner))
        self._undo.append(
            lambda: owner.__dict__.pop(name, None) if had is None else setattr(owner, name, had)
        )

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.info("overlap: %s", what)


def _at_end_of_backward(call: Callable[[], None]) -> None:
    engine: Any = torch.autograd.Variable._execution_engine  # pyright: ignore
    engine.queue_callback(call)


class _Used:
    """Which parameters had a gradient on some rank; those that had none are not updated.

    The ranks tell each other in the first step and, if a gradient was missing anywhere, in every
    one from then on.

    Args:
        group: Process group that averages.
        parameters: All parameters that are trained.
    """

    def __init__(self, group: SlipstreamProcessGroup, parameters: list[Parameter]) -> None:
        self._group = group
        self._parameters = parameters
        self._nowhere: frozenset[Parameter] = frozenset()
        self._exchanges = True
        self._counts = torch.zeros(len(parameters), dtype=torch.int32)
        self._work: dist.Work | None = None

    def exchange(self, lacking: list[Parameter]) -> bool:
        """Say what this rank lacks in this step, without blocking.

        Returns:
            False where something is lacking and the others are not told.
        """
        self.nowhere()
        if not self._exchanges:
            return not lacking
        absent = set(lacking)
        flags = [each not in absent for each in self._parameters]
        self._counts = torch.tensor(flags, dtype=torch.int32)
        self._work = self._group.allreduce([self._counts])
        return True

    def nowhere(self) -> frozenset[Parameter]:
        """Return the parameters without a gradient on any rank and block until all have said."""
        if self._work is not None:
            self._work.wait()
            self._work = None
            counts = cast("list[int]", cast(Any, self._counts).tolist())
            size = self._group.size()
            self._exchanges = any(count < size for count in counts)
            pairs = zip(self._parameters, counts, strict=True)
            self._nowhere = frozenset(each for each, count in pairs if count == 0)
        return self._nowhere


@contextmanager
def _plain() -> Generator[None]:
    """Within, parameters do not wait."""
    with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
        yield
