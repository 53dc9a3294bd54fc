"""What a user writes becomes a model that can be traced, or an error that says what to write."""

import sys
from pathlib import Path

import pytest

from slipstream.errors import UsageError
from slipstream.forecast.trace.sources import source
from slipstream.forecast.work.workload import TrainingPhase

FILE = """
import dataclasses

import torch
from torch import nn

from beside import WIDTH


@dataclasses.dataclass
class Size:
    width: int = WIDTH


def make():
    return nn.Sequential(nn.Linear(Size().width, 4), nn.ReLU(), nn.Linear(4, 2))


def image():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


def words():
    return nn.Embedding(50, 8)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 3), nn.Linear(7, 3)

    def forward(self, left, right):
        return {"sum": self.left(left) + self.right(right), "count": 3}


def two(batch):
    return torch.zeros(batch, 5), torch.zeros(batch, 7)


def own():
    return Two()


own.inputs = two


def alone(batch):
    return torch.zeros(batch, WIDTH)


def wrong(batch):
    return {"left": torch.zeros(batch, 5)}


def nothing():
    return None


def needs(width):
    return nn.Linear(width, width)


module = nn.Linear(3, 3)
number = 3
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Return the path of a file of models, which imports a module from its folder."""
    (tmp_path / "beside.py").write_text("WIDTH = 6\n")
    path = tmp_path / "models_of_a_test.py"
    path.write_text(FILE)
    return str(path)


def test_a_function_of_a_file_is_called_with_a_tensor_of_the_shape(models: str) -> None:
    found = source(f"{models}:make", shape=(6,))
    assert (found.name, found.unit) == ("make", "example")
    workload = found.trace(5)
    assert (workload.name, workload.samples) == ("make", 5)
    assert workload.num_parameters == 6 * 4 + 4 + 4 * 2 + 2
    assert workload.flops(TrainingPhase.FORWARD) == 2 * 5 * (6 * 4 + 4 * 2)


def test_importing_a_file_leaves_no_path_behind(models: str) -> None:
    before = list(sys.path)
    source(f"{models}:make", shape=(6,))
    assert sys.path == before


def test_a_function_of_a_package_is_found_in_this_folder(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(models).parent)
    monkeypatch.delitem(sys.modules, "models_of_a_test", raising=False)
    assert source("models_of_a_test:make", shape=(6,)).trace(1).num_parameters == 38
    assert source("models_of_a_test:Two,two").trace(1).num_parameters == 42


@pytest.mark.parametrize("text", ["own", "own,two", "Two,two"])
def test_functions_make_what_a_module_is_called_with(models: str, text: str) -> None:
    workload = source(f"{models}:{text}").trace(3)
    assert workload.flops(TrainingPhase.FORWARD) == 2 * 3 * 3 * (5 + 7)


def test_a_function_may_give_one_tensor(models: str) -> None:
    assert source(f"{models}:make,alone").trace(3).flops(TrainingPhase.FORWARD) == 2 * 3 * 32


def test_images_and_tokens_are_units(models: str) -> None:
    assert source(f"{models}:image", shape=(3, 8, 8)).unit == "image"
    words = source(f"{models}:words", tokens=12)
    assert words.unit == "sequence"
    assert words.trace(2).num_parameters == 400
    bytes_ = source(f"{models}:words", shape=(12,), dtype="int32")
    assert bytes_.trace(2).num_parameters == 400


def test_precision_casts_products_or_all_of_a_module(models: str) -> None:
    found = source(f"{models}:image", shape=(3, 8, 8))
    for precision, dtype in (("fp16", "float16"), ("bf16", "bfloat16"), ("fp32", "float32")):
        cast = found.trace(2, precision=precision)
        assert {op.dtype for op in cast.operators if op.products} == {dtype}
        assert {p.num_bytes // p.elements for p in cast.parameters} == {4}
        whole = found.trace(2, precision=precision, whole=True)
        assert {op.dtype for op in whole.operators if op.products} == {dtype}
        assert {p.num_bytes // p.elements for p in whole.parameters} == {
            4 if precision == "fp32" else 2
        }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{file}:missing", "has no 'missing'; allowed: package.module:function or"),
        ("{file}:make,missing", "has no 'missing'"),
        ("{file}:number", "number is a int, not a function"),
        ("{file}:module", "is a module; name a function that makes it"),
        ("{file}:make", "the shape of a sample is unknown; .*make,inputs"),
        ("{file}", "names no function; write .*:function"),
        ("nowhere.py:make", "there is no file nowhere.py"),
        ("nowhere.at.all:make", "nowhere.at.all cannot be imported: ModuleNotFoundError"),
        (":make", "cannot be imported"),
        ("nothing-like-it", "no architecture is named 'nothing-like-it'; .* package.module:make"),
        ("nowhere.onnx", "nowhere.onnx cannot be read: No such file"),
        ("{folder}", "the folder .* has no config.json"),
    ],
)
def test_what_is_not_there_is_said(models: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        source(text.format(file=models, folder=Path(models).parent))


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("nothing", (6,), "nothing returned a NoneType; it must make a module"),
        ("needs", (6,), "needs fails on a batch of 2.*TypeError: needs\\(\\) missing"),
        ("make", (7,), "make fails on a batch of 2.*RuntimeError"),
        ("Two,wrong", None, "the inputs of .*Two,wrong are a dict"),
    ],
)
def test_what_fails_when_traced_is_said(
    models: str, text: str, shape: tuple[int, ...] | None, message: str
) -> None:
    found = source(f"{models}:{text}", shape=shape)
    with pytest.raises(UsageError, match=message):
        found.trace(2)


