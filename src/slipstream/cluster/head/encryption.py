"""TLS between the head and the host daemons of a run, which share one certificate.

Both sides present the certificate of the run and accept no other one, so nobody without its private
key, which travels only over the engine's own channel, can take part.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from slipstream.cluster.head.placement import Placement

CERTIFICATE_NAME = "certificate.pem"
KEY_NAME = "key.pem"


def server_context(placement: Placement, folder: Path) -> ssl.SSLContext:
    """Return the TLS settings of the head."""
    return _context(ssl.PROTOCOL_TLS_SERVER, placement, folder)


def client_context(placement: Placement, folder: Path) -> ssl.SSLContext:
    """Return the TLS settings of a host daemon."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, placement, folder)


def _context(protocol: int, placement: Placement, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is that of the run, not of a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=placement.certificate)
    certificate, key = folder / CERTIFICATE_NAME, folder / KEY_NAME
    for path, text in ((certificate, placement.certificate), (key, placement.private_key)):
        path.touch(mode=0o600)
        path.write_text(text)
    context.load_cert_chain(certificate, key)
    return context
