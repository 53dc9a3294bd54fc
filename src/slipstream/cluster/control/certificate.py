"""The keys of a run: a certificate for its head and its host daemons, and a key for ssh."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

# The clocks of hosts may be wrong by this much. Chosen by hand.
SKEW = datetime.timedelta(days=2)
LONGEST = datetime.timedelta(days=366)


def make_certificate(run: str) -> tuple[str, str]:
    """Return a self-signed certificate for a run and its private key, both in PEM format.

    The key is on the curve P-256; the certificate is valid from two days ago for one year.

    Args:
        run: Identifier of the run, at most 64 characters.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, run[:64])])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LONGEST)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def make_ssh_key() -> tuple[str, str]:
    """Return a private key (Ed25519) and its public key, both in OpenSSH's format."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return private.decode(), public.decode()
