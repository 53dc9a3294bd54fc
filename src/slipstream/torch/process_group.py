"""Process group of the backend, whose methods PyTorch calls.

PyTorch 2.13 gave some methods new names, and its C++ code looks the methods up by the new names.
Older releases know only the old names, and newer releases refuse a class that has both names of a
method. So each renamed method is defined once, and gets its name at the end of the file. In older
releases, the options of some collectives lack the field asyncOp. So the end of the file also
chooses the method that reads options.
"""

# PyTorch's stubs list overloads for callers in Python; its C++ code passes arguments by position.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import (
    AllgatherOptions,  # pyright: ignore[reportPrivateImportUsage]
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Store,
    Work,
)

from slipstream import _core
from slipstream.comm.tuner import Knob
from slipstream.comm.tuning import Tuning
from slipstream.errors import UsageError
from slipstream.torch import bootstrap, collectives, profiler
from slipstream.torch.backend import BACKEND_NAME
from slipstream.torch.backward import extract_without_python
from slipstream.torch.callbacks import Callbacks, in_callback
from slipstream.torch.collectives import RunOptions, Submission, Tensors
from slipstream.torch.cuda.kinds import KINDS
from slipstream.torch.cuda.reductions import GpuReductions, ReductionsByDevice
from slipstream.torch.dynamo import keep_out
from slipstream.torch.monitor import MonitoredBarrier
from slipstream.torch.sparse import allreduce_sparse
from slipstream.torch.tensors import copy_out, device_of, is_plain, single
from slipstream.torch.work import FINISHED, SlipstreamWork

if TYPE_CHECKING:
    from slipstream.torch.cuda.groups import CudaGroups
    from slipstream.torch.cuda.work import CudaWork

ANY_RANK = -1
DRAIN_SECONDS = 5.0  # time for remaining operations in shutdown(); chosen by hand, not measured

_log = logging.getLogger(__name__)

# Default options, for calls that pass none.
_ALL_GATHER = AllgatherOptions()
_ALLREDUCE_COALESCED = AllreduceCoalescedOptions()
_ALLREDUCE = AllreduceOptions()
_ALL_TO_ALL = AllToAllOptions()
_BARRIER = BarrierOptions()
_BROADCAST = BroadcastOptions()
_GATHER = GatherOptions()
_REDUCE = ReduceOptions()
_REDUCE_SCATTER = ReduceScatterOptions()
_SCATTER = ScatterOptions()
_EVERY_DEFAULT = (
    *(_ALL_GATHER, _ALLREDUCE_COALESCED, _ALLREDUCE, _ALL_TO_ALL, _BARRIER, _BROADCAST),
    *(_GATHER, _REDUCE, _REDUCE_SCATTER, _SCATTER),
)


