"""Advice about the backend that suits this host."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cli.findings.finding import Finding
from slipstream.cli.findings.gpus import Gpus

OURS = 'backend "slipstream"'
PLUGIN = 'backend "nccl" with `slipstream run --nccl-plugin`'


def advice(found: Gpus, rdma: Sequence[str]) -> Finding:
    """Return the advice about the backend of torch.distributed, with its reason.

    Args:
        found: GPUs of this host.
        rdma: Names of this host's RDMA devices.
    """
    return Finding(topic="Advice", name="backend", state="ok", text=_text(found, rdma))


def _text(found: Gpus, rdma: Sequence[str]) -> str:
    if not found.gpus:
        return f"{OURS}, for tensors of the CPU"
    if rdma:
        return f'backend "nccl", because its RDMA over {", ".join(rdma)} is faster than TCP'
    if found.trouble or any(gpu.trouble for gpu in found.gpus):
        return f"{PLUGIN}, because {OURS} cannot use every GPU here"
    if len(found.gpus) > 1:
        return f"{OURS}: NCCL among the {len(found.gpus)} GPUs of this host, Slipstream to others"
    return f"{OURS} for CUDA tensors and those of the CPU; programs that need NCCL: --nccl-plugin"
