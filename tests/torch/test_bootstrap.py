"""How an engine is made inside PyTorch: what is left when it fails, and whose key counts."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch.distributed as dist

from slipstream.errors import AuthError, ConfigError, PeerTimeoutError
from slipstream.settings import Settings
from slipstream.torch.bootstrap import StoreMeeting, World, open_world

LIMIT_SECONDS = 20.0
LOGGER = "slipstream.torch.bootstrap"


def settings(**variables: str) -> Settings:
    """Return the settings of an environment with only these variables."""
    return Settings.from_environment(variables)


def meeting(
    store: dist.Store, rank: int, size: int, seconds: float = LIMIT_SECONDS
) -> StoreMeeting:
    return StoreMeeting(store=store, rank=rank, size=size, seconds=seconds)


def held() -> tuple[int, int]:
    """Return the numbers of sockets and threads of this process."""
    links = [link_of(path) for path in Path("/proc/self/fd").iterdir()]
    return sum(link.startswith("socket:") for link in links), len(os.listdir("/proc/self/task"))


def link_of(path: Path) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # the descriptor by which the folder was read
        return ""


def check_nothing_left(before: tuple[int, int]) -> None:
    """Check that no thread is left; the kernel takes a moment to forget one that was joined."""
    gc.collect()
    deadline = time.monotonic() + LIMIT_SECONDS
    while any(now > then for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < deadline, (before, held(), threading.enumerate())


@pytest.mark.slow("engine that cannot start")
def test_meeting_that_fails_leaves_no_engine_behind() -> None:
    store = dist.HashStore()
    before = held()
    with pytest.raises(PeerTimeoutError, match="rank 1 of 2") as caught:
        open_world(meeting(store, 0, 2, 0.2), settings())
    check_nothing_left(before)
    assert caught.tb  # whose frames hold the engine


@pytest.mark.slow("engine that cannot start")
def test_engine_whose_timeline_cannot_be_written_is_closed(tmp_path: Path) -> None:
    store = dist.HashStore()
    before = held()
    with pytest.raises(ConfigError, match="SLIPSTREAM_TIMELINE") as caught:
        open_world(
            meeting(store, 0, 1),
            settings(SLIPSTREAM_TIMELINE=str(tmp_path)),  # a folder
        )
    check_nothing_left(before)
    assert caught.tb


def open_both(each: Callable[[int], Settings]) -> list[World | Exception]:
    """Open the two ranks of a world, each in a thread; return their results or errors."""
    store = dist.HashStore()

    def one(rank: int) -> World | Exception:
        try:
            return open_world(meeting(store, rank, 2), each(rank))
        except Exception as error:  # noqa: BLE001  the tests look at it
            return error

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


def leave(worlds: list[World | Exception]) -> None:
    """Close the engines of all ranks at once, because each waits for the others."""
    memberships = [world.join("all", [0, 1]) for world in worlds if isinstance(world, World)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: each.leave(), memberships))


def test_rank_0_draws_a_key_where_none_is_set_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        worlds = open_both(lambda rank: settings())
    leave(worlds)
    assert all(isinstance(world, World) for world in worlds), worlds
    said = [each for each in caplog.records if "no job key is set" in each.message]
    assert [each.levelno for each in said] == [logging.INFO]
    assert "SLIPSTREAM_JOB_KEY" in said[0].message


def test_a_key_that_is_set_is_not_shared_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = dist.HashStore()
    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        world = open_world(meeting(store, 0, 1), settings(SLIPSTREAM_JOB_KEY="5" * 32))
    world.join("all", [0]).leave()
    assert not store.get("1/key")
    assert "job key" not in caplog.text


def test_different_keys_are_refused_on_both_ranks() -> None:
    started = time.monotonic()
    worlds = open_both(lambda rank: settings(SLIPSTREAM_JOB_KEY=str(rank) * 32))
    assert [type(world) for world in worlds] == [AuthError, AuthError], worlds
    assert all("rank 1 of 2" in str(world) for world in worlds), worlds
    assert time.monotonic() - started < LIMIT_SECONDS / 2  # nobody waited for a timeout


@pytest.mark.parametrize("holder", [0, 1])
def test_key_on_one_rank_alone_is_refused_on_both(holder: int) -> None:
    key = settings(SLIPSTREAM_JOB_KEY="5" * 32)
    worlds = open_both(lambda rank: key if rank == holder else settings())
    assert [type(world) for world in worlds] == [AuthError, AuthError], worlds
    assert all("SLIPSTREAM_JOB_KEY" in str(world) for world in worlds), worlds
