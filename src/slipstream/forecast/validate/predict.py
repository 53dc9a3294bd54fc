"""Forecasts of published measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from slipstream.forecast.hardware import Hardware, Link, load
from slipstream.forecast.search.machines import ethernet
from slipstream.forecast.simulate.hybrid import layers
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import Cluster
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.trace.precision import traced
from slipstream.forecast.validate.case import PublishedCase
from slipstream.forecast.work.embeddings import Sparse, sparse
from slipstream.forecast.work.resize import COUNTS, Resizable, resizable
from slipstream.forecast.work.strategy import Agreement, Optimizer, Strategy
from slipstream.forecast.work.workload import Workload

# Network of a host in Gbit/s if a row does not state one. For these GPUs it is the InfiniBand of
# NVIDIA's own hosts (data sheets): DGX-1 has four ports of 100, DGX A100 eight of 200, and DGX H100
# eight of 400. The mean error on the 28 published rows without a network is 6.0 %; with half, a
# quarter and twice these rates it is 4.4, 8.1 and 6.0 %. For other GPUs, which one row has, it is
# one EDR port.
_UNSTATED_GBIT = {"V100": 400.0, "A100": 1600.0, "H100": 3200.0}
_USUAL_GBIT = 100.0
# Pairs of micro-batches to trace, without the pair that begins with 1: a batch of one may run other
# operators than larger batches.
_COUNTS = COUNTS[1:]
# Beginnings of the names of architectures whose embedding tables have sparse gradients.
_RECOMMENDERS = ("dlrm", "wide-deep", "ncf")
# Runtimes whose modules are entirely in 16 bits, without casts.
_WHOLE = ("megatron", "fsdp", "fsdp-compile")
_WITHOUT_DROPOUT = ("fsdp", "fsdp-compile")


class CasePredictor:
    """Predictor of published measurements; the attribute `traced` keeps traced models for reuse.

    Args:
        parameters: Parameters of all known frameworks (runtimes), which state whether attention is
            fused; each method gets the parameters of its forecast.
        hardware: Devices and links (default: the hardware tables that Slipstream contains).
    """

    def __init__(self, parameters: Parameters, hardware: Hardware | None = None) -> None:
        self._runtimes = parameters
        self._hardware = hardware or load()
        self.traced: dict[object, Resizable] = {}
        self._simulations: dict[object, Simulation] = {}
        self._sparse: dict[int, Sparse] = {}
        self._clusters: dict[object, Cluster] = {}

    def forecast(self, case: PublishedCase, parameters: Parameters) -> float:
        """Forecast a measurement: seconds per step, or the speed-up over one device.

        Args:
            case: Published measurement.
            parameters: Calibrated parameters of devices, links and frameworks.
        """
        seconds = self.step(case, parameters).seconds
        if case.measures != "speedup":
            return seconds
        return self.alone(case, parameters).seconds / seconds * case.devices

    def alone(self, case: PublishedCase, parameters: Parameters) -> SimulatedStep:
        """Simulate a step on one device alone, with the micro-batch size of the measurement."""
        strategy = replace(case.strategy, data=1, tensor=1, pipeline=1, zero=0)
        return self.step(replace(case, strategy=strategy, devices=1), parameters)

    def step(self, case: PublishedCase, parameters: Parameters, pace: float = 1.0) -> SimulatedStep:
        """Simulate a step of the measured training.

        Args:
            case: Published measurement.
            parameters: Calibrated parameters of devices, links and frameworks.
            pace: Factor on the times of device and host, as in `TrainingJob` (default 1).
        """
        simulation = self.simulation(case)
        runtime = replace(parameters.runtime(case.runtime), graphs=case.raced)
        return simulation.run(
            TrainingJob(
                workload=simulation.workload,
                strategy=self._strategy(case),
                cluster=self.cluster(case),
                precision=case.precision,
                optimizer=optimizer_of(case),
                runtime=runtime,
                rates=parameters.rates,
                wire=parameters.wire,
                gradient_bytes=case.gradient_bytes,
                channels_first=case.channels_first,
                fp8=case.fp8,
                pace=pace,
                input_rate=case.input_rate,
            )
        )

    def workload(self, case: PublishedCase) -> Workload:
        """Return the workload of a measurement's micro-batch; the first call traces the model."""
        precision = case.precision if case.precision in ("fp16", "bf16") else "fp32"
        is_whole = case.runtime in _WHOLE
        sizes = dict(case.sizes)
        key = (
            case.architecture, tuple(sorted(sizes.items())), tuple(sorted(case.inputs.items())),
            precision, is_whole,
        )  # fmt: skip
        if key not in self.traced:
            trace: Callable[[int], Workload] = partial(
                traced, case.architecture, sizes=sizes, inputs=case.inputs, precision=precision,
                whole=is_whole,
            )  # fmt: skip
            self.traced[key] = resizable(trace, _COUNTS)
        return self.traced[key].at(case.strategy.micro_batch)

    def simulation(self, case: PublishedCase) -> Simulation:
        """Return the simulation of a measurement, built once for each model and strategy."""
        strategy = case.strategy
        runtime = self._runtimes.runtime(case.runtime)
        workload = self._workload(case)
        key = (
            id(workload),
            strategy.tensor,
            strategy.pipeline,
            strategy.virtual,
            strategy.sequence,
            runtime.flash,
        )
        if key not in self._simulations:
            self._simulations[key] = Simulation.of(
                workload,
                tensor=strategy.tensor,
                sequence=strategy.sequence,
                flash=runtime.flash,
                dropout=case.runtime not in _WITHOUT_DROPOUT,
                softmax_of=4 if case.runtime == "megatron" else 1,
            ).staged(strategy.pipeline, strategy.virtual)
        return self._simulations[key]

    def _workload(self, case: PublishedCase) -> Workload:
        """Return a micro-batch's workload; recommenders have sparse embedding gradients."""
        workload = self.workload(case)
        if not case.architecture.startswith(_RECOMMENDERS):
            return workload
        if id(workload) not in self._sparse:
            self._sparse[id(workload)] = sparse(workload)
        return self._sparse[id(workload)].workload

    def _strategy(self, case: PublishedCase) -> Strategy:
        """Return the strategy of a measurement, including the layers without an all-reduce."""
        if case.sharded == "none" or case.strategy.data == 1:
            return case.strategy
        workload = self.workload(case)
        if case.sharded == "factors":
            linear = [layer.name for layer in layers(workload) if layer.inputs]
            return _apart(case.strategy, linear, Agreement.FACTORS)
        if case.sharded == "head":
            names = {max(workload.parameters, key=lambda parameter: parameter.elements).name}
        else:
            self._workload(case)
            names = self._sparse[id(workload)].names
        return _apart(case.strategy, names, Agreement.SHARD)

    def cluster(self, case: PublishedCase) -> Cluster:
        """Return the cluster on which a measurement was made."""
        key = case.device, case.per_host, case.network_gbit, case.raced
        if key not in self._clusters:
            device = self._hardware.device(case.device)
            self._clusters[key] = Cluster(
                device=device,
                per_host=case.per_host,
                inside=self._hardware.link(device.device_link),
                between=_network(case),
                adds=case.raced,
            )
        return self._clusters[key]


def _apart(strategy: Strategy, names: Iterable[str], choice: Agreement) -> Strategy:
    return replace(strategy, layers=tuple((name, choice) for name in sorted(names)))


def optimizer_of(case: PublishedCase) -> Optimizer:
    """Return the usual optimizer of the architecture of a measurement."""
    words = case.architecture
    plain = words.startswith(("resnet", "vgg", "inception", "alexnet", "googlenet", "face"))
    return Optimizer.MOMENTUM if plain else Optimizer.ADAM


def _network(case: PublishedCase) -> Link:
    if case.network_gbit is not None:
        return ethernet(case.network_gbit)
    kind = case.device.upper().split("-")[0]
    return ethernet(_UNSTATED_GBIT.get(kind, _USUAL_GBIT))