def test_a_file_that_fails_on_import_says_why(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise ValueError('not today')\n")
    with pytest.raises(UsageError, match=r"broken\.py cannot be imported: ValueError: not today"):
        source(f"{path}:make", shape=(3,))


def test_numbers_that_do_not_go_with_a_model_are_refused(models: str) -> None:
    with pytest.raises(UsageError, match="defines its own inputs"):
        source(f"{models}:own", shape=(3,))
    with pytest.raises(UsageError, match="no dtype 'float23'"):
        source(f"{models}:make", shape=(3,), dtype="float23")
    with pytest.raises(UsageError, match="shape is \\(3, 0\\)"):
        source("resnet18", shape=(3, 0))
    with pytest.raises(UsageError, match="tokens is 0"):
        source("gpt2", tokens=0)
    with pytest.raises(UsageError, match="samples is 0"):
        source("resnet18").trace(0)


def test_named_architectures_take_shapes_and_tokens() -> None:
    assert source("ResNet-18").unit == "image"
    usual, wide = source("resnet18").trace(2), source("resnet18", shape=(3, 448, 224)).trace(2)
    ratio = wide.flops(TrainingPhase.FORWARD) / usual.flops(TrainingPhase.FORWARD)
    assert ratio == pytest.approx(2, rel=1e-3)
    short = source("mpt-125m", tokens=256).trace(1)
    assert (
        short.num_parameters == source("mpt-125m", tokens=128).trace(1).num_parameters + 128 * 768
    )
    assert source("bert-base", tokens=64).unit == "sequence"


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("resnet18", {"tokens": 64}, "resnet18 reads no sequences"),
        (
            "bert-base",
            {"tokens": 1024},
            "tokens is 1024, but bert-base-seq128 has only 512 positions",
        ),
        ("gpt2", {"shape": (3, 8, 8)}, "gpt2 defines its own inputs"),
        ("resnet18", {"shape": (8, 8)}, "resnet18 defines its own inputs"),
    ],
)
def test_named_architectures_refuse_what_is_not_theirs(
    name: str, more: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        source(name, **more)


def test_a_shape_that_an_architecture_cannot_read_is_said() -> None:
    with pytest.raises(UsageError, match="vit-tiny-16 fails on a batch of 1"):
        source("vit-tiny-16", shape=(3, 64, 64)).trace(1)


def test_a_script_that_reads_arguments_as_it_is_imported_is_told_how_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import argparse\nargparse.ArgumentParser('theirs').parse_args(['--no-such'])\n"
    (tmp_path / "script.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"script\.py exited during its import \(2\): put"):
        source("script.py:make", shape=(3,))


DEPENDS = """
import torch
from torch import nn


class Depends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        LINE
        return y.sum()


class Wrong(Depends):
    def forward(self, x):
        return self.layer(x) @ torch.zeros(3, 3)
"""


@pytest.mark.parametrize(
    "line",
    [
        "y = y * 2 if y.sum() > 0 else y",
        "y = sum(y for _ in range(int(y.abs().max())))",
        "y = y[y > 0]",
        "y = y[:, : y.argmax().tolist()]",
    ],
)
def test_what_depends_on_numbers_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "models_that_depend.py"
    path.write_text(DEPENDS.replace("LINE", line))
    with pytest.raises(UsageError) as refused:
        source(f"{path}:Depends", shape=(4,)).trace(2)
    message = str(refused.value)
    assert f"{path}:13, `{line}`" in message
    assert "depends on the numbers in a tensor" in message
    assert "torch.where" in message


def test_any_other_failure_of_a_model_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "models_that_fail.py"
    path.write_text(DEPENDS.replace("LINE", "pass"))
    with pytest.raises(UsageError, match=r"Wrong fails on a batch of 2, .*py:19, `return self"):
        source(f"{path}:Wrong", shape=(4,)).trace(2)


def test_samples_have_tokens_where_they_are_sequences(models: str) -> None:
    assert source("gpt2", tokens=100).tokens == 100
    assert source("llama3-8b").tokens == 8192
    assert source(f"{models}:words", tokens=12).tokens == 12
    assert source("resnet18").tokens is None
