"""The example that trains a classifier and compiles it: its parts, and the whole of it in short."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream import infer

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_compiled_classifier"


@pytest.fixture
def module(monkeypatch):
    """Import a module of the example as its scripts do; forget it and its imports at the end."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield __import__
    for name in set(sys.modules) - before:
        if str(EXAMPLE.parent) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)


@pytest.mark.parametrize("name", ["randaugment", "augmix"])
def test_changes_are_drawn_from_the_seed_and_leave_the_images_alone(module, images, name):
    change, before = getattr(module("augment"), name), images.copy()
    first, again, other = (change(images, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(first, again)
    assert (first.shape, first.dtype) == (images.shape, np.uint8)
    assert (first != other).any()
    assert (first != images).any()


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_every_change_takes_every_strength(module, images, strength):
    augment = module("augment")
    for name, change in augment.CHANGES.items():
        image = augment.Image.fromarray(images[0])
        found = np.asarray(change(image, strength, np.random.default_rng(0)))
        assert (found.shape, found.dtype) == ((28, 28), np.uint8), name
        if strength == 0 and name not in ("equalize", "autocontrast"):
            np.testing.assert_array_equal(found, images[0], name)


def test_mixtures_are_closer_to_the_image_than_their_chains(module, images):
    augment = module("augment")
    smooth = np.repeat(np.repeat(images[:, :4, :4], 7, 1), 7, 2)
    near = augment.augmix(smooth, np.random.default_rng(0)).astype(float)
    far = augment.randaugment(smooth, np.random.default_rng(0), count=3).astype(float)
    assert np.abs(near - smooth).mean() < np.abs(far - smooth).mean()


def test_corruptions_are_the_same_each_time(module, images):
    for name, corrupt in module("corrupt").CORRUPTIONS.items():
        first, again = corrupt(images), corrupt(images)
        assert (first.shape, first.dtype) == (images.shape, np.uint8), name
        np.testing.assert_array_equal(first, again)
        assert (first != images).any(), name


def test_divergence_is_zero_for_the_same_predictions_and_at_most_log_3(module):
    divergence = module("learner").divergence
    same = torch.randn(4, 10, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    assert divergence([same, same, same]).item() == pytest.approx(0, abs=1e-6)
    apart = [100.0 * torch.eye(3)[[number]] for number in range(3)]
    found = divergence([each.log_softmax(1) for each in apart])
    assert found.item() == pytest.approx(np.log(3), abs=1e-3)


def test_the_network_has_26_layers_and_keeps_the_images_of_its_shortcuts(module):
    network = module("network").resnet26d().eval()
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    body = [name for name, part in network.named_modules() if isinstance(part, kinds)]
    assert (
        len([name for name in body if "shortcut" not in name]) == 28
    )  # the stem has three for one
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.slow("from training to answers")
@pytest.mark.multiprocess
def test_a_classifier_is_trained_compiled_and_reads_files(slipstream_run, tmp_path):
    reduced = ("--epochs", "1", "--limit", "256", "--output", str(tmp_path))
    workers = slipstream_run(2, EXAMPLE / "train.py", *reduced)
    shown, _ = workers.communicate(timeout=200)
    assert workers.returncode == 0, shown
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["recipe"]["augmix"]
    assert {"clean", "corrupted", "jpeg"} <= result["accuracy"].keys()
    package = tmp_path / "classifier.slip"
    # So short a training teaches nothing that a budget could keep.
    search = ("--time", "2", "--limit", "128", "--budget", "100")
    options = ("-o", package, "--images", tmp_path / "jpeg", *search)
    command = [sys.executable, EXAMPLE / "compile.py", tmp_path / "classifier.pt", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"% right, .* ms from JPEG to answer", done.stdout)) == 2
    with infer.load(package) as model:
        words = r"\d+ samples with \d+ labels held out; \d+ others judged, \d+ calibrated"
        assert re.fullmatch(words, model.report.data)
        assert model.manifest.accuracy.labelled > 0
        assert model.manifest.inputs[0].shape == (1, 28, 28, 1)


@pytest.mark.slow("from training to answers")
@pytest.mark.multiprocess
def test_fewer_images_than_a_step_are_an_error(slipstream_run, tmp_path):
    arguments = ("--limit", "100", "--output", str(tmp_path))
    workers = slipstream_run(2, EXAMPLE / "train.py", *arguments)
    shown, _ = workers.communicate(timeout=100)
    assert workers.returncode != 0
    assert "--limit 100 must be at least one step: 128" in shown
