"""A kind and a setup of a training, for tests of plans and of observations."""

from slipstream.forecast.observed.kind import RunKind, RunSetup

KIND = RunKind(
    num_parameters=124_000_000, forward_flops=10**12, precision="bf16", optimizer="adam",
    runtime="pytorch2", device="A100-40GB", per_host=8, alone="", input_rate=0.0,
    tables="0123456789ab",
)  # fmt: skip
SETUP = RunSetup(hosts=2, batch=256, network="400 Gbit/s")
