"""Horovod's RayExecutor: each rank is an actor of Ray and runs the functions that it receives."""

# Ray declares hardly any types for its functions.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportAttributeAccessIssue=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import UnsupportedError, UsageError
from slipstream.horovod.ray.worker import Worker, WorkerAddress
from slipstream.settings import Launch, job_key_environment
from slipstream.settings.variables import variables

try:
    import ray
    from ray.util import placement_group, remove_placement_group
    from ray.util.placement_group import get_current_placement_group
    from ray.util.queue import Empty, Queue
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise UnsupportedError("Ray is not installed; pip install 'slipstream[ray]'") from error

_POLL_SECONDS = 0.1  # time between two checks for values of ray_logger.log(); chosen by hand


class PlacementTimeoutError(UnsupportedError, TimeoutError):
    """Error: the cluster has no room for the ranks. The class is a TimeoutError, as in Horovod."""


@dataclass(kw_only=True)
class RaySettings:
    """Options of an executor.

    Args:
        timeout_s: Longest time in seconds to wait until all ranks are connected (default 30).
        ssh_identity_file, ssh_str: Settings of Horovod that are accepted and ignored.
        placement_group_timeout_s: Longest time in seconds to wait for room in the cluster (default
            100).
        nics: Names of the network interfaces that may be used (default: any).
    """

    timeout_s: int = 30
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    placement_group_timeout_s: int = 100
    nics: set[str] | None = None


