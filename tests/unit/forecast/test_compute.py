"""Seconds of single operators: what layouts, formats and frameworks add to a roofline."""

import math
from dataclasses import replace

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.search import machines
from slipstream.forecast.simulate.compute import Rates, Runtime, Work, peak
from slipstream.forecast.simulate.job import TrainingJob
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.work.strategy import Exchange, Strategy
from slipstream.forecast.work.workload import (
    Operator,
    OperatorKind,
    Product,
    TrainingPhase,
    Workload,
)

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
    found, _ = Work.of([operator]).seconds(
        load().device(device), rates, runtime, precision, channels_first=channels_first
    )
    return float(found[0])


def _operator(
    kind: OperatorKind,
    *,
    name: str = "op",
    dtype: str = "float32",
    phase: TrainingPhase = TrainingPhase.FORWARD,
    product: Product | None = PRODUCT,
) -> Operator:
    return Operator(
        name=name, module="", phase=phase, kind=kind, products=(product,) if product else (),
        reads=(), writes=(), bytes_moved=1e9, dtype=dtype,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "copies"), [(TrainingPhase.FORWARD, 2.0), (TrainingPhase.BACKWARD, 8 / 3)]
)
def test_channels_first_are_copied_for_matrix_units(phase: TrainingPhase, copies: float) -> None:
    convolution = _operator(OperatorKind.CONVOLUTION, dtype="float16", phase=phase)
    last = _seconds(convolution, "A100")
    first = _seconds(convolution, "A100", channels_first=True)
    rate = load().device("A100").memory_gb_per_s
    assert first - last == pytest.approx(copies / rate)


@pytest.mark.parametrize(
    ("kind", "device", "precision", "copied"),
    [
        (OperatorKind.CONVOLUTION, "A100", "tf32", True),
        (OperatorKind.CONVOLUTION, "A100", "fp32", False),
        (OperatorKind.CONVOLUTION, "V100", "fp32", False),
        (OperatorKind.PRODUCT, "A100", "tf32", False),
    ],
)
def test_vector_units_and_plain_products_copy_nothing(
    kind: OperatorKind, device: str, precision: str, copied: bool
) -> None:
    operator = _operator(kind)
    first = _seconds(operator, device, precision, channels_first=True)
    assert (first > _seconds(operator, device, precision)) == copied


@pytest.mark.parametrize(
    ("name", "passes"),
    [("gelu", 8), ("gelu_backward", 8), ("native_layer_norm", 2), ("dropout", 3), ("add", 1)],
)
def test_functions_that_are_composed_move_more(name: str, passes: float) -> None:
    operator = _operator(OperatorKind.MEMORY, name=name, product=None)
    alone = _seconds(operator, "V100")
    assert _seconds(operator, "V100", composed=True) == pytest.approx(passes * alone)


def test_half_of_a_peak_is_reached_where_a_sum_is_as_long_as_said() -> None:
    rates = Rates(matrix=1.0, memory=1e9, gap_us=0.0, half_sum=256.0)
    product = Product(1, 1 << 14, 1 << 14, 256)
    operator = _operator(OperatorKind.PRODUCT, dtype="float16", product=product)
    peak = load().device("A100").tflops["float16"] * 1e12
    assert _seconds(operator, "A100", rates=rates) == pytest.approx(2 * product.flops / peak)


def test_matrix_units_read_odd_rows_one_by_one_and_vector_units_as_others() -> None:
    rates = replace(RATES, odd=0.25)
    for dtype, slower in (("bfloat16", 4.0), ("float32", 1.0)):
        even, odd = (
            _seconds(
                _operator(OperatorKind.PRODUCT, dtype=dtype, product=replace(PRODUCT, odd=is_odd)),
                "H100",
                rates=rates,
            )
            for is_odd in (False, True)
        )
        assert odd == pytest.approx(slower * even)


def test_sums_on_vector_units_may_have_a_half_of_their_own() -> None:
    rates = replace(RATES, half_sum=PRODUCT.k, vector_half_sum=0.0)
    plain = {name: _seconds(_operator(OperatorKind.PRODUCT, dtype=name), "H100") for name in DTYPES}
    found = {
        name: _seconds(_operator(OperatorKind.PRODUCT, dtype=name), "H100", rates=rates)
        for name in DTYPES
    }
    assert found["bfloat16"] == pytest.approx(2 * plain["bfloat16"])
    assert found["float32"] == pytest.approx(plain["float32"])


