"""Which replica gets a request, when it is sent again, and when it is refused."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

pytest.importorskip("starlette")

from slipstream.serve.gateway.dispatcher import Dispatcher, DispatchLimits
from slipstream.serve.gateway.replica_server import ReplicaServer, ReplicaState
from slipstream.serve.gateway.upstream import AnswerLateError, ReplicaLostError
from slipstream.serve.refusals import Reason, RequestRefusedError

LIMITS = DispatchLimits(seconds=60.0, start_seconds=60.0, open_each=2, waiting=3)
REFUSAL = "refusal"


class Replicas:
    """Replicas whose answers are a script; without one, they answer when they are told to."""

    def __init__(self, names: str, limits: DispatchLimits = LIMITS) -> None:
        self.retries: Counter[str] = Counter()
        self.dispatcher = Dispatcher(
            limits, lambda: ("all are busy", 2.0), lambda reason: self.retries.update([reason])
        )
        self.dispatcher.replicas += [
            ReplicaServer(name, 1, 0.0, ReplicaState.READY) for name in names
        ]
        self.asked: list[str] = []
        self.held: list[asyncio.Future[str]] = []

    def __getitem__(self, name: str) -> ReplicaServer:
        return next(each for each in self.dispatcher.replicas if each.name == name)

    def ask(
        self, script: Sequence[str | Exception] = (), timeout: float | None = None
    ) -> asyncio.Task[str]:
        """Send a request, whose attempts have these results."""
        exchange = ScriptedExchange(self, list(script), timeout)
        return asyncio.get_running_loop().create_task(self.dispatcher.answer(exchange))


class ScriptedExchange:
    """A request whose attempts have given results."""

    def __init__(
        self, replicas: Replicas, script: list[str | Exception], timeout: float | None
    ) -> None:
        self._replicas, self._script, self._timeout = replicas, script, timeout
        self.begin = asyncio.get_running_loop().time()

    def own_timeout(self) -> float | None:
        return self._timeout

    async def send(self, replica: ReplicaServer, deadline: float) -> str:
        self._replicas.asked.append(replica.name)
        if not self._script:
            future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._replicas.held.append(future)
            return await future
        result = self._script.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    def is_refusal(self, answer: str) -> bool:
        return answer == REFUSAL


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in an event loop; fail if it hangs."""
    asyncio.run(asyncio.wait_for(test(), 60))


