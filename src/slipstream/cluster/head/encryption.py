"""TLS between the head and the host daemons of a run, which share one certificate.

Both sides present the certificate of the run and accept no other one, so nobody without its private
key, which travels only over the engine's own channel, can take part.
"""

from __future__ import annotations

import os
import ssl

from slipstream.cluster.head.placement import RunPlacement


def server_context(placement: RunPlacement) -> ssl.SSLContext:
    """Return the TLS settings of the head."""
    return _context(ssl.PROTOCOL_TLS_SERVER, placement)


def client_context(placement: RunPlacement) -> ssl.SSLContext:
    """Return the TLS settings of a host daemon."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, placement)


def _context(protocol: int, placement: RunPlacement) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is that of the run, not of a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=placement.certificate)
    # OpenSSL reads a chain from files only; this one is in memory.
    with os.fdopen(os.memfd_create("certificate"), "w") as file:
        file.write(placement.certificate + placement.private_key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context
