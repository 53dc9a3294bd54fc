"""The state that scripts for FastGPU set for all that follows, as FastGPU's module of this name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ScriptState:
    """The state of one script.

    Attributes:
        backend: Name of the provider.
        disable_nas: Whether groups get no network file system.
        skip_setup: Whether the install scripts of machines are skipped.
    """

    backend: str = "aliyun"
    disable_nas: bool = False
    skip_setup: bool = False


# FastGPU's interface is functions of a module, so their state is one of the module.
state = ScriptState()


def set_should_disable_nas(value: bool = True) -> None:
    """Set whether groups that are made from now on get no network file system."""
    state.disable_nas = value


def should_disable_nas() -> bool:
    """Return whether groups get no network file system."""
    return state.disable_nas


def set_should_skip_setup(value: bool = True) -> None:
    """Set whether the install scripts of machines are skipped from now on."""
    state.skip_setup = value


def should_skip_setup() -> bool:
    """Return whether the install scripts of machines are skipped."""
    return state.skip_setup
