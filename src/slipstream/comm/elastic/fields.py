"""The fields of the messages between members, and a check that a message has what it needs.

Only processes with the job key can send messages to members. The check keeps a process that has
another version, or an error, from doing harm in the thread that reads its message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast


def check_fields(values: Mapping[str, Any]) -> None:
    """Check the types of a message's fields, and that it has those that its kind needs.

    Args:
        values: Message as it was sent, in which members and epochs are objects of JSON.

    Raises:
        ValueError: a field is missing or has another type.
    """
    for name, is_right in _TYPES.items():
        if name in values and not is_right(values[name]):
            raise ValueError(f"it sent a message whose {name!r} is {str(values[name])[:40]!r}")
    for kind in ("ask", "say"):
        for name in _NEEDED.get((kind, values.get(kind)), ()):
            if name not in values:
                raise ValueError(f"it sent {values[kind]!r} without {name!r}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return type(value) is int


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_hex(value: object) -> bool:
    digits = "0123456789abcdef"
    return isinstance(value, str) and len(value) % 2 == 0 and not value.strip(digits)


def _is_place(value: object) -> bool:
    if not isinstance(value, str):
        return False
    host, _, port = value.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port[:6]) < 1 << 16


def _is_list(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        return isinstance(value, list) and all(map(is_right, cast("list[object]", value)))

    return check


def _is_object(types: Mapping[str, Callable[[Any], bool]]) -> Callable[[object], bool]:
    """Return a check that a value is an object of JSON with exactly these fields."""

    def check(value: object) -> bool:
        if not isinstance(value, dict):
            return False
        fields = cast("dict[str, object]", value)
        return fields.keys() == types.keys() and all(types[key](fields[key]) for key in types)

    return check


_is_member = _is_object(
    {"uid": _is_text, "host": _is_text, "address": _is_place, "slot": _is_whole}
)
_are_members = _is_list(_is_member)

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "ask": _is_text,
    "say": _is_text,
    "why": _is_text,
    "member": _is_member,
    "epoch": _is_object(
        {
            "number": _is_whole,
            "nonce": _is_text,
            "members": lambda value: bool(value) and _are_members(value),
        }
    ),
    "lost": _is_list(_is_text),
    "leaves": _is_truth,
    "keeps": _is_truth,
    "number": _is_whole,
    "nonce": _is_text,
    "met": _is_truth,
    "engine": _is_hex,
    "addresses": _is_list(_is_hex),
}
_NEEDED: Mapping[tuple[str, object], tuple[str, ...]] = {
    ("ask", "survive"): ("member", "epoch", "lost", "leaves"),
    ("ask", "join"): ("member",),
    ("ask", "leave"): ("member",),
    ("say", "form"): ("epoch", "keeps"),
    ("say", "go"): ("member",),
    ("say", "me"): ("member", "number", "nonce", "met"),
    ("say", "addresses"): ("addresses",),
}
