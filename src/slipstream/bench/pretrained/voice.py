"""Silero VAD, a model that detects at which moments (of 32 ms) somebody speaks.

The recordings are parts of "Sense and Sensibility", read aloud (LibriVox, in the public domain),
and short spoken commands. The recordings are in Debian's package pocketsphinx-testdata.
"""

# NumPy's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.bench.infer.calls import of_onnxruntime
from slipstream.bench.pretrained.case import Array, Inputs, Pretrained, Run, Sample, Task
from slipstream.bench.pretrained.packages import package_file
from slipstream.errors import UsageError

FOLDER = Path("/usr/share/pocketsphinx/test/data")
RATE = 16_000
# audio samples of a moment, and audio samples before it that the model sees again
STEP, CONTEXT = 512, 64
MOMENTS = 32  # number of moments per run, for the model that takes several
PAUSE = 1.5  # seconds of silence between two recordings
# Bounds of a moment's loudness, relative to the loud moments of its recording. A moment above LOUD
# surely has speech; a moment below QUIET surely has none.
LOUD, QUIET = 0.15, 0.01
# number of moments at the start of a pause in which the previous speech may still be heard
AFTER = 4
NOISE_DB = 15.0  # power of the speech relative to that of the noise, in dB


@dataclass(frozen=True)
class Talk:
    """Recordings one after another, with a pause before each, in noise.

    Args:
        sound: Audio samples from -1 to 1, float32.
        speech: Label of each moment (512 audio samples): 1 for speech, 0 for none, -1 if uncertain.
    """

    sound: Array
    speech: Array


def recordings() -> list[Path]:
    """Return the paths of the audio files with speech, at 16,000 audio samples per second.

    Raises:
        UsageError: the package with the files is not installed.
    """
    paths = [*sorted(FOLDER.glob("librivox/*.wav")), *sorted(FOLDER.glob("cards/*.wav"))]
    if not paths:
        raise UsageError(
            f"there are no recordings in {FOLDER}; apt-get install pocketsphinx-testdata"
        )
    return paths


def talk(paths: list[Path], seed: int) -> Talk:
    """Return recordings one after another, with a pause before each, in white noise."""
    random = np.random.default_rng(seed)
    sounds: list[Array] = []
    speech: list[Array] = []
    for path in paths:
        pause = np.zeros(STEP * int(PAUSE * RATE / STEP), np.float32)
        silent = np.zeros(len(pause) // STEP, np.int64)
        silent[:AFTER] = -1
        recorded = _recorded(path)
        sounds += [pause, recorded]
        speech += [silent, _speech(recorded)]
    sound = np.concatenate(sounds)
    power = np.mean(np.square(sound[np.abs(sound) > 0.01]))
    noise = random.standard_normal(len(sound)) * np.sqrt(power / 10 ** (NOISE_DB / 10))
    return Talk((sound + noise).astype(np.float32), np.concatenate(speech))


def _recorded(path: Path) -> Array:
    """Return a recording, cut to a multiple of 512 audio samples and scaled to a peak of 0.5."""
    with wave.open(str(path)) as file:
        numbers = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
    numbers = numbers[: len(numbers) // STEP * STEP]
    return numbers / (2 * np.abs(numbers).max())


def _speech(recorded: Array) -> Array:
    """Return a label per moment (512 audio samples): 1 (loud), 0 (almost silent), -1 (between)."""
    loudness = np.sqrt(np.square(recorded.reshape(-1, STEP)).mean(axis=1))
    relative = loudness / np.quantile(loudness, 0.9)
    return np.where(relative > LOUD, 1, np.where(relative < QUIET, 0, -1))


def windows(sound: Array) -> Array:
    """Return an input of the model per moment (512 audio samples): float32 (moments, 576)."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    count = len(sound) // STEP
    return np.stack([padded[STEP * n : STEP * (n + 1) + CONTEXT] for n in range(count)])


# ---- one moment per run ------------------------------------------------------------------------


def _moment(window: Array, state: Array) -> Inputs:
    return {"input": window[np.newaxis], "state": state, "sr": np.array(RATE, np.int64)}


def _by_moments(run: Run, sound: Array) -> Iterator[tuple[Inputs, float]]:
    """Run the model on one moment after another; yield its inputs and the probability of speech."""
    state = np.zeros((2, 1, 128), np.float32)
    for window in windows(sound):
        inputs = _moment(window, state)
        outputs = run(inputs)
        state = np.array(outputs["stateN"])
        yield inputs, float(outputs["output"].item())


# ---- many moments per run ----------------------------------------------------------------------


def _by_spans(run: Run, sound: Array) -> Iterator[tuple[Inputs, Array]]:
    moments = windows(sound)
    hidden = cell = np.zeros((1, 1, 128), np.float32)
    for first in range(0, len(moments) // MOMENTS * MOMENTS, MOMENTS):
        inputs = {"input": moments[first : first + MOMENTS], "h": hidden, "c": cell}
        outputs = run(inputs)
        hidden, cell = np.array(outputs["hn"]), np.array(outputs["cn"])
        yield inputs, np.array(outputs["speech_probs"])


def _right(probabilities: Array, speech: Array) -> float:
    """Return the share of right predictions, without the uncertain labels (-1)."""
    speech = speech[: len(probabilities)]
    is_certain = speech >= 0
    answers = probabilities[is_certain] > 0.5
    return float(np.mean(answers == (speech[is_certain] == 1)))


# ---- the two models ----------------------------------------------------------------------------


def _halves(is_short: bool) -> tuple[Talk, Talk]:
    """Return a talk for calibration and a talk to measure accuracy, from different recordings."""
    paths = recordings()
    if is_short:
        return talk(paths[1:2], 0), talk(paths[4:5], 1)
    return talk(paths[0::2], 0), talk(paths[1::2], 1)


def _each_moment(is_short: bool) -> Task:
    first, held_out = _halves(is_short)
    runs = _by_moments(of_onnxruntime(_moments_model().read_bytes(), 1), first.sound)
    samples: list[Sample] = [inputs for inputs, _ in runs]

    def judge(run: Run) -> float:
        probabilities = [probability for _, probability in _by_moments(run, held_out.sound)]
        return _right(np.array(probabilities), held_out.speech)

    return Task(samples[:: 1 if is_short else 4], judge)


def _many_moments(is_short: bool) -> Task:
    first, held_out = _halves(is_short)
    run = of_onnxruntime(_spans_model().read_bytes(), 1)
    samples: list[Sample] = [inputs for inputs, _ in _by_spans(run, first.sound)]

    def judge(run: Run) -> float:
        probabilities = np.concatenate([span for _, span in _by_spans(run, held_out.sound)])
        return _right(probabilities, held_out.speech)

    return Task(samples, judge)


def _moments_model() -> Path:
    return package_file("silero_vad", "data/silero_vad_16k_op15.onnx")


def _spans_model() -> Path:
    return package_file("silero_vad", "data/silero_vad_16k_sequence.onnx")


VOICE = (
    Pretrained(
        name="voice",
        title="Silero VAD 6, one moment per run",
        package="silero-vad",
        licence="MIT",
        measure="moments classified as speech or none",
        model=_moments_model,
        task=_each_moment,
        shapes={"input": (1, STEP + CONTEXT), "state": (2, 1, 128)},
    ),
    Pretrained(
        name="voice-spans",
        title=f"Silero VAD 6, {MOMENTS} moments per run",
        package="silero-vad",
        licence="MIT",
        measure="moments classified as speech or none",
        model=_spans_model,
        task=_many_moments,
        shapes={"input": (MOMENTS, STEP + CONTEXT)},
    ),
)