@pytest.mark.parametrize(
    ("device", "dtype", "per_second"),
    [
        ("A100", "float32", 19.49e12),
        ("A100", "float16", 2 * 19.49e12),
        ("RTX3090", "float32", 82 * 192e9),
        ("RTX3090", "bfloat16", 2 * 82 * 192e9),
        ("K80", "float32", 2.35e12),
    ],
)
def test_convolutions_of_one_channel_load_as_fast_as_processors_do(
    device: str, dtype: str, per_second: float
) -> None:
    rates = Rates(vector=1.0, memory=1e9, gap_us=0.0, depthwise=0.5)
    narrow = _operator(OperatorKind.DEPTHWISE, dtype=dtype, product=Product(256, 4096, 1, 9))
    found = _seconds(narrow, device, rates=rates)
    assert found == pytest.approx(2 * 256 * 4096 * 9 / (0.5 * per_second), rel=1e-3)


@pytest.mark.parametrize(
    ("device", "dtype", "reached", "has_units"),
    [
        ("RTX3090", "float16", 71.0, True),
        ("RTX4090", "bfloat16", 165.2, True),
        ("V100", "float16", 125.3 / 2, True),
        ("P100", "float16", 21.22, False),
        ("RTX3090", "float32", 35.6, False),
    ],
)
def test_matrix_units_that_are_hardly_faster_are_fed_as_vector_units_are(
    device: str, dtype: str, reached: float, has_units: bool
) -> None:
    found, on_vector = peak(load().device(device), dtype, Rates(matrix=0.5, vector=1.0))
    assert on_vector != has_units
    assert found == pytest.approx(reached * 1e12)


@pytest.mark.parametrize(
    ("kind", "name", "dtype", "passes"),
    [
        (OperatorKind.MEMORY, "gelu", "float16", 2),
        (OperatorKind.MEMORY, "dropout_backward", "bfloat16", 2),
        (OperatorKind.MEMORY, "gelu", "float32", 1),
        (OperatorKind.MEMORY, "relu", "float16", 1),
        (OperatorKind.PRODUCT, "mm", "float16", 4),
        (OperatorKind.PRODUCT, "mm", "float32", 1),
        (OperatorKind.CONVOLUTION, "convolution", "float16", 1),
    ],
)
def test_what_is_on_no_list_of_16_bits_moves_32(
    kind: OperatorKind, name: str, dtype: str, passes: float
) -> None:
    operator = _operator(kind, name=name, dtype=dtype, product=Product(1, 16, 16, 16))
    device = load().device("V100")
    plain, wide = (
        Work.of([operator]).seconds(device, RATES, Runtime(wide=wide), "fp32")[0][0]
        for wide in (False, True)
    )
    assert wide == pytest.approx(passes * plain)


@pytest.mark.parametrize(
    ("dtype", "batch", "speed_up"), [("bfloat16", 1, 2.0), ("bfloat16", 4, 1.0), ("float32", 1, 1)]
)
def test_linear_layers_multiply_in_8_bits_and_cast(dtype: str, batch: int, speed_up: float) -> None:
    product = Product(batch, 1 << 14, 1 << 14, 1 << 14)
    operator = replace(
        _operator(OperatorKind.PRODUCT, dtype=dtype, product=product), bytes_moved=1.5e9
    )
    device, work = load().device("H100"), Work.of([operator])
    plain, eight = (
        work.seconds(device, RATES, Runtime(), "fp32", fp8=fp8)[0][0] for fp8 in (False, True)
    )
    # Of 1e9 bytes, half are operands; they are read for their maximum, read again, and written in 8
    # bits.
    cast = 2.5e9 / (device.memory_gb_per_s * 1e9) if dtype == "bfloat16" else 0.0
    assert eight == pytest.approx(plain / speed_up + cast, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "factor"),
    [(OperatorKind.DEPTHWISE, 3.0), (OperatorKind.CONVOLUTION, 1.0), (OperatorKind.PRODUCT, 1.0)],
)
def test_a_runtime_has_kernels_of_its_own_for_one_channel(
    kind: OperatorKind, factor: float
) -> None:
    operator = replace(_operator(kind, product=Product(256, 4096, 1, 9)), bytes_moved=0.0)
    usual, own = (
        Work.of([operator]).seconds(load().device("A100"), RATES, Runtime(depthwise=each), "fp32")[
            0
        ]
        for each in (1.0, 3.0)
    )
    assert own == pytest.approx(factor * usual)