async def settle() -> None:
    """Let all tasks go on until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_the_replica_with_the_fewest_requests_is_asked() -> None:
    async def test() -> None:
        replicas = Replicas("abc")
        tasks = [replicas.ask() for _ in range(6)]
        await settle()
        assert Counter(replicas.asked) == {"a": 2, "b": 2, "c": 2}
        replicas.held[replicas.asked.index("b")].set_result("1")
        await settle()
        tasks.append(replicas.ask())
        await settle()
        assert replicas.asked[-1] == "b"
        for future in replicas.held:
            if not future.done():
                future.set_result("2")
        assert sorted(await asyncio.gather(*tasks)) == ["1", *"222222"]
        assert replicas.dispatcher.open == 0
        assert [each.open for each in replicas.dispatcher.replicas] == [0, 0, 0]

    run(test)


def test_a_lost_request_goes_to_another_replica_and_the_lost_one_is_suspect() -> None:
    async def test() -> None:
        replicas = Replicas("ab")
        assert await replicas.ask([ReplicaLostError("gone"), "answer"]) == "answer"
        assert sorted(replicas.asked) == ["a", "b"]
        lost = replicas[replicas.asked[0]]
        assert lost.state is ReplicaState.SUSPECT
        assert lost.suspected.is_set()
        assert lost.lost == 1
        assert replicas.retries == {"lost": 1}
        assert await replicas.ask(["answer"]) == "answer"
        assert replicas.asked[-1] != lost.name

    run(test)


def test_a_lost_request_waits_until_a_replica_is_ready_again() -> None:
    async def test() -> None:
        replicas = Replicas("a")
        task = replicas.ask([ReplicaLostError("stale"), "answer"])
        await settle()
        assert replicas.dispatcher.waiting == 1
        assert replicas.dispatcher.wanted.is_set()
        replicas["a"].state = ReplicaState.READY
        replicas.dispatcher.wake()
        assert await task == "answer"

    run(test)


def test_a_request_that_ends_replica_after_replica_is_given_up() -> None:
    async def test() -> None:
        replicas = Replicas("abcdefg")
        with pytest.raises(RequestRefusedError, match="5 replicas ended") as error:
            await replicas.ask([ReplicaLostError("gone")] * 7)
        assert error.value.reason is Reason.FAILED
        assert len(set(replicas.asked)) == 5

    run(test)


def test_a_refusal_is_tried_once_elsewhere_and_then_passed_on() -> None:
    async def test() -> None:
        replicas = Replicas("abc")
        assert await replicas.ask([REFUSAL, "answer"]) == "answer"
        assert await replicas.ask([REFUSAL, REFUSAL, "answer"]) == REFUSAL
        assert replicas.retries == {"refused": 2}
        for each in replicas.dispatcher.replicas:
            each.open = 1
        assert await replicas.ask([REFUSAL, "answer"]) == REFUSAL  # the others are as busy
        only = Replicas("a")
        assert await only.ask([REFUSAL, "answer"]) == REFUSAL
        assert only.dispatcher.waiting == 0

    run(test)


@pytest.mark.parametrize("state", [each for each in ReplicaState if each is not ReplicaState.READY])
def test_a_replica_that_is_not_ready_gets_nothing(state: ReplicaState) -> None:
    async def test() -> None:
        replicas = Replicas("ab")
        replicas["a"].state = state
        for _ in range(2):
            await replicas.ask(["answer"])
        assert replicas.asked == ["b", "b"]

    run(test)


def test_requests_wait_in_order_and_too_many_are_refused_with_a_reason() -> None:
    async def test() -> None:
        replicas = Replicas("a")
        tasks = [replicas.ask() for _ in range(5)]
        await settle()
        assert replicas.dispatcher.waiting == 3
        with pytest.raises(RequestRefusedError, match="3 requests wait, and no more") as error:
            await replicas.ask()
        assert "all are busy" in str(error.value)
        assert error.value.reason is Reason.UNAVAILABLE
        assert error.value.retry_after == 2.0
        for number in range(5):
            replicas.held[number].set_result(str(number))
            await settle()
        assert await asyncio.gather(*tasks) == list("01234")

    run(test)


def test_a_request_waits_no_longer_than_it_may() -> None:
    async def test() -> None:
        replicas = Replicas("", DispatchLimits(seconds=0.01, start_seconds=0.02))
        with pytest.raises(RequestRefusedError, match="no replica was free in time: all are"):
            await replicas.ask()
        patient = Replicas("")
        with pytest.raises(RequestRefusedError, match="no replica was free in time"):
            await patient.ask(timeout=0.01)
        assert patient.dispatcher.waiting == 0

    run(test)


def test_an_answer_that_is_late_is_a_refusal() -> None:
    async def test() -> None:
        with pytest.raises(RequestRefusedError, match="no replica answered in time") as error:
            await Replicas("a").ask([AnswerLateError("late")])
        assert error.value.reason is Reason.LATE

    run(test)


@pytest.mark.parametrize("is_woken", [False, True])
def test_a_request_whose_client_hangs_up_while_it_waits_leaves_its_place(is_woken: bool) -> None:
    async def test() -> None:
        replicas = Replicas("a")
        replicas["a"].state = ReplicaState.SUSPECT
        gone, next_one = replicas.ask(["gone"]), replicas.ask(["answer"])
        await settle()
        replicas["a"].state = ReplicaState.READY
        replicas["a"].open = 1  # there is room for one more
        if is_woken:
            replicas.dispatcher.wake()
        gone.cancel()
        if not is_woken:
            await settle()
            replicas.dispatcher.wake()
        assert await next_one == "answer"
        assert replicas["a"].open == 1
        assert replicas.dispatcher.open == replicas.dispatcher.waiting == 0

    run(test)
