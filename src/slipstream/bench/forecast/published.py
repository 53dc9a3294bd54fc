"""Published speed-ups on hundreds of GPUs, compared with forecasts for Slipstream.

    for scaling in published():
        print(scaling.claim.name, scaling.claim.speedup, scaling.speedup(scaling.within))

`slipstream.forecast` simulates each step on the published number of devices, with a hierarchical
allreduce; no step is executed. A speed-up is the samples per second of all ranks divided by those
of a single rank, with the same batch size per rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from slipstream.forecast.hardware import Hardware, load
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.compute import Runtime
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.network import Cluster
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Strategy
from slipstream.forecast.work.workload import Workload

MODEL, RUNTIME = "resnet50", "pytorch"

# Share of the possible payload rate that the engine's allreduces reach between four lab hosts at 1
# Gbit/s. Of the links' rate, they reach 0.950 to 0.956; 0.956 is possible (docs/performance.md).
REACHED = 0.99

# Sizes of buckets that the engine tries during training (`slipstream.torch.step_overlap`).
BUCKET_SIZES = tuple(1 << exponent for exponent in range(20, 27))
DDP_BUCKET_BYTES = 25 << 20

# Share of a step's time above which the network counts as the bottleneck. Chosen by hand, not
# measured.
_FULL = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedClaim:
    """A published speed-up and the setting in which it was reached.

    Args:
        name: Name of the publisher.
        speedup: Published speed-up over one device.
        hosts: Number of connected hosts.
        per_host: Number of devices in each host.
        between: Name of the link between hosts.
        inside: Name of the link between devices of a host.
        codec: Codec that encodes the gradients sent between hosts.
        batch: Number of samples per device in a step.
        published: Claim as readable text.
        assumed: Readable text about the assumptions that replace facts missing in the source.
        device: Name of the device (default "P100").
    """

    name: str
    speedup: float
    hosts: int
    per_host: int
    between: str
    inside: str
    codec: str
    batch: int
    published: str
    assumed: str
    device: str = "P100"

    @property
    def ranks(self) -> int:
        """Number of devices of all hosts."""
        return self.hosts * self.per_host

    def cluster(self, hardware: Hardware) -> Cluster:
        """Return the hosts in the form that a forecast needs.

        Args:
            hardware: Hardware tables with the device and the links.
        """
        return Cluster(
            device=hardware.device(self.device),
            per_host=self.per_host,
            inside=hardware.link(self.inside),
            between=hardware.link(self.between),
        )


_AIACC = PublishedClaim(
    name="AIACC",
    speedup=462,
    hosts=64,
    per_host=8,
    between="ethernet-25g",
    inside="pcie3",
    codec="fp16",
    batch=64,
    published="462 times on 512 P100",
    assumed="64 hosts of 8 on PCIe, 25 Gbit/s by TCP, batch 64; fp16 is AIACC's default",
)

CLAIMS: Sequence[PublishedClaim] = (
    _AIACC,
    replace(_AIACC, codec="none", assumed="the same, with gradients in fp32 on the wire"),
    PublishedClaim(
        name="PowerAI DDL",
        speedup=0.95 * 256,
        hosts=64,
        per_host=4,
        between="infiniband-edr",
        inside="nvlink1",
        codec="none",
        batch=32,
        published="95 % on 256 P100, 64 S822LC (arXiv 1708.02188)",
        assumed="one port of 100 Gbit/s InfiniBand a host, batch 32",
    ),
    PublishedClaim(
        name="PAISoar",
        speedup=101,
        hosts=16,
        per_host=8,
        between="roce-25g",
        inside="pcie3",
        codec="none",
        batch=64,
        published="101 times on 128 GPUs over 25 GbE RoCE, a network called GreenNet",
        assumed="GreenNet is not public: ResNet-50 stands for it; 16 hosts of 8 P100, batch 64",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """A published speed-up, and the steps that were simulated in its setting.

    Args:
        claim: Published claim.
        alone: Simulated step on one device.
        ddp: Simulated step on all ranks, with the default bucket size of PyTorch's DDP.
        within: Simulated step on all ranks, with the fastest bucket size.
        even: Step like `within`, but with ranks that are all equally fast.
        fitted: Step like `within`, but with the link rates that published software reaches.
    """

    claim: PublishedClaim
    alone: SimulatedStep
    ddp: SimulatedStep
    within: SimulatedStep
    even: SimulatedStep
    fitted: SimulatedStep

    def speedup(self, step: SimulatedStep) -> float:
        """Return the samples per second of all ranks divided by those of a single rank.

        Args:
            step: Simulated step of all ranks.
        """
        return self.claim.ranks * self.alone.seconds / step.seconds

    def efficiency(self, step: SimulatedStep) -> float:
        """Return the speed-up divided by the number of ranks.

        Args:
            step: Simulated step of all ranks.
        """
        return self.speedup(step) / self.claim.ranks

    def waited(self, step: SimulatedStep) -> float:
        """Return the share of a step in which ranks wait for the slowest rank.

        Args:
            step: Simulated step of all ranks.
        """
        return (step.compute - self.alone.compute) / step.seconds

    def exposed(self, step: SimulatedStep) -> float:
        """Return the share of a step in which communication does not overlap with compute.

        Args:
            step: Simulated step of all ranks.
        """
        return 1 - self.efficiency(step) - self.waited(step)

    def needed_spread(self) -> float:
        """Return the variation of the ranks' step times that would explain the published speed-up.

        The variation is the standard deviation relative to the mean.
        """
        published_step = self.alone.seconds * self.claim.ranks / self.claim.speedup
        per_spread = self.even.compute * (Runtime(spread=1.0).slowest(self.claim.ranks) - 1)
        return max(0.0, (published_step - self.even.seconds) / per_spread)

    def busy(self, step: SimulatedStep) -> float:
        """Return the share of a step in which the network is busy.

        Args:
            step: Simulated step of all ranks.
        """
        spans = (span for span in step.spans if span.queue.startswith("network"))
        return sum(span.end - span.start for span in spans) / step.seconds

    def limit(self) -> str:
        """Return the causes that make a step longer than on one device, as readable text.

        One cause is the wait for the slowest rank. The other cause is either a network that is
        always busy, or a last bucket whose communication does not overlap with compute. The cause
        that takes more time is named first.
        """
        step = self.within
        waited, exposed = self.waited(step), self.exposed(step)
        network = "full network" if self.busy(step) >= _FULL else "last bucket"
        parts = sorted(((waited, "slowest rank"), (exposed, network)), reverse=True)
        return ", ".join(f"{cause} {share:.1%}" for share, cause in parts if share >= 0.0005)


def published(claims: Sequence[PublishedClaim] = CLAIMS) -> Iterator[Scaling]:
    """Yield the forecast for each published setting; all forecasts together take some seconds.

    Args:
        claims: Published claims.

    Raises:
        UnsupportedError: PyTorch, which traces the model, is not installed.
    """
    from slipstream.forecast.trace.sources import source

    traced = {
        batch: source(MODEL).trace(batch) for batch in sorted({claim.batch for claim in claims})
    }
    fitted, hardware = parameters.load(), load()
    for claim in claims:
        yield scaling(claim, traced[claim.batch], fitted, hardware)


def scaling(
    claim: PublishedClaim, workload: Workload, fitted: Parameters, hardware: Hardware | None = None
) -> Scaling:
    """Return the forecast for a published setting.

    Args:
        claim: Published claim with its setting.
        workload: Workload of one device with the claim's batch size.
        fitted: Calibrated rates of kernels and links, and calibrated overheads of frameworks.
        hardware: Hardware tables with the claim's device and links (default None: the tables of
            Slipstream).
    """
    # In the lab, communication overlapped with compute as much as possible, so the overlap is 1.
    runtime = replace(fitted.runtime(RUNTIME), overlap=1.0)
    job = TrainingJob(
        workload=workload,
        strategy=Strategy(
            data=claim.ranks,
            micro_batch=claim.batch,
            codec=claim.codec,
            bucket_bytes=DDP_BUCKET_BYTES,
        ),
        cluster=claim.cluster(hardware or load()),
        runtime=runtime,
        rates=fitted.rates,
        wire=replace(fitted.wire, between=REACHED),
    )
    simulation = Simulation.of(workload)
    alone = replace(job, strategy=replace(job.strategy, data=1))
    return Scaling(
        claim=claim,
        alone=simulation.run(alone),
        ddp=simulation.run(job),
        within=_tuned(simulation, job),
        even=_tuned(simulation, replace(job, runtime=replace(runtime, spread=0.0))),
        fitted=_tuned(simulation, replace(job, wire=fitted.wire)),
    )


def _tuned(simulation: Simulation, job: TrainingJob) -> SimulatedStep:
    """Return the step with the fastest bucket size, which Slipstream also finds during training."""
    strategies = [replace(job.strategy, bucket_bytes=size) for size in BUCKET_SIZES]
    steps = [simulation.run(replace(job, strategy=strategy)) for strategy in strategies]
    return min(steps, key=lambda step: step.seconds)
