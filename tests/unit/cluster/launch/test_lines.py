"""Whole lines out of bytes that arrive in any pieces."""

import pytest

from slipstream.cluster.launch.lines import MAX_LINE_BYTES, NUM_LAST_LINES, LineCutter, Transcript


class Recorder:
    def __init__(self) -> None:
        self.lines: list[tuple[int, str, bool]] = []
        self.states: list[tuple[int, str]] = []
        self.steps: list[tuple[int, int]] = []

    def line(self, rank: int, text: str, *, is_error: bool) -> None:
        self.lines.append((rank, text, is_error))

    def progress(self, rank: int, text: str) -> None:
        self.states.append((rank, text))

    def step(self, rank: int, number: int) -> None:
        self.steps.append((rank, number))


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\n\n", ["a", ""]),
        (b"no end", ["no end"]),
        (b" 1%\r 2%\r 3%\nnext\n", [" 3%", "next"]),
        (b"\r 1%\r 2%", [" 2%"]),
        (b" 1%\r 2%\r", [" 2%"]),
        ("ä\n".encode(), ["ä"]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 1000])
def test_pieces_of_any_size_give_the_same_lines(data: bytes, lines: list[str], step: int) -> None:
    cutter = LineCutter()
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    assert [line for piece in [*pieces, b""] for line in cutter.feed(piece)] == lines


def test_a_line_that_redraws_itself_is_known_before_it_ends() -> None:
    cutter = LineCutter()
    states: list[str | None] = []
    for piece in (b"start", b"\r 1%", b"\r 2", b"0%", b"\n"):
        cutter.feed(piece)
        states.append(cutter.overwritten)
    assert states == [None, " 1%", " 2", " 20%", None]


def test_a_line_without_end_is_cut() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"x" * MAX_LINE_BYTES) == []
    assert cutter.feed(b"y") == ["x" * MAX_LINE_BYTES + "y"]
    assert cutter.feed(b"z\n") == ["z"]


def test_a_progress_bar_that_redraws_for_hours_takes_no_memory() -> None:
    cutter = LineCutter()
    for _ in range(3):
        assert cutter.feed(b"\r" + b"#" * (MAX_LINE_BYTES // 2)) == []


def test_a_transcript_keeps_streams_and_ranks_apart_and_the_last_lines_of_each_rank() -> None:
    recorder = Recorder()
    transcript = Transcript(recorder)
    transcript.feed(0, b"out", is_error=False)
    transcript.feed(0, b"err\n", is_error=True)
    transcript.feed(1, b"other\n", is_error=False)
    transcript.feed(0, b"put\n", is_error=False)
    assert recorder.lines == [(0, "err", True), (1, "other", False), (0, "output", False)]
    transcript.feed(1, b"".join(b"%d\n" % number for number in range(30)), is_error=False)
    assert transcript.last_lines(0) == ("err", "output")
    assert transcript.last_lines(1) == tuple(str(n) for n in range(30 - NUM_LAST_LINES, 30))


@pytest.mark.parametrize("size", range(1, 40))
def test_steps_are_taken_out_of_the_output_wherever_it_is_cut(size: int) -> None:
    data = b"first\nsec\x1b]slipstream;step=7\x07ond\n 1%\r\x1b]slipstream;step=-8\x07 2%\nend"
    recorder = Recorder()
    transcript = Transcript(recorder)
    for start in range(0, len(data), size):
        transcript.feed(1, data[start : start + size], is_error=True)
    transcript.feed(1, b"", is_error=True)
    assert [text for _, text, _ in recorder.lines] == ["first", "second", " 2%", "end"]
    assert recorder.steps == [(1, 7), (1, -8)]