@pytest.mark.parametrize("gap_us", [8.0, 0.5])
def test_kernels_of_a_graph_follow_closely(gap_us: float) -> None:
    rates, work = (
        replace(RATES, gap_us=gap_us),
        Work.of([_operator(OperatorKind.MEMORY, product=None)] * 2),
    )
    plain, graph = (
        work.seconds(load().device("H100"), rates, Runtime(graphs=graphs), "fp16")[0]
        for graphs in (False, True)
    )
    assert plain - graph == pytest.approx([max(0.0, gap_us - 0.9) * 1e-6] * 2, abs=1e-12)


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 2.0), ("bfloat16", 3.0)])
def test_batch_norms_take_as_many_times_as_a_runtime_says(dtype: str, factor: float) -> None:
    runtime = Runtime(batch_norm=2.0, half_batch_norm=3.0)
    norm = _operator(OperatorKind.NORM, name="native_batch_norm", dtype=dtype, product=None)
    other = _operator(OperatorKind.NORM, name="native_layer_norm", dtype=dtype, product=None)
    seconds, _ = Work.of([norm, other]).seconds(load().device("H100"), RATES, runtime, "fp32")
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
        job = TrainingJob(workload=workload, strategy=Strategy(), cluster=cluster, runtime=runtime)
        return Simulation.of(workload).run(job).seconds

    alone, little, much = (seconds(micros) for micros in (0.0, 1.0, 1e6))
    assert little == pytest.approx(alone + (2e-6 if kind == "cpu" else 0.0), abs=1e-9)
    assert much == pytest.approx(2.0 + (alone if kind == "cpu" else 0.0), rel=1e-6)


def test_a_graph_is_issued_at_once() -> None:
    torch = pytest.importorskip("torch")
    from slipstream.forecast.trace import trace

    workload = trace(
        lambda: torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(20))),
        lambda: [torch.empty(2, 8)], name="small", samples=2,
    )  # fmt: skip
    cluster = machines.own(load(), "H100", 1, None, None).cluster

    def host(*, graphs: bool) -> float:
        runtime = Runtime(forward_us=100.0, backward_us=100.0, step_ms=0.0, graphs=graphs)
        job = TrainingJob(workload=workload, strategy=Strategy(), cluster=cluster, runtime=runtime)
        return Simulation.of(workload).run(job).host

    assert host(graphs=False) > 1e-3
    assert host(graphs=True) == 0


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        (OperatorKind.MEMORY, 1.0),
        (OperatorKind.NORM, 1.0),
        (OperatorKind.PRODUCT, 0.5),
        (OperatorKind.ATTENTION, 0.0),
    ],
)
def test_selective_checkpoints_compute_again_what_is_cheap(
    kind: OperatorKind, again: float
) -> None:
    operators = tuple(_operator(kind, product=None, phase=phase) for phase in TrainingPhase)
    workload = Workload(
        name="two", samples=1, operators=operators, values=(), parameters=(), buffer_bytes=0
    )
    cluster = machines.own(load(), "H100", 1, None, None).cluster
    simulation = Simulation.of(workload)

    def compute(strategy: Strategy) -> float:
        return simulation.run(
            TrainingJob(workload=workload, strategy=strategy, cluster=cluster)
        ).compute

    none, some, every = (
        compute(each) for each in (Strategy(), Strategy(selective=True), Strategy(checkpoint=True))
    )
    assert some - none == pytest.approx(again * (every - none))
    assert every > none


@pytest.mark.parametrize("stages", [2, 4])
def test_stages_whose_parameters_are_shared_out_run_beside_each_other(stages: int) -> None:
    torch = pytest.importorskip("torch")
    from slipstream.forecast.trace import trace

    workload = trace(
        lambda: torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))),
        lambda: [torch.empty(4096, 4096)], name="layers", samples=4096,
    )  # fmt: skip
    cluster = machines.own(load(), "H100", 8, None, None).cluster

    def seconds(zero: int) -> float:
        strategy = Strategy(data=2, pipeline=stages, micro_batches=2 * stages, zero=zero)
        job = TrainingJob(workload=workload, strategy=strategy, cluster=cluster)
        return Simulation.of(workload).staged(stages).run(job).seconds

    assert seconds(3) == pytest.approx(seconds(1), rel=0.1)
