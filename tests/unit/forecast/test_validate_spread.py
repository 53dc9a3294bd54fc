"""Batches and strategies of rows, with what they leave out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slipstream.forecast.hardware import load
from slipstream.forecast.validate.machines import machine
from slipstream.forecast.validate.models import model
from slipstream.forecast.validate.row import TableRow, UnreadableError, whole
from slipstream.forecast.validate.software import software
from slipstream.forecast.validate.spread import gradient_bytes, stated_batch, strategy
from slipstream.forecast.work.strategy import Exchange, Strategy

RowOf = Callable[..., TableRow]
LLAMA = {"source": "torchtitan", "framework": "torchtitan", "gpu": "H100", "batch_per_gpu": "6"}


def _strategy(row: TableRow) -> tuple[Strategy, tuple[str, ...]]:
    ran_on = machine(row, load())
    ran_by = software(row, ran_on.device, to_target=False)
    return strategy(row, ran_on, model(row, ran_by.runtime), ran_by, stated_batch(row, ran_by))


@pytest.mark.parametrize("text", ["", "n/a", "NA", "-", "?", "not stated", "Unknown", "(64)"])
def test_a_batch_that_is_not_said_is_none(row_of: RowOf, text: str):
    row = row_of(batch_per_gpu=text)
    assert stated_batch(row, software(row, load().device("V100"), to_target=False)) is None


@pytest.mark.parametrize(
    ("text", "batch"),
    [("1", 1), ("2k", 2048), ("1,024 , 512", 512), ("12,345", 12345), ("64 (of 128)", 64)],
)
def test_batches_are_read_as_people_write_them(row_of: RowOf, text: str, batch: int):
    row = row_of(batch_per_gpu=text)
    assert stated_batch(row, software(row, load().device("V100"), to_target=False)) == batch


@pytest.mark.parametrize(
    ("words", "degrees"),
    [
        ("TP 2", (16, 2, 1)),
        ("TP=2 PP=2", (8, 2, 2)),
        ("tp8 pp4 dp1", (1, 8, 4)),
        ("2D", (4, 8, 1)),
        ("async TP", (4, 8, 1)),
        ("AsyncTP", (4, 8, 1)),
        ("FSDP CP 1", (32, 1, 1)),
    ],
)
def test_degrees_fill_the_devices(row_of: RowOf, words: str, degrees: tuple[int, int, int]):
    found, _ = _strategy(row_of(model=f"Llama3-8B seq8192 {words}", **LLAMA))
    assert (found.data, found.tensor, found.pipeline) == degrees
    # torchtitan divides the operators between products if it divides the products.
    assert found.sequence == (found.tensor > 1)


def test_degrees_of_names_alone_are_those_of_torchtitan_only(row_of: RowOf):
    columns = LLAMA | {"source": "Dell", "framework": "PyTorch FSDP"}
    found, _ = _strategy(row_of(model="Llama3-8B seq8192 2D", **columns))
    assert (found.data, found.tensor, found.sequence) == (32, 1, False)
    three, _ = _strategy(row_of(model="Llama3-8B seq8192 3D", num_gpus="64", **LLAMA))
    assert (three.data, three.tensor, three.pipeline) == (1, 8, 8)


def test_ranks_that_share_a_sequence_are_not_read(row_of: RowOf):
    with pytest.raises(UnreadableError, match="data, tensor and pipeline ranks can be read"):
        _strategy(row_of(model="Llama3-8B CP=2", **LLAMA))


@pytest.mark.parametrize(("batch", "micro", "count"), [("6", 3, 2), ("7", 7, 1), ("4", 1, 4)])
def test_a_pipeline_runs_as_many_micro_batches_as_divide_its_batch(
    row_of: RowOf, batch: str, micro: int, count: int
):
    columns = LLAMA | {"batch_per_gpu": batch}
    found, assumed = _strategy(row_of(model="Llama3-8B seq8192 PP=4", **columns))
    assert (found.micro_batch, found.micro_batches, found.virtual) == (micro, count, 1)
    assert "micro_batches" in assumed


def test_a_global_batch_is_so_many_micro_batches_of_all_replicas(row_of: RowOf):
    found, assumed = _strategy(row_of(model="MPT-7b seq2048 gbs=4096"))
    assert (found.micro_batch, found.micro_batches, found.global_batch) == (64, 2, 4096)
    assert assumed == ()
    with pytest.raises(UnreadableError, match="no multiple of 32 replicas with 64 samples"):
        _strategy(row_of(model="MPT-7b seq2048 gbs=4095"))


@pytest.mark.parametrize(
    ("words", "checkpoint", "assumed"),
    [
        ("8B ckpt=True", True, False),
        ("8B ckpt=1", True, False),
        ("8B ckpt=yes", True, False),
        ("70B ckpt=False", False, False),
        ("8B full recompute", True, False),
        ("70B no recompute", False, False),
        ("70B no AC", False, False),
        ("8B", False, True),
        ("70B", True, True),
        ("405B", True, True),
    ],
)
def test_what_is_computed_again(row_of: RowOf, words: str, checkpoint: bool, assumed: bool):
    found, guessed = _strategy(row_of(model=f"Llama3.1-{words} seq8192", **LLAMA))
    assert found.checkpoint == checkpoint
    assert ("checkpoint" in guessed) == assumed


@pytest.mark.parametrize(
    ("framework", "packed"),
    [
        ("TensorFlow 2.x", True),
        ("TensorFlow 2.x w/XLA", True),
        ("AIACC-Training 1.3 + Tensorflow 2.1", False),
        ("NGC TF2 Horovod", False),
        ("TensorFlow 1.15", False),
        ("PaddlePaddle", False),
    ],
)
@pytest.mark.parametrize("precision", ["AMP", "FP32"])
def test_tensorflow_2_sums_all_gradients_at_once_in_32_bits(
    row_of: RowOf, framework: str, packed: bool, precision: str
):
    row = row_of(model=f"BERT-base seq128 {precision}", framework=framework, gpu="V100")
    found, _ = _strategy(row)
    assert (found.bucket_bytes > 1 << 40) == packed
    ran_by = software(row, load().device("V100"), to_target=False)
    assert gradient_bytes(row, ran_by) == (2 if precision == "AMP" and not packed else 4)


@pytest.mark.parametrize(
    ("words", "framework", "selective"),
    [
        ("8B selective AC", "torchtitan", True),
        ("8B", "torchtitan + torch.compile", True),
        ("8B no AC", "torchtitan", False),
        ("8B full AC", "torchtitan", False),
        ("8B selective AC", "PyTorch FSDP", False),
    ],
)
def test_torchtitan_computes_again_what_is_cheap(
    row_of: RowOf, words: str, framework: str, selective: bool
):
    columns = {**LLAMA, "source": "somebody", "framework": framework}
    found, _ = _strategy(row_of(model=f"Llama3.1-{words} seq8192", **columns))
    assert found.selective == selective


@pytest.mark.parametrize(
    ("framework", "zero"),
    [
        ("PyTorch FSDP", 3),
        ("PyTorch FSDP HYBRID_SHARD", 3),
        ("PyTorch FSDP torch.compile", 3),
        ("DeepSpeed ZeRO-0", 0),
        ("DeepSpeed ZeRO 2", 2),
        ("DeepSpeed zero_3", 3),
        ("PyTorch", 0),
    ],
)
def test_what_replicas_share_out(row_of: RowOf, framework: str, zero: int):
    assert _strategy(row_of(model="MPT-7b seq2048", framework=framework))[0].zero == zero


@pytest.mark.parametrize(
    ("framework", "exchange"),
    [
        ("TF PS", Exchange.PARAMETER_SERVER),
        ("TF ps-gpu", Exchange.PARAMETER_SERVER),
        ("MXNet parameter server", Exchange.PARAMETER_SERVER),
        ("BytePS RDMA", Exchange.PARAMETER_SERVER),
        ("TF stock distributed", Exchange.PARAMETER_SERVER),
        ("TF (PS-cpu; ResNet-50,VGG16 NCCL)", Exchange.ALL_REDUCE),
        ("TF (PS-cpu; VGG16 NCCL)", Exchange.PARAMETER_SERVER),
        ("Horovod TF, 8 gpus", Exchange.ALL_REDUCE),
    ],
)
def test_gradients_go_to_servers_where_the_software_has_them(
    row_of: RowOf, framework: str, exchange: Exchange
):
    assert _strategy(row_of(model="ResNet-50", framework=framework))[0].exchange is exchange


@pytest.mark.parametrize(("text", "number"), [("1", 1), (" 1,024 ", 1024), ("007", 7)])
def test_whole_numbers_may_have_commas(text: str, number: int):
    assert whole(text, "x") == number


@pytest.mark.parametrize("text", ["", "0", "000", "-1", "1.5", "1e3", "²"])
def test_what_is_no_whole_number_says_its_column(text: str):
    with pytest.raises(UnreadableError, match=r"num_gpus is .* at least 1 can be read"):
        whole(text, "num_gpus")
