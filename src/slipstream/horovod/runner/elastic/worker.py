"""The news about hosts that a process of an elastic job gets."""

from __future__ import annotations

from enum import IntFlag


class HostUpdateResult(IntFlag):
    """Kinds of changes of the hosts."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3
