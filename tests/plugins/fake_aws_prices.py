"""A fake of AWS's Price List API, which moto does not have: it knows the prices of two types."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PRICES = {"g4dn.xlarge": 0.526, "p4d.24xlarge": 32.7726}


class PriceListHandler(BaseHTTPRequestHandler):
    """The answers to GetProducts, one price a page."""

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(size))
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        wanted = {item["Field"]: item["Value"] for item in request["Filters"]}
        names = sorted(PRICES)
        if "instanceType" in wanted:
            names = [name for name in names if name == wanted["instanceType"]]
        page = int(request.get("NextToken", 0))
        products = [json.dumps(product(name)) for name in names[page : page + 1]]
        more = {"NextToken": str(page + 1)} if page + 1 < len(names) else {}
        body = json.dumps({"FormatVersion": "aws_v1", "PriceList": products, **more}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""


def product(name: str) -> Mapping[str, Any]:
    """Return a product in the form in which the Price List has it."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{PRICES[name]:.10f}"}}
    return {
        "product": {"attributes": {"instanceType": name}},
        "terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}},
    }


@contextmanager
def price_list() -> Iterator[str]:
    """Serve prices; yield the address of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), PriceListHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