@keep_out
class SlipstreamProcessGroup(ProcessGroup):
    """Group of ranks that exchange tensors of the CPU and of CUDA GPUs through Slipstream's engine.

    A collective submits its operation and returns a work, which can wait or return a future. If
    asyncOp is false in a collective's options, the collective may block until it is done, which
    PyTorch allows. For tensors that are not contiguous, the operation works on contiguous copies.
    All methods may be called from any thread. All ranks must call the collectives of a group in the
    same order.

    Args:
        membership: Membership of this process in the group; it ends at `shutdown`.
        store: Store that PyTorch made for the group.
        timeout: Time limit of operations whose options have no time limit.
    """

    def __init__(self, membership: bootstrap.Membership, store: Store, timeout: timedelta) -> None:
        group = membership.group
        super().__init__(group.rank(), group.size())  # pyright: ignore[reportCallIssue]
        self._group = group
        self._membership = membership
        self._completions = membership.completions
        self._store = store
        self._seconds = timeout.total_seconds()
        self._name = self._description = ""
        self._in_flight: dict[SlipstreamWork | CudaWork, None] = {}
        self._monitor: MonitoredBarrier | None = None
        self._callbacks = Callbacks()
        self._cuda: CudaGroups | None = None
        self._lock = threading.Lock()  # guards `_nested` and `_cuda`
        self._reductions = ReductionsByDevice(membership, store, timeout)
        self._nested: _core.Group | None = None
        # Runs once: at shutdown, when the object is garbage collected, or when Python ends.
        self._leave = weakref.finalize(self, _leave, membership, self._callbacks)

    # Properties of the group, under PyTorch's names.

    def getBackendName(self) -> str:  # noqa: N802
        return BACKEND_NAME

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    def get_group_store(self) -> Store:
        """Return the store that PyTorch made for the group."""
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        gpus = [kind.name for kind in KINDS.values() if kind.module.is_available()]
        return [torch.device(name) for name in ("cpu", *gpus)]

    def _get_backend(self, device: torch.device) -> SlipstreamProcessGroup:
        """Return the backend of a device, which is the group itself for every device."""
        return self

    @property
    def supports_coalescing(self) -> bool:
        """Whether calls between _start_coalescing() and _end_coalescing() form one operation."""
        return False

    # The end of a group.

    def shutdown(self) -> None:
        """Leave the group. Operations in flight get five seconds to finish, and then fail."""
        if self._leave.alive:
            self._drain()
        self._end()

    def abort(self) -> None:
        """Let the operations in flight fail on every rank, and leave the group."""
        if self._leave.alive:
            for group in self._membership.groups():
                group.abort("abort() was called")
        self._end(aborts=True)

    def _end(self, aborts: bool = False) -> None:
        self._reductions.close(aborts)  # first, so that no collective within a host waits for ever
        self._leave()
        if self._cuda is not None:
            self._cuda.close()  # the GPU may still copy into the tensors in flight until then
            from slipstream.torch.cuda.work import CudaWork

            for work in list(self._in_flight):
                if isinstance(work, CudaWork):
                    work.release()
        self._in_flight.clear()

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        for work in list(self._in_flight):
            try:
                work.wait(timedelta(seconds=max(0.001, deadline - time.monotonic())))
            except RuntimeError as error:  # from the engine, or from the copying of results
                _log.warning("an operation for which nobody waited has failed: %s", error)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of operations whose options have no time limit."""
        self._seconds = timeout.total_seconds()

    # Collectives. Lists of tensors have one entry, and lists of lists have one list. They are lists
    # because PyTorch's API allows several GPUs in a process.

    def allreduce(self, tensors: Tensors, opts: Any = _ALLREDUCE) -> Work:
        """Replace a tensor, which may be sparse_coo, by its reduction over all ranks."""
        tensor, options = single(tensors), self._options(opts)
        if is_plain(tensor) and self._may_block(options):  # a shorter path, 5.7 instead of 6.4 us
            group = self._engine_group()
            handle = collectives.reduce_in_place(group, tensor, opts.reduceOp, options)
            try:
                handle.wait()
            except BaseException:
                self._keep("all_reduce", Submission((handle,), tensors, tensors))
                raise
            return FINISHED
        if tensor.is_sparse:
            allreduce_sparse(self._engine_group(), tensor, opts.reduceOp, options)
            return self._work_or_wait("all_reduce", Submission((), tensors, tensors), options)
        reductions = self._reductions_for(tensor)
        if reductions is not None:
            submission = reductions.allreduce(tensor, opts.reduceOp, options)
        else:
            group = self._group_for(tensors)
            submission = collectives.allreduce(group, tensor, opts.reduceOp, options)
        return self._work_or_wait("all_reduce", submission, options)

    def average_encoded(
        self,
        tensor: torch.Tensor,
        codec: str = "none",
        residual: torch.Tensor | None = None,
        priority: int = 0,
    ) -> SlipstreamWork | CudaWork:
        """Replace a contiguous tensor by its average over all ranks, encoded between hosts.

        Args:
            tensor: Contiguous tensor; tensors of other dtypes than float32 are not encoded.
            codec: Codec, the same on all ranks: none (default), fp16, bf16 or int8.
            residual: Float32 tensor with as many elements as `tensor`, which keeps the codec's
                rounding errors for error feedback, on the device that `losses_on` names. None
                (default) turns error feedback off.
            priority: Priority on the network (default 0); operations with a higher priority go
                first.
        """
        encoding = collectives.Encoding(codec, residual, priority)
        reductions = self._reductions_for(tensor)
        if reductions is not None:
            submission = reductions.allreduce_encoded(tensor, encoding, self._default_options())
        else:
            submission = collectives.allreduce_encoded(
                self._group_for((tensor,)), tensor, encoding, self._default_options()
            )
        return self._make_work("all_reduce", submission, self._callbacks)

    def losses_on(self, tensor: torch.Tensor) -> torch.device:
        """Return the device that must keep the codec's rounding errors for a tensor."""
        reductions = self._reductions_for(tensor)
        return torch.device("cpu") if reductions is None else reductions.losses_on(tensor.device)

    def make_tuning(self, knobs: Sequence[Knob] = ()) -> Tuning:
        """Return a tuning of the group's allreduces, and of further knobs (tunable settings)."""
        return Tuning(self._group, knobs)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = _ALLREDUCE_COALESCED) -> Work:
        """Replace each of several tensors by its reduction over all ranks."""
        options = self._options(opts)
        submission = collectives.allreduce_each(
            self._group_for(tensors), tensors, opts.reduceOp, options
        )
        return self._work_or_wait("all_reduce", submission, options)

    def broadcast(self, tensors: Tensors, opts: Any = _BROADCAST) -> Work:
        """Replace a tensor by the root's tensor; the group rank of the root is `opts.rootRank`."""
        options = self._options(opts)
        submission = collectives.broadcast(
            self._group_for(tensors), single(tensors), opts.rootRank, options
        )
        return self._work_or_wait("broadcast", submission, options)

    def reduce(self, tensors: Tensors, opts: Any = _REDUCE) -> Work:
        """Replace the tensor of the root (`opts.rootRank`) by the reduction over all ranks."""
        options = self._options(opts)
        submission = collectives.reduce(
            self._group_for(tensors), single(tensors), opts.reduceOp, opts.rootRank, options
        )
        return self._work_or_wait("reduce", submission, options)

    def allgather(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = _ALL_GATHER
    ) -> Work:
        """Fill `outputs[0][r]` with the tensor of rank r."""
        single(inputs)
        group = self._group_for((*inputs, *(part for parts in outputs for part in parts)))
        options = self._options(opts)
        submission = collectives.all_gather_lists(group, outputs, inputs, options)
        return self._work_or_wait("all_gather", submission, options)

    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = _ALL_GATHER
    ) -> Work:
        """Fill `outputs[r][i]` with the i-th tensor of rank r."""
        by_input = list(zip(*outputs, strict=True))
        group = self._group_for((*inputs, *(part for parts in outputs for part in parts)))
        options = self._options(opts)
        submission = collectives.all_gather_lists(group, by_input, inputs, options)
        return self._work_or_wait("all_gather", submission._replace(result=outputs), options)

    def _all_gather_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = _ALL_GATHER
    ) -> Work:
        """Fill the output with the tensors of all ranks, in the order of the ranks."""
        group = self._group_for((output, source))
        options = self._options(opts)
        submission = collectives.all_gather(group, [output], [source], options)
        return self._work_or_wait("all_gather_into_tensor", submission, options)

    def _all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = _ALL_GATHER
    ) -> Work:
        """Fill each output with the tensors of all ranks, in the order of the ranks."""
        group = self._group_for((*outputs, *inputs))
        options = self._options(opts)
        submission = collectives.all_gather(group, outputs, inputs, options)
        return self._work_or_wait("all_gather_into_tensor", submission, options)

    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = _REDUCE_SCATTER
    ) -> Work:
        """Fill the output with this rank's part, `inputs[0][rank]`, reduced over all ranks."""
        output = single(outputs)
        options = self._options(opts)
        submission = collectives.reduce_scatter_list(
            self._group_for((output, *inputs[0])), output, inputs[0], opts.reduceOp, options
        )
        return self._work_or_wait("reduce_scatter", submission, options)

    def _reduce_scatter_single(
        self, output: torch.Tensor, source: torch.Tensor, opts: Any = _REDUCE_SCATTER
    ) -> Work:
        """Reduce the source over all ranks, and fill the output with this rank's part."""
        options = self._options(opts)
        submission = collectives.reduce_scatter(
            self._group_for((output, source)), [output], [source], opts.reduceOp, options
        )
        return self._work_or_wait("reduce_scatter_tensor", submission, options)

    def _reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = _REDUCE_SCATTER
    ) -> Work:
        """Reduce each input over all ranks, and fill its output with this rank's part."""
        options = self._options(opts)
        submission = collectives.reduce_scatter(
            self._group_for((*outputs, *inputs)), outputs, inputs, opts.reduceOp, options
        )
        return self._work_or_wait("reduce_scatter_tensor", submission, options)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = _GATHER) -> Work:
        """Copy the tensor of rank r to `outputs[0][r]` on the root (`opts.rootRank`)."""
        parts = outputs[0] if outputs else ()
        options = self._options(opts)
        submission = collectives.gather(
            self._group_for((*parts, *inputs)), parts, single(inputs), opts.rootRank, options
        )
        return self._work_or_wait("gather", submission, options)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = _SCATTER) -> Work:
        """Copy `inputs[0][r]` from the root (`opts.rootRank`) to the output of rank r."""
        parts = inputs[0] if inputs else ()
        options = self._options(opts)
        submission = collectives.scatter(
            self._group_for((*outputs, *parts)), single(outputs), parts, opts.rootRank, options
        )
        return self._work_or_wait("scatter", submission, options)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = _ALL_TO_ALL) -> Work:
        """Fill `outputs[r]` with the tensor that rank r has for this rank."""
        group = self._group_for((*outputs, *inputs))
        options = self._options(opts)
        submission = collectives.all_to_all(group, outputs, inputs, options)
        return self._work_or_wait("all_to_all", submission, options)

    def _all_to_all_single(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        output_rows: Sequence[int],
        input_rows: Sequence[int],
        opts: Any = _ALL_TO_ALL,
    ) -> Work:
        """Exchange rows; the lists have each rank's number of rows, and [] means equal shares."""
        options = self._options(opts)
        submission = collectives.all_to_all_rows(
            self._group_for((output, source)), output, source, (output_rows, input_rows), options
        )
        return self._work_or_wait("all_to_all", submission, options)

    def barrier(self, opts: Any = _BARRIER) -> Work:
        """Begin a barrier, which is complete when all ranks have called barrier()."""
        options = self._options(opts)
        handle = self._engine_group().barrier(**options)
        return self._work_or_wait("barrier", Submission((handle,), (), ()), options)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Wait for all ranks at a barrier; after a timeout, rank 0 names the missing ranks."""
        if self._monitor is None:
            self._monitor = MonitoredBarrier(self._membership.sibling("monitor"))
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        self._monitor.meet(seconds, wait_all_ranks)

    # Point-to-point messages.

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> SlipstreamWork | CudaWork:
        """Send a tensor to the rank `peer` of the group."""
        submission = collectives.send(
            self._message_group(tensors), single(tensors), peer, tag, self._default_options()
        )
        return self._message("send", submission)

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> SlipstreamWork | CudaWork:
        """Fill a tensor with a message from the rank `peer` of the group."""
        submission = collectives.receive(
            self._message_group(tensors), single(tensors), peer, tag, self._default_options()
        )
        return self._message("recv", submission)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> SlipstreamWork | CudaWork:
        """Fill a tensor with a message from any rank; the work has the sender's rank."""
        submission = collectives.receive(
            self._message_group(tensors), single(tensors), ANY_RANK, tag, self._default_options()
        )
        return self._message("recvAnySource", submission)

    def _options(self, opts: Any) -> RunOptions:
        """Convert PyTorch's options for the engine; a timeout of -1 ms means the group's limit."""
        seconds = opts.timeout.total_seconds()
        return {
            "timeout": seconds if seconds > 0 else self._seconds,
            "waits_soon": not opts.asyncOp,
        }

    def _options_before_async_op(self, opts: Any) -> RunOptions:
        """Convert options for the engine in PyTorch releases in which some options lack asyncOp."""
        seconds = opts.timeout.total_seconds()
        return {
            "timeout": seconds if seconds > 0 else self._seconds,
            "waits_soon": not getattr(opts, "asyncOp", True),
        }

    def _default_options(self) -> RunOptions:
        return {"timeout": self._seconds, "waits_soon": False}

    def _group_for(self, tensors: Tensors) -> _core.Group:
        """Return the engine's group for a collective on given tensors.

        For tensors on a GPU, the group is a DeviceGroup, which has the same collectives.
        """
        device = device_of(tensors)
        if device is None:
            return self._engine_group()
        if in_callback():
            raise UsageError(
                f"a collective on tensors of {device} was called in a callback of a future of the"
                " CPU. Callbacks run at other times on each rank, so the ranks' streams would wait"
                " for one another for ever; wait for the future, and then call the collective"
            )
        return self._on_gpu(device)

    def _message_group(self, tensors: Tensors) -> _core.Group:
        """Return the engine's group for a message; it is the same inside and outside callbacks."""
        device = device_of(tensors)
        return self._group if device is None else self._on_gpu(device)

    def _on_gpu(self, device: torch.device) -> _core.Group:
        with self._lock:
            if self._cuda is None:
                from slipstream.torch.cuda.groups import CudaGroups

                self._cuda = CudaGroups(self._group)
        return cast("_core.Group", self._cuda.on_current_stream(device))

    def _reductions_for(self, tensor: torch.Tensor) -> GpuReductions | None:
        """Return the reductions for a tensor's GPU, or None for a tensor of the CPU."""
        device = device_of((tensor,))
        if device is None:
            return None
        self._group_for((tensor,))  # refuses callbacks and captures, and makes `_cuda`
        assert self._cuda is not None
        return self._reductions.on(device, self._cuda)

    def _engine_group(self) -> _core.Group:
        """Return the engine's group for a collective; calls in callbacks use a separate group."""
        if not in_callback():
            return self._group
        with self._lock:
            if self._nested is None:
                self._nested = self._membership.sibling("callbacks")
            return self._nested

    def _work_or_wait(self, name: str, submission: Submission, options: RunOptions) -> Work:
        """Return a work for a collective; if the caller would wait for it at once, wait first."""
        if submission.is_on_gpu:
            work = self._make_work(name, submission, self._callbacks)
            if not options["waits_soon"]:
                return work
            work.wait()
            return FINISHED
        if not self._may_block(options):
            return self._make_work(name, submission, self._callbacks)
        try:
            for handle in submission.handles:
                handle.wait()
        except BaseException:
            self._keep(name, submission)
            raise
        copy_out(submission.copies)
        return FINISHED

    def _may_block(self, options: RunOptions) -> bool:
        """Return whether a collective may wait itself: its caller would, and no work is needed."""
        return options["waits_soon"] and not self._in_flight and not profiler.is_enabled()

    def _keep(self, name: str, submission: Submission) -> None:
        """Keep memory alive that the engine may still use after Ctrl-C or an error ended a wait."""
        self._make_work(name, submission, self._callbacks).settle_if_done()

    def _message(self, name: str, submission: Submission) -> SlipstreamWork | CudaWork:
        return self._make_work(name, submission, None)

    def _make_work(
        self, name: str, submission: Submission, callbacks: Callbacks | None
    ) -> SlipstreamWork | CudaWork:
        if submission.is_on_gpu:
            from slipstream.torch.cuda.work import CudaWork

            return CudaWork(submission, self._in_flight, self._membership.settings.cuda_wait)
        work = SlipstreamWork(submission, self._in_flight, self._completions, callbacks)
        if profiler.is_enabled():
            work.trace(f"{BACKEND_NAME}:{name}", submission.inputs)
        return work


