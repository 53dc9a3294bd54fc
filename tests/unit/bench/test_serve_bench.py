"""`slipstream bench serve`: its clients against a server here, arithmetic, and words."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.bench.serve.clients import (
    IDLE_SECONDS,
    Connection,
    Load,
    OpenLoop,
    ServeTurn,
    closed_loop,
    memory_of,
)
from slipstream.bench.serve.results import (
    OURS,
    Overload,
    Point,
    ServeReport,
    TurnResult,
    quantile,
)
from slipstream.cli.bench.serve import parse_open
from slipstream.errors import UsageError

REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"

Answer = Callable[[int], Awaitable[int]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """Answer each request with the status that `answer` has for its number; 0 means hang up."""
    numbers = iter(range(1_000_000))
    serving: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readexactly(len(REQUEST)) == REQUEST:
                status = await answer(next(numbers))
                if not status:
                    break
                writer.write(f"HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\nok".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        listening.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def run(answer: Answer, **load: float | int) -> ServeTurn:
    async def asked() -> ServeTurn:
        async with server(answer) as url:
            made = Load(url=url, request="", **load)  # pyright: ignore[reportArgumentType]
            if made.clients:
                return await closed_loop(made, REQUEST)
            return await OpenLoop(made, REQUEST).run()

    return asyncio.run(asked())


async def at_once(_: int) -> int:
    return 200


def test_load_and_turn_come_back_from_their_text():
    load = Load(url="http://a:1", request="file", seconds=2.0, rate=3.5, pid=7)
    assert Load.from_text(load.as_text()) == load
    turn = ServeTurn(
        seconds=1.0, latencies=(0.1,), statuses={200: 1, 0: 2}, lags=(0.0,), memory=(5,)
    )
    assert ServeTurn.from_text(turn.as_text()) == turn


def test_a_closed_loop_waits_for_each_answer():
    async def slowly(_: int) -> int:
        await asyncio.sleep(0.02)
        return 200

    turn = run(slowly, seconds=0.5, clients=3)
    assert set(turn.statuses) == {200}
    assert turn.seconds == pytest.approx(0.4)
    assert len(turn.latencies) <= 3 * 0.4 / 0.02 + 3
    assert min(turn.latencies) >= 0.019


def test_a_closed_loop_fails_with_its_server():
    async def hang_up(_: int) -> int:
        return 0

    with pytest.raises(EOFError):
        run(hang_up, seconds=0.2, clients=1)


def test_an_open_loop_counts_from_when_a_request_should_have_been_sent():
    async def stop_once(number: int) -> int:
        # The server's loop is the clients', so nobody can send meanwhile: omission, if it is not
        # counted from the intended start.
        if number == 20:
            time.sleep(0.3)
        return 200

    turn = run(stop_once, seconds=1.0, rate=200.0)
    assert set(turn.statuses) == {200}
    assert 130 < len(turn.latencies) < 270
    late = sum(each > 0.1 for each in turn.latencies)
    assert late > 20  # two thirds of what was meant to be sent while it stood still
    assert max(turn.lags) > 0.2


def test_an_open_loop_counts_statuses_lost_connections_and_memory():
    async def by_turns(number: int) -> int:
        return (200, 429, 0)[number % 3]

    turn = run(by_turns, seconds=0.5, rate=300.0, pid=os.getpid())
    assert set(turn.statuses) == {200, 429, 0}
    assert len(turn.latencies) == turn.statuses[200]
    assert len(turn.lags) == sum(turn.statuses.values())
    assert len(turn.memory) >= 2
    assert turn.memory[0] == pytest.approx(memory_of(os.getpid()), rel=0.5)


def test_what_is_never_answered_has_no_status(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("slipstream.bench.serve.clients.DRAIN_SECONDS", 0.1)

    async def never(_: int) -> int:
        await asyncio.sleep(60)
        return 200

    turn = run(never, seconds=0.2, rate=100.0)
    assert set(turn.statuses) == {0}
    assert turn.latencies == ()


def test_a_connection_that_was_idle_for_long_is_left():
    async def asked() -> None:
        async with server(at_once) as url:
            loop = OpenLoop(Load(url=url, request="", seconds=1.0), REQUEST)
            used = await Connection.to(url)
            assert await used.ask(REQUEST) == 200
            loop._free.append(used)
            assert await loop._connection() is used
            used.used -= IDLE_SECONDS
            loop._free.append(used)
            other = await loop._connection()
            assert other is not used
            assert used.writer.is_closing()
            other.close()

    asyncio.run(asked())


def overload(statuses: dict[int, int], latencies: tuple[float, ...], **more: int) -> Overload:
    memory = tuple(more.get("begin", 100) for _ in range(8)) + (more.get("end", 100),) * 8
    turn = ServeTurn(
        seconds=2.0, latencies=latencies, statuses=statuses, lags=(0.001,), memory=memory
    )
    return Overload(contender=OURS, rate=10.0, deadline=0.1, turn=turn)


def test_overload_says_who_was_accepted_refused_and_in_time():
    found = overload({200: 3, 504: 1, 429: 5, 503: 1, 0: 2}, (0.05, 0.1, 0.2))
    counts = (found.num_requests, found.num_accepted, found.num_refused, found.num_failed)
    assert counts == (12, 4, 5, 3)
    assert found.kept == 0.5  # a 504 was accepted, and kept nothing
    assert found.useful_rate == 1.0
    assert found.growth == 0
    assert overload({200: 1}, (0.05,), begin=100, end=150).growth == pytest.approx(0.5)
    assert overload({429: 1}, ()).kept == 0


def test_quantiles_of_one_and_of_many():
    assert quantile([3.0], 99) == 3.0
    assert quantile(list(range(101)), 99) == pytest.approx(99)
    assert quantile(list(range(101)), 50) == 50


def report(*, peer: bool = True, **more: int) -> ServeReport:
    def point(contender: str, clients: int, rate: float, p50: float) -> Point:
        turns = tuple(
            TurnResult(rate * part, p50 * part, 2 * p50 * part) for part in (1.0, 2.0, 0.5)
        )
        return Point(contender=contender, clients=clients, turns=turns)

    points = [point(OURS, 0, 500, 0.002), point(OURS, 1, 400, 0.0024), point(OURS, 8, 600, 0.012)]
    if peer:
        points += [point("fastapi", 1, 300, 0.003), point("fastapi", 8, 300, 0.018)]
        points += [point("fastapi x2", 8, 200, 0.024)]
    return ServeReport(
        package="model.slip", engine="onnxruntime fp32", threads=2, points=tuple(points),
        overloads=(overload({200: 3, 429: 2}, (0.01, 0.02, 0.03), **more),),
        snr_db={OURS: 200.0, **({"fastapi": 90.0, "fastapi x2": 90.0} if peer else {})},
        notes=("a note",),
    )  # fmt: skip


def test_bars_compare_turns_of_the_same_round():
    bars = {each.name: each for each in report().bars}
    assert bars["throughput / best peer's, 8 clients"].measured == "2.00"
    assert bars["best peer's p99 / ours, 8 clients"].measured == "1.50"
    assert bars["overhead of serving, p50"].measured == "0.400 ms"
    assert all(each.holds for each in bars.values())
    grown = {each.name: each for each in report(end=120).bars}
    assert not grown["growth of the server's memory"].holds


def test_without_a_peer_nothing_is_compared():
    alone = report(peer=False)
    assert alone.peers == ()
    assert next(each.name for each in alone.bars) == "overhead of serving, p50"
    assert alone.point("fastapi", 8) is None


def test_tables_and_json_say_what_was_measured():
    pytest.importorskip("openvino")
    from slipstream.bench.serve.table import as_json, caption, tables

    console = Console(width=100, record=True, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115
    for table in tables(report()):
        console.print(table)
    console.file.close()
    text = console.export_text()
    for word in ("in process", "600.0", "12.00", "fastapi", "0.400 ms", "100.00%", "target"):
        assert word in text
    assert "fastapi 90" in caption(report())
    content = json.loads(json.dumps(as_json(report(), {"package": Path("a.slip"), "rounds": 3})))
    assert content["spec"] == {"package": "a.slip", "rounds": 3}
    assert content["open"][0]["statuses"] == {"200": 3, "429": 2}
    assert content["added_seconds"] == pytest.approx(0.0004)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html"])
def test_pictures_of_all_kinds_are_drawn(tmp_path: Path, suffix: str):
    pytest.importorskip("altair")
    from slipstream.bench.serve.chart import curve_rows, draw

    rows = curve_rows(report())
    assert {row["clients"] for row in rows} == {1, 8}
    path = tmp_path / "new" / f"curve{suffix}"
    draw(report(), path)
    begin = path.read_bytes()[:200].lstrip()
    assert begin.startswith({".svg": b"<svg ", ".png": b"\x89PNG", ".html": b"<!DOCTYPE"}[suffix])
    if suffix != ".png":
        assert "results per second" in path.read_text()


def test_a_picture_of_another_kind_is_refused():
    pytest.importorskip("altair")
    from slipstream.bench.serve.chart import check_chart

    with pytest.raises(UsageError, match=r"allowed: \.svg, \.png, \.html"):
        check_chart(Path("curve.gif"))


def test_options_are_read():
    assert parse_open("2.5") == (2.5, 60.0)
    assert parse_open("3:0.5") == (3.0, 0.5)
    assert parse_open("2:500ms") == (2.0, 0.5)
    assert parse_open("1:10m") == (1.0, 600.0)
    for text in ("2:", "fast", "2:soon"):
        with pytest.raises(UsageError, match="allowed"):
            parse_open(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"peer": "none", "onnx": Path(__file__)}, "leave onnx out"),
        ({"peer": "none", "clients": ()}, "clients"),
        ({"peer": "none", "clients": (0, 1)}, "clients"),
        ({"peer": "flask"}, "fastapi, none"),
        ({"peer": "none", "rounds": 0}, "at least 1"),
        ({"peer": "none", "deadline": 0.0}, "above 0"),
        ({"onnx": Path("there-is-none.onnx")}, "no file"),
    ],
)
def test_a_spec_that_cannot_be_measured_is_refused(fields: dict[str, object], message: str):
    pytest.importorskip("orjson")
    pytest.importorskip("openvino")
    from slipstream.bench.serve.measure import ServeSpec

    with pytest.raises(UsageError, match=message):
        ServeSpec(package=Path("a.slip"), **fields)  # pyright: ignore[reportArgumentType]


def test_peer_reads_and_writes_what_clients_send():
    np = pytest.importorskip("numpy")
    pytest.importorskip("fastapi")
    from slipstream.bench.serve.peer import inputs_of, response_of
    from slipstream.bench.serve.wire import body_of, tensors_of

    given = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([[1], [2]], np.int64)}
    found = inputs_of(*body_of(given, 0.1))
    assert list(found) == ["a", "b"]
    head, raw = response_of("model", found)
    back = tensors_of(b"".join([head, *raw]), len(head))
    for name, array in given.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