class RayExecutor:
    """Ranks of a job on the Ray cluster to which this process is connected by ray.init().

    Args:
        settings: Settings that create_settings() returned.
        num_workers: Number of ranks, which run on any nodes that have room. Pass either num_workers
            or num_hosts.
        num_hosts: Number of nodes, each of which runs the same number of ranks.
        num_workers_per_host: Number of ranks on each node, if num_hosts is passed (default 1).
        cpus_per_worker: Number of CPUs that Ray reserves for each rank (default 1).
        use_gpu: Whether Ray reserves GPUs too (default False).
        gpus_per_worker: Number of GPUs that Ray reserves for each rank (default 1).
        use_current_placement_group: Whether the ranks run in the placement group of this process,
            if this process has one (default True).
        min_workers, max_workers, reset_limit, cooldown_range, elastic_timeout, override_discovery:
            Options of elastic jobs, which are not supported yet.

    Raises:
        UsageError: Neither or both of num_workers and num_hosts were passed, or a number is below
            1.
        UnsupportedError: The options ask for an elastic job.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: int = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: int = 100,
        nics: set[str] | None = None,
    ) -> RaySettings:
        """Return settings of an executor; `RaySettings` describes the arguments."""
        return RaySettings(
            timeout_s=timeout_s,
            ssh_identity_file=ssh_identity_file,
            ssh_str=ssh_str,
            placement_group_timeout_s=placement_group_timeout_s,
            nics=nics,
        )

    def __init__(
        self,
        settings: RaySettings,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        if min_workers is not None or max_workers is not None:
            raise UnsupportedError(
                "elastic jobs are not supported yet; pass num_workers instead of min_workers and"
                " max_workers"
            )
        if (num_workers is None) == (num_hosts is None):
            raise UsageError(
                f"num_workers is {num_workers}, num_hosts is {num_hosts}; allowed: one of the two"
            )
        for name, value in (("num_workers", num_workers), ("num_hosts", num_hosts)):
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; allowed: 1 and more")
        if num_workers_per_host < 1:
            raise UsageError(f"num_workers_per_host is {num_workers_per_host}; allowed: 1 and more")
        self._settings = settings
        self._hosts = num_hosts
        self._per_bundle = 1 if num_hosts is None else num_workers_per_host
        self._bundles = num_workers if num_hosts is None else num_hosts
        gpus = (gpus_per_worker or 1) if use_gpu else 0
        self._resources = {"CPU": cpus_per_worker, **({"GPU": gpus} if gpus else {})}
        self._uses_current = use_current_placement_group
        self._own_group: Any = None
        self._workers: list[Any] = []

    @property
    def num_workers(self) -> int:
        """Number of ranks."""
        return (self._bundles or 0) * self._per_bundle

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Start the ranks, and block until all ranks run.

        Args:
            executable_cls: Class of the object that execute() passes to functions, Horovod's
                "executable" (default: none). Each rank creates its own object.
            executable_args, executable_kwargs: Arguments for the class.
            extra_env_vars: Environment variables for all ranks (default: none).

        Raises:
            UsageError: The executor was started before.
            PlacementTimeoutError: The cluster has no room for the ranks.
        """
        if self._workers:
            raise UsageError("the executor was started before; call shutdown() first")
        try:
            self._place_workers(extra_env_vars or {})
            if executable_cls is not None:
                args, kwargs = executable_args or (), executable_kwargs or {}
                pending = [
                    w.make_executable.remote(executable_cls, args, kwargs) for w in self._workers
                ]
                ray.get(pending)
        except BaseException:
            self.shutdown()
            raise

    def _place_workers(self, extra_env_vars: Mapping[str, str]) -> None:
        """Create the workers, number them by node, and set their environment variables."""
        workers = self._workers = self._make_workers()
        addresses: list[WorkerAddress] = ray.get([w.address.remote() for w in workers])
        nodes = list(dict.fromkeys(address.node for address in addresses))
        order = sorted(range(len(workers)), key=lambda i: nodes.index(addresses[i].node))
        self._workers = [workers[i] for i in order]
        environments = self._environments([addresses[i] for i in order])
        pairs = zip(self._workers, environments, strict=True)
        ray.get([w.set_environment.remote({**e, **extra_env_vars}) for w, e in pairs])

    def execute(
        self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[[Any], Any]] | None = None
    ) -> list[Any]:
        """Call a function on each rank, and block until it has returned on all ranks.

        Args:
            fn: Function to call. Its argument is the rank's executable, which start() created; None
                if start() got no class.
            callbacks: Functions that are called with each value that rank 0 passes to
                ray_logger.log() while `fn` runs (default: none).

        Returns:
            The results of all ranks, in the order of the ranks.
        """
        self._check_started()
        if not callbacks:
            return ray.get([worker.execute.remote(fn) for worker in self._workers])
        queue = Queue(actor_options={"num_cpus": 0})
        try:
            ray.get(self._workers[0].set_queue.remote(queue))
            pending = [worker.execute.remote(fn) for worker in self._workers]
            return self._watch(pending, queue, callbacks)
        finally:
            self._workers[0].set_queue.remote(None)
            queue.shutdown()

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[[Any], Any]] | None = None,
    ) -> list[Any]:
        """Call `fn(*args, **kwargs)` on each rank; block, and return the results of all ranks.

        execute() describes `callbacks`.
        """
        return self.execute(_Call(fn, tuple(args or ()), dict(kwargs or {})), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Begin to call a function on each rank, and return Ray's references to the results."""
        self._check_started()
        call = _Call(fn, tuple(args or ()), dict(kwargs or {}))
        return [worker.execute.remote(call) for worker in self._workers]

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Call a function on rank 0, with the executable of rank 0, and return the result."""
        self._check_started()
        return ray.get(self._workers[0].execute.remote(fn))

    def shutdown(self) -> None:
        """End the ranks and release the resources that Ray reserved; a second call does nothing."""
        for worker in self._workers:
            ray.kill(worker)
        self._workers = []
        if self._own_group is not None:
            remove_placement_group(self._own_group)
            self._own_group = None

    def _make_workers(self) -> list[Any]:
        current = get_current_placement_group() if self._uses_current else None
        is_own = current is None
        if is_own:
            self._own_group = self._make_group()
        group: Any = current or self._own_group
        kind = ray.remote(Worker)
        return [
            kind.options(
                num_cpus=self._resources["CPU"],
                num_gpus=self._resources.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group,
                    placement_group_bundle_index=bundle if self._hosts and is_own else -1,
                ),
            ).remote()
            for bundle in range(self._bundles or 0)
            for _ in range(self._per_bundle)
        ]

    def _make_group(self) -> Any:
        bundle = {name: float(n * self._per_bundle) for name, n in self._resources.items()}
        strategy = "PACK" if self._hosts is None else "STRICT_SPREAD"
        group = placement_group([bundle] * (self._bundles or 0), strategy=strategy)
        seconds = self._settings.placement_group_timeout_s
        ready, _ = ray.wait([group.ready()], timeout=seconds)
        if not ready:
            remove_placement_group(group)
            raise PlacementTimeoutError(
                f"Placement group creation timed out: for {seconds} s the cluster had no room for"
                f" {self._bundles} bundles of {bundle}. Free: {ray.available_resources()}; all:"
                f" {ray.cluster_resources()}"
            )
        return group

    def _environments(self, addresses: Sequence[WorkerAddress]) -> list[dict[str, str]]:
        """Return the environment variables of each rank."""
        key = secrets.token_hex(32).encode()
        settings = variables()
        common = {
            **job_key_environment(key),
            settings["connect_timeout_seconds"].name: str(self._settings.timeout_s),
        }
        if self._settings.nics:
            common[settings["iface"].name] = "=" + ",".join(sorted(self._settings.nics))
        first = addresses[0]
        environments: list[dict[str, str]] = []
        for rank, address in enumerate(addresses):
            local_ranks = [r for r, other in enumerate(addresses) if other.node == address.node]
            launch = Launch(
                rank=rank,
                local_rank=local_ranks.index(rank),
                world_size=len(addresses),
                local_world_size=len(local_ranks),
                master_addr=first.host,
                master_port=first.port - 1,  # the engine uses the port after the master port
                source="environment",
            )
            environments.append({**common, **launch.as_environment()})
        return environments

    def _watch(
        self, pending: list[Any], queue: Any, callbacks: Sequence[Callable[[Any], Any]]
    ) -> list[Any]:
        """Return all results; while waiting, call callbacks with the values from a queue."""
        running = list(pending)
        while running:
            _, running = ray.wait(running, num_returns=len(running), timeout=_POLL_SECONDS)
            _pass_on(queue, callbacks)
        results = ray.get(pending)
        _pass_on(queue, callbacks)
        return results

    def _check_started(self) -> None:
        if not self._workers:
            raise UsageError("the executor is not running; call start() first")


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with fixed arguments; when called, it ignores the executable that is passed."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, executable: Any) -> Any:
        return self.function(*self.args, **self.kwargs)


def _pass_on(queue: Any, callbacks: Sequence[Callable[[Any], Any]]) -> None:
    """Call callbacks with all values that are in a queue at this time."""
    while True:
        try:
            info = queue.get_nowait()
        except Empty:
            return
        for callback in callbacks:
            callback(info)