def _leave(membership: bootstrap.Membership, callbacks: Callbacks) -> None:
    membership.leave()  # first, so that operations for which callbacks wait fail
    callbacks.close()


def own_group(group: Any) -> SlipstreamProcessGroup:
    """Check that a process group is one of Slipstream, and return it.

    Raises:
        UsageError: The group belongs to another backend.
    """
    if not isinstance(group, SlipstreamProcessGroup):
        raise UsageError(
            f"the process group is a {type(group).__name__}; allowed: a group of Slipstream, from"
            ' init_process_group("slipstream")'
        )
    return group


def create_process_group(options: Any, backend_options: Any) -> SlipstreamProcessGroup:
    """Create a group for PyTorch; the first group blocks until all ranks have come.

    Args:
        options: PyTorch's `_DistributedBackendOptions`.
        backend_options: Value that the user passed as `pg_options`; no option is supported.
    """
    membership = bootstrap.join(
        options.store,
        name=options.group_id,
        rank=options.group_rank,
        size=options.group_size,
        global_ranks=options.global_ranks_in_group,
        seconds=options.timeout.total_seconds(),
    )
    return SlipstreamProcessGroup(membership, options.store, options.timeout)


def _choose_names() -> None:
    """Give methods the names that they have in the installed release of PyTorch."""
    names = [
        (name_here, current if hasattr(ProcessGroup, current) else former)
        for name_here, current, former in (
            ("_all_gather_single", "all_gather_single", "_allgather_base"),
            ("_reduce_scatter_single", "reduce_scatter_single", "_reduce_scatter_base"),
            (
                "_all_gather_single_coalesced",
                "all_gather_single_coalesced",
                "allgather_into_tensor_coalesced",
            ),
            (
                "_reduce_scatter_single_coalesced",
                "reduce_scatter_single_coalesced",
                "reduce_scatter_tensor_coalesced",
            ),
            ("_all_to_all_single", "all_to_all_single", "alltoall_base"),
        )
    ]
    if not all(hasattr(options, "asyncOp") for options in _EVERY_DEFAULT):
        names.append(("_options_before_async_op", "_options"))
    for name_here, name in names:
        setattr(SlipstreamProcessGroup, name, getattr(SlipstreamProcessGroup, name_here))


_choose_names()
extract_without_python()
