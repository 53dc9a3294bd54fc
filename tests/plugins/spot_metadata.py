"""The metadata service of a spot machine that its cloud takes away: `spot_metadata.py SECONDS`.

It gives a token and the notice, at AWS's address, which this machine must have.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

ADDRESS = "169.254.169.254"
AT = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + float(sys.argv[1])))


class Metadata(BaseHTTPRequestHandler):
    """The answers of the service."""

    def do_PUT(self) -> None:
        """Give the token."""
        asked = self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if asked and self.path == "/latest/api/token" else 400, "a token")

    def do_GET(self) -> None:
        """Give the notice to those who have the token."""
        if self.headers["X-aws-ec2-metadata-token"] != "a token":
            self._answer(401, "")
        elif self.path == "/latest/meta-data/spot/instance-action":
            self._answer(200, f'{{"action": "terminate", "time": "{AT}"}}')
        else:
            self._answer(404, "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())


HTTPServer((ADDRESS, 80), Metadata).serve_forever()
