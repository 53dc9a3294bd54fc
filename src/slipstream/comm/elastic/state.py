"""What an elastic job must not lose: the state that all ranks have in common."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from slipstream.comm.elastic.objects import broadcast_object
from slipstream.comm.elastic.session import session
from slipstream.errors import UsageError
from slipstream.steps import report_step


class ElasticState:
    """State of training that is the same on all ranks, and that survives lost ranks.

    A subclass says how the state is captured, restored and sent. Two commits are kept, because a
    fault may find some ranks after a commit that others have not reached; then all go back to the
    one before it.
    """

    def __init__(self) -> None:
        self.num_commits = 0
        self.num_checks = 0  # since the members have changed
        self._kept: dict[int, Any] = {}
        self._callbacks: list[Callable[[], None]] = []

    @property
    def keeps_two_commits(self) -> bool:
        """Whether forget_after() works; if not, all get rank 0's state after a fault (True)."""
        return True

    def capture(self) -> Any:
        """Return a copy of the state, which later changes of the state leave as it is."""
        raise NotImplementedError

    def apply(self, captured: Any) -> None:
        """Set the state to one that capture() has returned."""
        raise NotImplementedError

    def share(self) -> None:
        """Give the state of rank 0 to all ranks, which call this method together."""
        raise NotImplementedError

    def commit(self) -> None:
        """Keep the present state, to which a fault leads back, and let members come and go.

        All ranks commit at the same step. Call it after every step, or less often if the copy of
        the state takes long; a fault repeats the steps since the last commit.

        Raises:
            MembershipChanged: the members change now; `elastic.run` handles it.
        """
        self.save()
        self.check()

    def save(self) -> None:
        """Keep the present state, without a look at the members."""
        captured = (
            self.capture()
        )  # may fail, if updates of the last step still wait for a lost rank
        last = self._kept.get(self.num_commits)
        self._kept = {} if last is None else {self.num_commits: last}
        self.num_commits += 1
        self._kept[self.num_commits] = captured
        report_step(self.num_commits)

    def check(self) -> None:
        """Let members come and go, without a commit. All ranks call it at the same step.

        Raises:
            MembershipChanged: the members change now; `elastic.run` handles it.
        """
        self.num_checks += 1
        self.note()
        session().check()

    def begin_checks(self) -> None:
        """Count checks from 0, as all ranks do when the members have changed."""
        self.num_checks = 0
        self.note()

    def note(self) -> None:
        """Take note of the present state, if that costs no copy of it (default: does nothing)."""

    def is_as_noted(self) -> bool:
        """Return whether nothing was applied to the state since note() (default: False).

        If this is so on all ranks after a fault, they keep their state, and only the step that was
        interrupted is repeated.
        """
        return False

    def return_to_note(self) -> None:
        """Set what is_as_noted() does not look at to its values at note()."""

    def forget_after(self, commit: int) -> None:
        """Forget the commits that other ranks do not have.

        Args:
            commit: Number of the last commit that all ranks have: this rank's last one, or the one
                before it.
        """
        if commit not in self._kept:
            raise UsageError(
                f"commit {commit} is not kept; allowed: {sorted(self._kept) or 'none yet'}"
            )
        self.num_commits = commit
        self._kept = {commit: self._kept[commit]}

    def restore(self) -> None:
        """Go back to the last commit."""
        if self.num_commits not in self._kept:
            raise UsageError("there is no commit to go back to; call commit() first")
        self.apply(self._kept[self.num_commits])

    def sync(self) -> None:
        """Give the state of rank 0 to all ranks, and keep it as a commit with rank 0's number."""
        self.num_commits = broadcast_object(self.num_commits)
        self.share()
        self._kept = {self.num_commits: self.capture()}

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Add functions that are called when the members have changed, before the state is sent.

        A typical one sets the learning rate for the new number of ranks.
        """
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Call the functions of register_reset_callbacks()."""
        for callback in self._callbacks:
            callback()


class ObjectState(ElasticState):
    """State of plain values, which are attributes of the object.

    Args:
        values: Values by name: numbers, texts, arrays of NumPy, and lists and dictionaries of them.
            They are copied deeply at each commit.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self._names = tuple(values)
        for name, value in values.items():
            setattr(self, name, value)
        self._kept = {0: self.capture()}

    def capture(self) -> dict[str, Any]:
        """Return a deep copy of the values."""
        return {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def apply(self, captured: dict[str, Any]) -> None:
        """Set the values to a deep copy of captured ones."""
        for name, value in captured.items():
            setattr(self, name, copy.deepcopy(value))

    def share(self) -> None:
        """Give the values of rank 0 to all ranks."""
        self.apply(broadcast_object(self.capture()))
