"""Ranks that meet in a store as threads, and what those hear who do not belong together."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import distributed as dist  # noqa: E402

from slipstream import _core  # noqa: E402
from slipstream.errors import AuthError, ConfigError, PeerTimeoutError  # noqa: E402
from slipstream.settings import Settings  # noqa: E402
from slipstream.torch.bootstrap import StoreMeeting, World, open_world  # noqa: E402

SETTINGS = Settings.from_environment({})
SECRET = Settings.from_environment({"SLIPSTREAM_TLS": "1"})
_BUFFER = torch.zeros(1)
KEYS = [
    Settings.from_environment({"SLIPSTREAM_JOB_KEY": key})
    for key in ("0123456789abcdef", "fedcba9876543210")
]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of the ranks."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def meeting(rank: int, size: int = 2, seconds: float = 20.0, store: Any = None) -> StoreMeeting:
    return StoreMeeting(store=store or dist.HashStore(), rank=rank, size=size, seconds=seconds)


def opened(
    threads: ThreadPoolExecutor, store: Any, settings: list[Settings], seconds: float = 20.0
) -> list[Future[World]]:
    """Begin to open the worlds of some ranks that share a store."""
    first = meeting(0, len(settings), seconds, store)
    return [
        threads.submit(open_world, replace(first, rank=rank), each)
        for rank, each in enumerate(settings)
    ]


@pytest.mark.parametrize("settings", [SETTINGS, KEYS[0]])
def test_ranks_meet_again_and_again_with_and_without_a_key(
    threads: ThreadPoolExecutor, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    store = dist.HashStore()
    with caplog.at_level(logging.INFO, "slipstream.torch.bootstrap"):
        for generation in (1, 2):
            worlds = [each.result() for each in opened(threads, store, [settings] * 2)]
            groups = [world.join("g", [0, 1]) for world in worlds]
            for handle in [group.group.barrier() for group in groups]:
                handle.wait(10.0)
            assert [len(bytes.fromhex(store.get(f"{generation}/key").decode()))] == [
                32 if settings is SETTINGS else 0
            ]
            for group in groups:
                group.leave()
            assert [world.is_open for world in worlds] == [False, False]
    told = [each for each in caplog.messages if "no job key is set: rank 0 drew one" in each]
    assert len(told) == (1 if settings is SETTINGS else 0)


def test_a_world_is_open_until_its_last_group_has_left() -> None:
    world = open_world(meeting(0, 1), SETTINGS)
    assert not world.is_open
    first, second = world.join("a", [0]), world.join("b", [0])
    sibling = first.sibling("barrier")
    assert sibling.name() == "a/barrier"
    assert first.groups() == (first.group, sibling)
    first.leave()
    assert world.is_open
    second.group.barrier().wait(10.0)
    second.leave()
    assert not world.is_open


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ([KEYS[0], SETTINGS], [None, "rank 0 was given a job key, this rank was not; set SLIPST"]),
        ([SETTINGS, KEYS[0]], [None, "this rank was given a job key, rank 0 was not; set SLIPST"]),
        (
            [KEYS[0], KEYS[1], KEYS[0]],
            ["^rank 1 of 3 was not given the job key of rank 0; set SLIPSTREAM_JOB_KEY to the"] * 3,
        ),
    ],
)
def test_ranks_with_other_keys_are_told_so(
    threads: ThreadPoolExecutor, settings: list[Settings], messages: list[str | None]
) -> None:
    futures = opened(threads, dist.HashStore(), settings)
    for future, message in zip(futures, messages, strict=True):
        wanted = message or "rank 1 of 2 was not given the job key of rank 0"
        with pytest.raises(AuthError, match=wanted):
            future.result()


@pytest.mark.parametrize(
    ("others", "message"),
    [
        (
            SECRET,
            "has SLIPSTREAM_TLS=1 and no job key, .* set SLIPSTREAM_JOB_KEY or SLIPSTREAM_KEY",
        ),
        (SETTINGS, "SLIPSTREAM_TLS=1; set these variables alike on all ranks"),
    ],
)
def test_tls_needs_a_key_that_did_not_pass_through_the_store(
    threads: ThreadPoolExecutor, others: Settings, message: str
) -> None:
    first, *rest = opened(threads, dist.HashStore(), [SECRET, others, others])
    with pytest.raises(ConfigError, match="rank 0 has SLIPSTREAM_TLS=1 and no job key"):
        first.result()
    for future in rest:
        with pytest.raises(ConfigError, match=message):
            future.result()


def test_tls_takes_a_key_that_every_rank_was_given(threads: ThreadPoolExecutor) -> None:
    settings = replace(KEYS[0], tls=True)
    for future in opened(threads, dist.HashStore(), [settings, settings]):
        world = future.result()
        group = world.join("g", [0, 1])
        group.leave()


def test_ranks_that_do_not_come_are_named_on_all_that_did(threads: ThreadPoolExecutor) -> None:
    first = meeting(0, 4, 1.0)
    futures = [threads.submit(open_world, replace(first, rank=rank), SETTINGS) for rank in (0, 2)]
    for future in futures:
        with pytest.raises(PeerTimeoutError, match=r"^rank 1, 3 of 4 did not come .* within 1 s"):
            future.result()


def test_without_rank_0_the_others_say_how_long_they_waited() -> None:
    with pytest.raises(PeerTimeoutError, match=r"rank 0 did not come within 0.1 s \(rank 1 of 2 w"):
        open_world(meeting(1, 2, 0.1), SETTINGS)


def test_no_thread_is_left_of_a_world() -> None:
    before = set(threading.enumerate())
    world = open_world(meeting(0, 1), SETTINGS)
    called = threading.Event()
    member = world.join("a", [0])
    world.completions.when_done([member.group.barrier()], called.set)
    assert called.wait(10.0)
    member.leave()
    assert set(threading.enumerate()) == before


def test_callbacks_are_called_once_when_all_are_done_and_at_once_when_there_is_nothing() -> None:
    world = open_world(meeting(0, 1), SETTINGS)
    member = world.join("a", [0])
    seen: list[int] = []
    done = threading.Event()
    world.completions.when_done([], lambda: seen.append(0))
    assert seen == [0]
    handles = [member.group.barrier() for _ in range(3)]
    world.completions.when_done(handles, lambda: (seen.append(1), done.set()))
    assert done.wait(10.0)
    assert not world.completions.is_here()
    waiting = member.group.recv(_BUFFER.data_ptr(), 1, _core.DType.FLOAT32, -1, 0)
    world.completions.when_done([waiting], lambda: seen.append(2))
    member.leave()
    assert seen == [0, 1, 2]
    world.completions.when_done([waiting], lambda: seen.append(3))
    assert seen[-1] == 3


def test_a_callback_that_fails_is_logged_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = open_world(meeting(0, 1), SETTINGS)
    member = world.join("a", [0])
    done = threading.Event()
    world.completions.when_done([member.group.barrier()], lambda: 1 / 0)
    world.completions.when_done([member.group.barrier()], done.set)
    assert done.wait(10.0)
    member.leave()
    assert "a callback at the completion of an operation failed" in caplog.text
