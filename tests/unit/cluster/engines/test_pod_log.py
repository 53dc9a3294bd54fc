"""The journal is read from the logs of pods line by line, whatever times the lines have."""

from slipstream.cluster.engines.kubernetes.pod_log import read_pod_log

LOGS = {
    "old": "2026-11-29T14:00:00.5Z one\n"
    "2026-11-29T14:00:00.5Z two\n"
    "2026-11-29T14:00:00.51Z three\n",
    "new": "2026-11-29T14:00:09Z four\n2026-11-29T14:00:10Z unfini",
}


def read(pod: str, since: str) -> str:
    """Return a log from a second on, as the API server does."""
    lines = LOGS[pod].splitlines(keepends=True)
    return "".join(line for line in lines if line[:19] >= since[:19])


def test_lines_are_read_once_and_the_next_pod_follows() -> None:
    text, position = read_pod_log(read, ["old"], "")
    assert text == "one\ntwo\nthree\n"
    assert read_pod_log(read, ["old"], position) == ("", position)
    text, position = read_pod_log(read, ["old", "new"], position)
    assert text == "four\n"
    assert read_pod_log(read, ["old", "new"], position) == ("", position)


def test_lines_of_one_time_are_told_apart() -> None:
    assert read_pod_log(read, ["old"], "old 2026-11-29T14:00:00.5Z 1")[0] == "two\nthree\n"
    assert read_pod_log(read, ["old"], "old 2026-11-29T14:00:00.5Z 2")[0] == "three\n"
    # 0.51 s is later than 0.5 s, and a time without a fraction is earlier than both.
    assert read_pod_log(read, ["old"], "old 2026-11-29T14:00:00Z 1")[0] == "one\ntwo\nthree\n"


def test_a_pod_that_is_gone_is_followed_by_the_newest() -> None:
    assert read_pod_log(read, ["new"], "old 2026-11-29T14:00:00.51Z 1")[0] == "four\n"
    assert read_pod_log(read, [], "") == ("", "")
