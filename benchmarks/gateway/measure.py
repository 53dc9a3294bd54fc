"""The cost of the gateway: one server alone, behind the gateway, and behind nginx.

    python benchmarks/gateway/measure.py model.slip --nginx /usr/sbin/nginx -o results.json

The three take turns, round by round, with closed loops of some clients each. All processes share
the processors of this machine, so the gateway takes time from the server, as it would not on a host
of its own. The program prints one JSON document: for each number of clients, the median over the
rounds of the requests per second and of the percentiles of the latency in milliseconds.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from slipstream.bench.serve.clients import Load, ServeTurn
from slipstream.bench.serve.measure import ServerProcess, started
from slipstream.bench.serve.wire import MODEL, body_of, request_of
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.infer.package.package import read
from slipstream.processor import processor_name

NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream replica {{ server {server}; keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    keepalive_requests 1000000;
    location / {{
      proxy_pass http://replica; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(program: str, server: str, folder: Path) -> Iterator[str]:
    """Start nginx before a server; yield its URL."""
    port = find_free_port_pair()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, server=urlsplit(server).netloc, port=port))
    process = subprocess.Popen([program, "-c", config, "-e", folder / "error.log"])
    try:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def turn(url: str, request: Path, clients: int, seconds: float) -> ServeTurn:
    """Run one closed loop in a process of its own."""
    load = Load(url=url, request=str(request), clients=clients, seconds=seconds)
    with tempfile.TemporaryFile("w+") as file:
        command = [sys.executable, "-m", "slipstream.bench.serve.clients", load.as_text()]
        subprocess.run(command, stdout=file, check=True)
        file.seek(0)
        result = ServeTurn.from_text(file.read())
    assert set(result.statuses) == {200}, result.statuses
    return result


def summary(turns: list[ServeTurn]) -> dict[str, float]:
    """Return the medians over the turns of one contender."""
    rates = [len(each.latencies) / each.seconds for each in turns]
    content = {"requests_per_second": round(statistics.median(rates), 1)}
    for percent in (50, 99):
        values = [percentile(each.latencies, percent) for each in turns]
        content[f"p{percent}_ms"] = round(statistics.median(values) * 1e3, 3)
    return content


def percentile(latencies: tuple[float, ...], percent: int) -> float:
    """Return the latency that a percentage of the requests did not exceed."""
    return sorted(latencies)[min(len(latencies) * percent // 100, len(latencies) - 1)]


def serve_command(package: Path, *more: str) -> list[str]:
    """Return the command that serves a package on a free port."""
    ports = ("--port", "0", "--grpc-port", "-1")
    command = (sys.executable, "-m", "slipstream.cli", "serve", f"{MODEL}={package}")
    return [*command, *ports, "--threads", "1", "--delay", "0ms", *more]


def start_all(
    stack: contextlib.ExitStack, options: argparse.Namespace, folder: Path
) -> dict[str, str]:
    """Start the contenders; return their URLs by name."""

    def start(name: str, *more: str) -> ServerProcess:
        return stack.enter_context(started(name, serve_command(options.package, *more)))

    urls = {"alone": start("alone").url, "gateway": start("gateway", "--replicas", "1:1").url}
    if options.nginx:
        urls["nginx"] = stack.enter_context(nginx(options.nginx, urls["alone"], folder))
    return urls


def main() -> None:
    """Measure all contenders by turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="Package of the model.")
    parser.add_argument("--nginx", help="Program nginx, if it is to be compared.")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=5, help="Number of turns of each contender.")
    parser.add_argument("--seconds", type=float, default=3.0, help="Length of a turn.")
    parser.add_argument("-o", "--output", type=Path, help="File for the result.")
    options = parser.parse_args()
    content: dict[str, object] = {
        "package": options.package.name,
        "processor": processor_name(),
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),  # other work, which latencies feel
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        request = folder / "request"
        request.write_bytes(request_of(*body_of(read(options.package).check.inputs)))
        content["request_bytes"] = request.stat().st_size
        urls = start_all(stack, options, folder)
        for clients in options.clients:
            turns: dict[str, list[ServeTurn]] = {name: [] for name in urls}
            for number in range(options.rounds):
                for name in sorted(urls, reverse=bool(number % 2)):
                    turns[name].append(turn(urls[name], request, clients, options.seconds))
            content[f"{clients} clients"] = {name: summary(each) for name, each in turns.items()}
    text = json.dumps(content, indent=2) + "\n"
    print(text, end="")
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
