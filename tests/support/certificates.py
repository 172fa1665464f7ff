"""Certificates for tests, made by openssl: a CA, and what it signs, as Secrets hold them."""

import subprocess
from pathlib import Path


def make_ca(directory: Path, name: str) -> None:
    """Make a CA: ca.crt and ca.key in a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    _openssl(
        *("req", "-x509", "-nodes", "-newkey", "rsa:2048", "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.crt")),
    )


def sign(ca: Path, directory: Path, name: str) -> None:
    """Make tls.crt and tls.key, signed by a CA for a DNS name, and put ca.crt beside them, as cert-manager does."""
    directory.mkdir(parents=True, exist_ok=True)
    request, extensions = directory / "tls.csr", directory / "extensions"
    extensions.write_text(f"subjectAltName=DNS:{name}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _openssl(
        *("req", "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={name}"),
        *("-keyout", str(directory / "tls.key"), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-days", "2", "-in", str(request), "-extfile", str(extensions)),
        *("-CA", str(ca / "ca.crt"), "-CAkey", str(ca / "ca.key"), "-CAcreateserial"),
        *("-out", str(directory / "tls.crt")),
    )
    (directory / "ca.crt").write_bytes((ca / "ca.crt").read_bytes())


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
