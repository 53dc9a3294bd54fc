"""Checks of this host for `slipstream doctor`, made without importing a framework."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.cli.findings.advice import advice
from slipstream.cli.findings.finding import Finding as Finding
from slipstream.cli.findings.gpus import Gpus, gpu_findings
from slipstream.cli.findings.host import engine_findings, host_findings
from slipstream.cli.findings.network import network_findings, rdma_devices
from slipstream.cli.findings.software import framework_findings, launcher_findings
from slipstream.processor import num_gpus


def find_everything(environ: Mapping[str, str], peer: str | None) -> list[Finding]:
    """Return the findings about this host; takes one second, or two seconds with GPUs.

    Args:
        environ: Environment of this process.
        peer: Host to which the route is looked up; None for the default route.
    """
    gpus = Gpus.found()
    return [
        *host_findings(),
        *network_findings(environ, peer),
        *gpu_findings(gpus, environ),
        *engine_findings(environ),
        *framework_findings(has_gpus=bool(gpus.gpus) or num_gpus() > 0),
        *launcher_findings(),
        advice(gpus, rdma_devices()),
    ]
