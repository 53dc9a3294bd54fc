"""Horovod's RayExecutor: ranks as actors of Ray, which functions are sent to."""

# Ray's functions have hardly any types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportAttributeAccessIssue=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import UnsupportedError, UsageError
from slipstream.horovod.ray.worker import Place, Worker
from slipstream.settings import Launch, job_key_environment
from slipstream.settings.variables import variables

try:
    import ray
    from ray.util import placement_group, remove_placement_group
    from ray.util.placement_group import get_current_placement_group
    from ray.util.queue import Empty, Queue
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
except ImportError as error:
    raise UnsupportedError("there is no Ray; pip install 'slipstream[ray]'") from error

_LOOK_SECONDS = 0.1


class PlacementTimeoutError(UnsupportedError, TimeoutError):
    """The cluster has no room for the ranks. A TimeoutError, as Horovod's."""


@dataclass(kw_only=True)
class RaySettings:
    """Options of an executor.

    Args:
        timeout_s: Longest wait for all ranks to meet, in seconds.
        placement_group_timeout_s: Longest wait for room in the cluster, in seconds.
        ssh_identity_file, ssh_str: Settings of Horovod that are ignored here.
        nics: Names of the network interfaces that may be used; None for any.
    """

    timeout_s: int = 30
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    placement_group_timeout_s: int = 100
    nics: set[str] | None = None


class RayExecutor:
    """Ranks on a Ray cluster, which ray.init() has connected this process to.

    Args:
        settings: Settings from create_settings().
        num_workers: Number of ranks, which run wherever there is room. Pass this, or num_hosts.
        num_hosts: Number of nodes.
        num_workers_per_host: Number of ranks on each node.
        cpus_per_worker: Number of CPUs that Ray sets aside for each rank.
        use_gpu: Whether GPUs are set aside too.
        gpus_per_worker: Number of GPUs per rank (default 1).
        use_current_placement_group: Whether the bundles of the placement group of this process, if
            it is in one, are used.
        min_workers, max_workers, reset_limit, cooldown_range, elastic_timeout, override_discovery:
            Options of elastic jobs, which are not supported yet.

    Raises:
        UsageError: neither or both of num_workers and num_hosts are given, or not positive.
        UnsupportedError: the job is to be elastic.
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
        """Return options, as RaySettings explains them."""
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
            raise UnsupportedError("min_workers and max_workers: elastic jobs are not there yet")
        if (num_workers is None) == (num_hosts is None):
            raise UsageError(
                f"num_workers is {num_workers}, num_hosts is {num_hosts}; allowed: one of them"
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
        """Ranks."""
        return (self._bundles or 0) * self._per_bundle

    def start(
        self,
        executable_cls: Callable[..., Any] | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, str] | None = None,
    ) -> None:
        """Start the ranks and block until they are there.

        Args:
            executable_cls: Class of which each rank makes an object, for the functions of
                execute().
            executable_args, executable_kwargs: Arguments of that class.
            extra_env_vars: Environment variables for all ranks.

        Raises:
            UsageError: it was started before.
            PlacementTimeoutError: the cluster has no room for the ranks.
        """
        if self._workers:
            raise UsageError("the executor was started before; call shutdown() first")
        try:
            self._place_workers(extra_env_vars or {})
            if executable_cls is not None:
                args, kwargs = executable_args or (), executable_kwargs or {}
                made = [
                    w.make_executable.remote(executable_cls, args, kwargs) for w in self._workers
                ]
                ray.get(made)
        except BaseException:
            self.shutdown()
            raise

    def _place_workers(self, extra_env_vars: Mapping[str, str]) -> None:
        workers = self._workers = self._make_workers()
        places: list[Place] = ray.get([each.place.remote("", "") for each in workers])
        nodes = list(dict.fromkeys(each.node for each in places))
        order = sorted(range(len(workers)), key=lambda i: nodes.index(places[i].node))
        self._workers = [workers[i] for i in order]
        environments = self._environments([places[i] for i in order])
        each_own = zip(self._workers, environments, strict=True)
        ray.get([w.set_environment.remote({**e, **extra_env_vars}) for w, e in each_own])

    def execute(
        self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[[Any], Any]] | None = None
    ) -> list[Any]:
        """Call a function with the executable of each rank; blocks.

        Args:
            fn: takes the executable, None without one.
            callbacks: each is called with what rank 0 passes to ray_logger.log() meanwhile.

        Returns:
            What it returns on each rank, in their order.
        """
        self._check_started()
        if not callbacks:
            return ray.get([each.execute.remote(fn) for each in self._workers])
        queue = Queue(actor_options={"num_cpus": 0})
        try:
            ray.get(self._workers[0].set_queue.remote(queue))
            pending = [each.execute.remote(fn) for each in self._workers]
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
        """Call a function with arguments on each rank; else as execute()."""
        return self.execute(_Call(fn, tuple(args or ()), dict(kwargs or {})), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Begin to call a function on each rank; returns Ray's references to the results."""
        self._check_started()
        call = _Call(fn, tuple(args or ()), dict(kwargs or {}))
        return [each.execute.remote(call) for each in self._workers]

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Call a function with the executable of rank 0; returns what it returns."""
        self._check_started()
        return ray.get(self._workers[0].execute.remote(fn))

    def shutdown(self) -> None:
        """End the ranks and give back what Ray had set aside; idempotent."""
        for each in self._workers:
            ray.kill(each)
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
                f"Placement group creation timed out: after {seconds} s the cluster has no room for"
                f" {self._bundles} bundles of {bundle}; it has {ray.available_resources()} free of"
                f" {ray.cluster_resources()}"
            )
        return group

    def _environments(self, places: Sequence[Place]) -> list[dict[str, str]]:
        """Return the environment variables of each rank."""
        key = secrets.token_hex(32).encode()
        known = variables()
        common = {
            **job_key_environment(key),
            known["connect_timeout_seconds"].name: str(self._settings.timeout_s),
        }
        if self._settings.nics:
            common[known["iface"].name] = "=" + ",".join(sorted(self._settings.nics))
        first = places[0]
        environments: list[dict[str, str]] = []
        for rank, place in enumerate(places):
            local = [r for r, each in enumerate(places) if each.node == place.node]
            launch = Launch(
                rank=rank,
                local_rank=local.index(rank),
                world_size=len(places),
                local_world_size=len(local),
                master_addr=first.address,
                master_port=first.port - 1,  # the engine's is the next one
                source="environment",
            )
            environments.append({**common, **launch.as_environment()})
        return environments

    def _watch(
        self, pending: list[Any], queue: Any, callbacks: Sequence[Callable[[Any], Any]]
    ) -> list[Any]:
        left = list(pending)
        while left:
            _, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_SECONDS)
            _pass_on(queue, callbacks)
        results = ray.get(pending)
        _pass_on(queue, callbacks)
        return results

    def _check_started(self) -> None:
        if not self._workers:
            raise UsageError("the executor is not running; call start() first")


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with its arguments, whatever the executable."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self, executable: Any) -> Any:
        return self.function(*self.args, **self.kwargs)


def _pass_on(queue: Any, callbacks: Sequence[Callable[[Any], Any]]) -> None:
    while True:
        try:
            info = queue.get_nowait()
        except Empty:
            return
        for callback in callbacks:
            callback(info)
