"""Seconds of single operators: what layouts, formats and frameworks add to a roofline."""

import math
from dataclasses import replace

import pytest

from slipstream.forecast import machines
from slipstream.forecast.compute import Rates, Runtime, Work
from slipstream.forecast.hardware import load
from slipstream.forecast.job import Job
from slipstream.forecast.step import Simulation
from slipstream.forecast.strategy import Exchange, Strategy
from slipstream.forecast.workload import Kind, Operator, Phase, Product

RATES = Rates(memory=1.0, gap_us=0.0, half_sum=0.0, matrix_windows=1.0)
PRODUCT = Product(1, 1 << 20, 1024, 1024)
DTYPES = "float32", "bfloat16"


def _seconds(
    operator: Operator,
    device: str,
    precision: str = "fp32",
    *,
    rates: Rates = RATES,
    composed: bool = False,
    channels_first: bool = False,
) -> float:
    runtime = Runtime(composed=composed)
    found, _ = Work([operator]).seconds(
        load().device(device), rates, runtime, precision, channels_first=channels_first
    )
    return float(found[0])


def _operator(
    kind: Kind,
    *,
    name: str = "op",
    dtype: str = "float32",
    phase: Phase = Phase.FORWARD,
    product: Product | None = PRODUCT,
) -> Operator:
    return Operator(
        name=name, module="", phase=phase, kind=kind, products=(product,) if product else (),
        reads=(), writes=(), bytes_moved=1e9, dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize(("phase", "copies"), [(Phase.FORWARD, 2.0), (Phase.BACKWARD, 8 / 3)])
def test_channels_first_are_copied_for_matrix_units(phase: Phase, copies: float) -> None:
    convolution = _operator(Kind.CONVOLUTION, dtype="float16", phase=phase)
    last = _seconds(convolution, "A100")
    first = _seconds(convolution, "A100", channels_first=True)
    rate = load().device("A100").memory_gb_per_s
    assert first - last == pytest.approx(copies / rate)


@pytest.mark.parametrize(
    ("kind", "device", "precision", "copied"),
    [
        (Kind.CONVOLUTION, "A100", "tf32", True),
        (Kind.CONVOLUTION, "A100", "fp32", False),
        (Kind.CONVOLUTION, "V100", "fp32", False),
        (Kind.PRODUCT, "A100", "tf32", False),
    ],
)
def test_vector_units_and_plain_products_copy_nothing(
    kind: Kind, device: str, precision: str, copied: bool
) -> None:
    operator = _operator(kind)
    first = _seconds(operator, device, precision, channels_first=True)
    assert (first > _seconds(operator, device, precision)) == copied


@pytest.mark.parametrize(
    ("name", "passes"),
    [("gelu", 8), ("gelu_backward", 8), ("native_layer_norm", 2), ("dropout", 3), ("add", 1)],
)
def test_functions_that_are_composed_move_more(name: str, passes: float) -> None:
    operator = _operator(Kind.MEMORY, name=name, product=None)
    alone = _seconds(operator, "V100")
    assert _seconds(operator, "V100", composed=True) == pytest.approx(passes * alone)


def test_half_of_a_peak_is_reached_where_a_sum_is_as_long_as_said() -> None:
    rates = Rates(matrix=1.0, memory=1e9, gap_us=0.0, half_sum=256.0)
    product = Product(1, 1 << 14, 1 << 14, 256)
    operator = _operator(Kind.PRODUCT, dtype="float16", product=product)
    peak = load().device("A100").tflops["float16"] * 1e12
    assert _seconds(operator, "A100", rates=rates) == pytest.approx(2 * product.flops / peak)


def test_matrix_units_read_odd_rows_one_by_one_and_vector_units_as_others() -> None:
    rates = replace(RATES, odd=0.25)
    for dtype, slower in (("bfloat16", 4.0), ("float32", 1.0)):
        even, odd = (
            _seconds(
                _operator(Kind.PRODUCT, dtype=dtype, product=replace(PRODUCT, odd=is_odd)),
                "H100",
                rates=rates,
            )
            for is_odd in (False, True)
        )
        assert odd == pytest.approx(slower * even)


def test_sums_on_vector_units_may_have_a_half_of_their_own() -> None:
    rates = replace(RATES, half_sum=PRODUCT.k, vector_half_sum=0.0)
    plain = {name: _seconds(_operator(Kind.PRODUCT, dtype=name), "H100") for name in DTYPES}
    found = {
        name: _seconds(_operator(Kind.PRODUCT, dtype=name), "H100", rates=rates) for name in DTYPES
    }
    assert found["bfloat16"] == pytest.approx(2 * plain["bfloat16"])
    assert found["float32"] == pytest.approx(plain["float32"])


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 2.0), ("bfloat16", 3.0)])
def test_batch_norms_take_as_many_times_as_a_runtime_says(dtype: str, factor: float) -> None:
    runtime = Runtime(batch_norm=2.0, half_batch_norm=3.0)
    norm = _operator(Kind.NORM, name="native_batch_norm", dtype=dtype, product=None)
    other = _operator(Kind.NORM, name="native_layer_norm", dtype=dtype, product=None)
    seconds, _ = Work([norm, other]).seconds(load().device("H100"), RATES, runtime, "fp32")
    assert seconds[0] == pytest.approx(factor * seconds[1])


def test_the_last_of_some_ranks_is_nearer_to_the_mean_the_more_micro_batches_it_runs() -> None:
    runtime = Runtime(spread=0.1)
    assert runtime.slowest(1) == runtime.slowest(1, apart=8) == 1
    assert runtime.slowest(64) == pytest.approx(1 + 0.1 * math.sqrt(2 * math.log(64)))
    assert runtime.slowest(64, apart=16) - 1 == pytest.approx((runtime.slowest(64) - 1) / 4)


@pytest.mark.parametrize(
    ("strategy", "apart"),
    [
        (Strategy(data=4, micro_batches=8), 8),
        (Strategy(data=4, micro_batches=8, zero=1), 8),
        (Strategy(data=4, micro_batches=8, zero=2), 1),
        (Strategy(data=4, micro_batches=8, zero=3), 1),
        (Strategy(data=4, micro_batches=8, tensor=2), 1),
        (Strategy(data=4, micro_batches=8, pipeline=2), 1),
        (Strategy(data=4, micro_batches=2, exchange=Exchange.LOCAL, period=16), 32),
    ],
)
def test_ranks_wait_where_they_exchange(strategy: Strategy, apart: int) -> None:
    assert strategy.apart == apart


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_a_host_changes_parameters_beside_its_device_or_is_it(kind: str) -> None:
    torch = pytest.importorskip("torch")
    from slipstream.forecast.trace import trace

    workload = trace(
        lambda: torch.nn.Linear(4096, 4096), lambda: [torch.empty(4096, 4096)],
        name="layer", samples=4096,
    )  # fmt: skip
    cluster = machines.own(load(), "H100", 1, None, None).cluster
    cluster = replace(cluster, device=cluster.device.model_copy(update={"kind": kind}))

    def seconds(update_us: float) -> float:
        runtime = Runtime(forward_us=0.0, backward_us=0.0, update_us=update_us)
        job = Job(workload=workload, strategy=Strategy(), cluster=cluster, runtime=runtime)
        return Simulation(workload).run(job).seconds

    alone, little, much = (seconds(micros) for micros in (0.0, 1.0, 1e6))
    assert little == pytest.approx(alone + (2e-6 if kind == "cpu" else 0.0), abs=1e-9)
    assert much == pytest.approx(2.0 + (alone if kind == "cpu" else 0.0), rel=1e-6)
