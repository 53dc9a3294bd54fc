"""A job on a terminal, in a log file, as JSON and in files, letter by letter."""

import fcntl
import io
import json
import os
import pty
import struct
import termios
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.cluster.launch.display import JsonDisplay, OutputMode, TerminalDisplay
from slipstream.cluster.launch.labels import Labels
from slipstream.cluster.launch.launcher import AlsoFailed, Failure
from slipstream.cluster.launch.output_files import ElasticOutputFiles, OutputFiles
from slipstream.errors import UsageError

ERASE = "\r\x1b[K"
FAILURE = Failure(
    host="b",
    rank=1,
    reason="exit code 3",
    seconds=2.04,
    exit_code=3,
    last_lines=("x", "y"),
    others=(AlsoFailed(rank=0, host="a", reason="exit code 1", said="PeerError"),),
)


class Terminal(io.StringIO):
    """Text on a terminal of 20 columns."""

    def __init__(self) -> None:
        super().__init__()
        self._ends = pty.openpty()
        size = struct.pack("HHHH", 24, 20, 0, 0)
        fcntl.ioctl(self._ends[1], termios.TIOCSWINSZ, size)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._ends[1]

    def end(self) -> None:
        for each in self._ends:
            os.close(each)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Yield a terminal of 20 columns."""
    made = Terminal()
    yield made
    made.end()


def shown(mode: OutputMode = "all", hosts: str = "ab") -> tuple[TerminalDisplay, io.StringIO]:
    """Return a display that writes everything to one log file."""
    out = io.StringIO()
    return TerminalDisplay(list(hosts), out, out, mode=mode, color=True), out


@pytest.mark.parametrize(
    ("hosts", "text"), [("aa", "[0] x\n[1] y\n"), ("ab", "[a:0] x\n[b:1] y\n")]
)
def test_lines_begin_with_the_rank_and_with_its_host_where_there_are_several(
    hosts: str, text: str
) -> None:
    display, out = shown(hosts=hosts)
    display.line(0, "x", is_error=False)
    display.line(1, "y", is_error=False)
    assert out.getvalue() == text


def test_prefixes_have_one_width() -> None:
    display, out = shown(hosts="a" * 11)
    display.line(9, "x", is_error=False)
    display.line(10, "y", is_error=False)
    assert out.getvalue() == "[9]  x\n[10] y\n"


@pytest.mark.parametrize(("mode", "ranks"), [("all", "01"), ("rank0", "0"), ("failed", "")])
def test_the_mode_says_whose_lines_are_shown(mode: OutputMode, ranks: str) -> None:
    display, out = shown(mode, "aa")
    lines = io.StringIO()
    for each in (display, JsonDisplay(lines, mode=mode)):
        for rank in (0, 1):
            each.line(rank, "x", is_error=False)
    assert out.getvalue() == "".join(f"[{rank}] x\n" for rank in ranks)
    assert [str(json.loads(line)["rank"]) for line in lines.getvalue().splitlines()] == list(ranks)


def test_each_stream_goes_to_its_own() -> None:
    out, err = io.StringIO(), io.StringIO()
    display = TerminalDisplay(["a"], out, err, mode="all", color=False)
    display.line(0, "x", is_error=False)
    display.line(0, "y", is_error=True)
    display.note("z")
    display.started(0, "a", 7)
    assert out.getvalue() == "[0] x\n"
    assert err.getvalue() == "[0] y\nslipstream: z\n"


def test_colours_go_to_terminals_only_and_by_rank(terminal: Terminal) -> None:
    out = io.StringIO()
    display = TerminalDisplay(["a"] * 7, out, terminal, mode="all", color=True)
    for rank in (0, 1, 5, 6):
        display.line(rank, "x", is_error=True)
        display.line(rank, "x", is_error=False)
    display.note("z")
    display.finished(replace(FAILURE, last_lines=()))
    assert out.getvalue() == "[0] x\n[1] x\n[5] x\n[6] x\n"
    prefixes = [line[: line.index("m[")] for line in terminal.getvalue().splitlines()[:4]]
    assert prefixes == ["\x1b[36", "\x1b[32", "\x1b[90", "\x1b[36"]
    assert "\x1b[1mslipstream: z\x1b[0m\n" in terminal.getvalue()
    assert "\x1b[1;31mslipstream: rank 1 on b failed first" in terminal.getvalue()
    plain = Terminal()
    TerminalDisplay(["a"], out, plain, mode="all", color=False).note("z")
    assert plain.getvalue() == "slipstream: z\n"
    plain.end()


def test_rank_0s_overwritten_line_stays_at_the_bottom_of_a_terminal(terminal: Terminal) -> None:
    display = TerminalDisplay(["a", "a"], terminal, terminal, mode="all", color=False)
    display.progress(0, "1%")
    display.line(1, "x", is_error=False)
    display.progress(1, "9%")
    display.exited(1, "a", 0)
    display.exited(0, "a", 0)
    display.exited(0, "a", 0)
    display.line(1, "y", is_error=False)
    first = f"{ERASE}[0] 1%"
    assert terminal.getvalue() == f"{first}{ERASE}[1] x\n[0] 1%{ERASE}[1] y\n"


def test_an_overwritten_line_is_cut_one_column_before_the_edge(terminal: Terminal) -> None:
    display = TerminalDisplay(["a"], terminal, terminal, mode="all", color=False)
    display.progress(0, "#" * 30)
    assert terminal.getvalue() == f"{ERASE}[0] {'#' * 15}"
    narrow = TerminalDisplay(["a" * 30, "b"], terminal, terminal, mode="all", color=False)
    narrow.progress(0, "#" * 30)
    assert terminal.getvalue().endswith(f"[{'a' * 30}:0] #")


@pytest.mark.parametrize("mode", ["all", "failed"])
def test_an_overwritten_line_is_kept_from_files_and_from_who_is_not_shown(
    terminal: Terminal, mode: OutputMode
) -> None:
    to = terminal if mode == "failed" else io.StringIO()
    TerminalDisplay(["a"], to, to, mode=mode, color=False).progress(0, "1%")
    assert to.getvalue() == ""


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (None, ""),
        (
            FAILURE,
            "slipstream: rank 1 on b failed first, after 2.0 s: exit code 3\n"
            "  last lines of rank 1:\n    x\n    y\n"
            "  rank 0 on a failed too, exit code 1: PeerError\n",
        ),
        (
            replace(FAILURE, rank=None, last_lines=(), others=()),
            "slipstream: b failed first, after 2.0 s: exit code 3\n",
        ),
        (
            replace(FAILURE, after_signal="SIGINT"),
            "slipstream: the job ended after SIGINT; rank 1 on b ended first: exit code 3\n",
        ),
    ],
)
def test_the_end_says_who_failed_first_and_why(failure: Failure | None, text: str) -> None:
    display, out = shown("failed")
    display.finished(failure)
    assert out.getvalue() == text


def test_json_has_an_event_on_each_line() -> None:
    out = io.StringIO()
    display = JsonDisplay(out, mode="all")
    display.started(1, "b", 77)
    display.line(1, "x", is_error=True)
    display.line(1, "y", is_error=False)
    display.progress(1, "9%")
    display.exited(1, "b", -9)
    display.note("z")
    display.finished(FAILURE)
    display.finished(None)
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    times = [event.pop("time") for event in events]
    assert times == sorted(times)
    assert events == [
        {"event": "started", "rank": 1, "host": "b", "pid": 77},
        {"event": "line", "rank": 1, "stream": "stderr", "text": "x"},
        {"event": "line", "rank": 1, "stream": "stdout", "text": "y"},
        {"event": "exited", "rank": 1, "host": "b", "status": -9},
        {"event": "note", "text": "z"},
        {
            "event": "finished",
            "failure": {
                "host": "b",
                "rank": 1,
                "reason": "exit code 3",
                "seconds": 2.04,
                "exit_code": 3,
                "after_signal": "",
                "last_lines": ["x", "y"],
                "others": [{"rank": 0, "host": "a", "reason": "exit code 1", "said": "PeerError"}],
            },
        },
        {"event": "finished", "failure": None},
    ]


@pytest.mark.parametrize(("num_ranks", "first"), [(1, "rank.0"), (10, "rank.0"), (11, "rank.00")])
def test_files_have_the_lines_of_each_rank_and_the_display_has_all(
    tmp_path: Path, num_ranks: int, first: str
) -> None:
    out = io.StringIO()
    (tmp_path / first).mkdir()
    (tmp_path / first / "stdout").write_text("of an earlier job")
    files = OutputFiles(JsonDisplay(out, mode="all"), tmp_path, num_ranks)
    files.line(0, "ä", is_error=False)
    files.line(0, "y", is_error=True)
    assert (tmp_path / first / "stdout").read_text(encoding="utf-8") == "ä\n"
    assert (tmp_path / first / "stderr").read_text() == "y\n"
    files.started(0, "a", 7)
    files.progress(0, "9%")
    files.exited(0, "a", 3)
    files.note("z")
    files.finished(FAILURE)
    seen = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert seen == ["line", "line", "started", "exited", "note", "finished"]
    assert len(list(tmp_path.iterdir())) == num_ranks


def test_an_overwritten_line_passes_files_by(tmp_path: Path, terminal: Terminal) -> None:
    display = TerminalDisplay(["a"], terminal, terminal, mode="all", color=False)
    files = OutputFiles(display, tmp_path, 1)
    files.progress(0, "9%")
    files.finished(None)
    assert terminal.getvalue() == f"{ERASE}[0] 9%"


def test_a_folder_where_no_files_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    display, _ = shown()
    with pytest.raises(UsageError, match=r"--output-filename is '.*file', where no files can be"):
        OutputFiles(display, tmp_path / "file", 1)


def test_processes_of_an_elastic_job_are_named_by_rank_or_slot() -> None:
    out = io.StringIO()
    labels = Labels([], with_hosts=True)
    display = TerminalDisplay(labels, out, out, mode="all", color=False)
    display.named(0, "a", 0)
    display.named(10, "b", 10)
    display.line(0, "x", is_error=False)
    display.line(10, "y", is_error=False)
    display.named(0, "a", None)
    display.line(0, "z", is_error=False)
    display.finished(replace(FAILURE, rank=0, host="a", others=()))
    assert out.getvalue() == (
        "[a:0]  x\n[b:10] y\n[a:slot 0] z\n"
        "slipstream: slot 0 on a failed first, after 2.0 s: exit code 3\n"
        "  last lines of slot 0:\n    x\n    y\n"
    )


def test_files_that_fail_to_open_do_not_end_an_elastic_job(tmp_path: Path) -> None:
    out = io.StringIO()
    shown = TerminalDisplay(Labels([]), out, out, mode="all", color=False)
    files = ElasticOutputFiles(shown, tmp_path / "logs")
    (tmp_path / "logs" / "rank.0").touch()
    files.named(0, "a", 0)
    files.line(0, "x", is_error=False)
    files.named(0, "a", None)
    files.line(0, "y", is_error=False)
    files.named(0, "a", None)
    files.line(0, "z", is_error=False)
    files.finished(None)
    assert "lines are missing in" in out.getvalue()
    assert (tmp_path / "logs" / "slot.0" / "stdout").read_text() == "y\nz\n"
