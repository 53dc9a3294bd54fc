"""Changed copies of real messages, drawn from a seed: what parsers may get from broken peers."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

STRANGE_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 10**30, "", "x", "9" * 300, "-1", "::1:99999"),
    *([], {}, [[]], [None], {"x": 1}, ["00", "zz"], [{"uid": 1}]),
)


def changed_bytes(message: bytes, rng: random.Random) -> bytes:
    """Return a message with a few bits, bytes or pieces that differ."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 40))
            case _:
                data[at:at] = data[: rng.randrange(1, 200)]
    return bytes(data)


def places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a value of JSON, with each of its keys or indices."""
    if isinstance(values, dict | list):
        keys = list(values) if isinstance(values, dict) else range(len(values))
        for key in keys:
            yield values, key
            yield from places(values[key])


def changed_values(values: Any, rng: random.Random) -> Any:
    """Return a value of JSON in which some parts are gone or have other values and types."""
    values = copy.deepcopy(values)
    for _ in range(rng.choice((1, 1, 1, 3))):
        at = list(places(values))
        if not at:
            break
        container, key = rng.choice(at)
        if rng.random() < 0.2:
            del container[key]
        elif isinstance(container[key], str) and rng.random() < 0.3:
            text = container[key].encode()
            container[key] = changed_bytes(text, rng).decode("utf-8", "replace")
        else:
            container[key] = copy.deepcopy(rng.choice(STRANGE_VALUES))
    return values


def changed_json(text: bytes, rng: random.Random) -> bytes:
    """Return a text of JSON with other values, or with other bytes, or nested very deeply."""
    draw = rng.random()
    if draw < 0.02:
        return b"[" * 5000
    if draw < 0.3:
        return changed_bytes(text, rng)
    return json.dumps(changed_values(json.loads(text), rng)).encode()


def sweep(
    messages: list[bytes], change: Callable[[bytes, random.Random], bytes], count: int, seed: int
) -> Iterator[bytes]:
    """Yield `count` changed copies of the messages, the same ones for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield change(rng.choice(messages), rng)
