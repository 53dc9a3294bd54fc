"""The Fashion-MNIST example runs end to end, draws on a terminal, and goes on where it stopped."""

import fcntl
import hashlib
import importlib.util
import json
import os
import pty
import resource
import select
import struct
import termios
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_fashion_mnist"
REDUCED = ("--epochs", "3", "--limit", "2000")

spec = importlib.util.spec_from_file_location("fashion_mnist_data", EXAMPLE / "data.py")
data = importlib.util.module_from_spec(spec)
spec.loader.exec_module(data)


@pytest.fixture(scope="module")
def finished(slipstream_run, tmp_path_factory) -> tuple[Path, str]:
    """Return the output folder and the output of a complete, short training on a terminal."""
    output = tmp_path_factory.mktemp("demo")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    arguments = (*REDUCED, "--output", str(output))
    workers = slipstream_run(2, EXAMPLE / "train.py", *arguments, terminal=slave)
    shown = b""
    while workers.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.1)[0]:
            shown += os.read(master, 65536)
    os.close(master)
    os.close(slave)
    assert workers.returncode == 0, shown.decode()
    return output, shown.decode()


@pytest.mark.slow("from training to answers")
@pytest.mark.multiprocess
def test_the_result_is_printed_and_written(finished) -> None:
    output, shown = finished
    result = json.loads((output / "result.json").read_text())
    assert result["workers"] == 2
    assert result["samples_per_second"] > 0
    assert result["test_accuracy"] > 0.3  # ten classes: chance is 0.1
    assert f"test accuracy {result['test_accuracy']:.4f} after 3 epochs" in shown


@pytest.mark.multiprocess
def test_the_checkpoint_holds_model_optimizer_and_epoch(finished) -> None:
    output, _ = finished
    checkpoint = torch.load(output / "checkpoint.pt", weights_only=True)
    assert checkpoint["epoch"] == 3
    assert checkpoint["model"]["0.weight"].shape == (16, 1, 5, 5)
    assert checkpoint["optimizer"]["state"]


@pytest.mark.multiprocess
def test_the_timeline_is_a_chrome_trace_of_all_workers(finished) -> None:
    output, _ = finished
    events = json.loads((output / "timeline.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}


@pytest.mark.multiprocess
def test_the_panel_is_drawn_on_a_terminal(finished) -> None:
    _, shown = finished
    for reading in ("Fashion-MNIST on 2 workers", "samples/s", "communication hidden", "ETA"):
        assert reading in shown


@pytest.mark.slow("from training to answers")
@pytest.mark.multiprocess
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(
    finished, slipstream_run, tmp_path
) -> None:
    arguments = (*REDUCED, "--output", str(tmp_path))
    with slipstream_run(2, EXAMPLE / "train.py", *arguments) as interrupted:
        for line in interrupted.stdout:
            if "epoch 1 done" in line:
                interrupted.terminate()
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["epoch"] < 3

    resumed = slipstream_run(2, EXAMPLE / "train.py", *arguments, "--resume")
    text, _ = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, text
    assert "epoch 1 done" not in text
    expected, result = (
        json.loads((folder / "result.json").read_text()) for folder in (finished[0], tmp_path)
    )
    assert result["loss"] == expected["loss"]
    assert result["test_accuracy"] == expected["test_accuracy"]


@pytest.mark.multiprocess
@pytest.mark.slow("from training to answers", represents=False)
@pytest.mark.timeout(900)
def test_the_whole_demo_reaches_its_accuracy_in_five_minutes_of_two_cores(
    slipstream_run, tmp_path
) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = slipstream_run(2, EXAMPLE / "train.py", "--output", str(tmp_path))
    text, _ = workers.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert workers.returncode == 0, text
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["test_accuracy"] >= 0.91
    # What it costs, and not how long it takes while other programs run.
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 60 < used < 2 * 300


def test_workers_see_each_image_once_in_an_epoch() -> None:
    images, labels = torch.zeros(100, 1, 28, 28, dtype=torch.uint8), torch.arange(100)
    seen: list[int] = []
    for rank in range(3):
        for batch, chosen in data.batches(
            images, labels, batch_size=8, rank=rank, world_size=3, seed=1
        ):
            assert batch.shape == (8, 1, 28, 28)
            seen += chosen.tolist()
    assert len(seen) == len(set(seen)) == 96


def test_augmented_images_are_shifted_and_flipped_whole() -> None:
    images = torch.zeros(64, 1, 28, 28, dtype=torch.uint8)
    images[:, 0, 10, 5] = 255
    augmented = data.augment(images, torch.Generator().manual_seed(0), padding=2)
    image, _, row, column = augmented.nonzero(as_tuple=True)
    assert image.tolist() == list(range(64))
    assert set(row.tolist()) == set(range(8, 13))
    assert set(column.tolist()) == {*range(3, 8), *range(20, 25)}


@pytest.fixture
def mirror(tmp_path, monkeypatch) -> Path:
    """Return a folder as the mirror, for a machine that has no data set."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    (folder / "labels.gz").write_bytes(b"content")
    monkeypatch.setattr(data, "DEBIAN_FOLDER", tmp_path / "absent")
    monkeypatch.setattr(data, "CACHE_FOLDER", tmp_path / "cache")
    monkeypatch.setattr(data, "MIRRORS", (folder.as_uri(),))
    return folder


def test_a_download_is_kept_in_the_cache(mirror, monkeypatch) -> None:
    monkeypatch.setattr(data, "SHA256", {"labels.gz": hashlib.sha256(b"content").hexdigest()})
    data.fetch()
    (mirror / "labels.gz").unlink()
    data.fetch()
    assert (data.CACHE_FOLDER / "labels.gz").read_bytes() == b"content"


def test_a_download_with_another_checksum_is_refused(mirror, monkeypatch) -> None:
    monkeypatch.setattr(data, "SHA256", {"labels.gz": "0" * 64})
    with pytest.raises(data.DataError, match=r"SHA-256 is .* expected 0000"):
        data.fetch()
    assert not data.CACHE_FOLDER.exists()


def test_missing_data_says_what_to_do(mirror, monkeypatch) -> None:
    monkeypatch.setattr(data, "SHA256", {"images.gz": "0" * 64})
    with pytest.raises(data.DataError, match="apt-get install dataset-fashion-mnist"):
        data.fetch()
