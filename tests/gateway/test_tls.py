"""Upstreams behind TLS of a private authority, as composed from the settings.

Provenance: attack log row B15; the operator's page ("ca_file").
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.compose.failure import CannotStart
from gateway.compose.upstreams import targets
from gateway.relay.upstream import UpstreamRequest, UpstreamUnavailable
from gateway.settings import InvalidSettings, UpstreamSettings, load

GET = UpstreamRequest(method="GET", target=b"/", headers=((b"host", b"x"),))


def certificate(folder: Path, *, host: str = "127.0.0.1") -> Path:
    """A self-signed certificate for ``host`` with its key, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


async def asked(presented: Path, trusted: Path | None) -> int:
    """The status of a TLS upstream that presents one certificate and is asked with another."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(presented)
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        settings = UpstreamSettings(address=f"https://127.0.0.1:{port}", ca_file=trusted)
        pool = targets({"portal": settings}, {"portal"})["portal"].transport()
        try:
            response = await pool.request(GET)
            await response.aclose()
            return response.status
        finally:
            await pool.aclose()


def test_upstream_is_believed_by_its_own_authority_only(tmp_path: Path) -> None:
    """The configured one and the right name; neither the system's trust nor another name do."""
    own, other = certificate(tmp_path), certificate(tmp_path, host="127.0.0.2")
    assert asyncio.run(asked(own, own)) == 200
    for presented, trusted in ((own, None), (own, other), (other, other)):
        with pytest.raises(UpstreamUnavailable):
            asyncio.run(asked(presented, trusted))


def test_authorities_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    """At composition, not at the first request of a caller."""
    (tmp_path / "empty.pem").write_text("no certificate")
    for path in (tmp_path / "empty.pem", tmp_path / "none.pem"):
        settings = UpstreamSettings(address="https://upstream.example", ca_file=path)
        with pytest.raises(CannotStart) as caught:
            targets({"portal": settings}, {"portal"})
        assert caught.value.code == "ca_unusable"
        assert str(path) in caught.value.reason


def test_authorities_are_named_beside_the_file_and_for_tls_only(tmp_path: Path) -> None:
    """A relative path belongs to the settings file; with plain HTTP it would check nothing."""
    path = tmp_path / "gateway.toml"
    path.write_text('[upstreams.a]\naddress = "https://a.example"\nca_file = "ca.pem"\n')
    assert load(path, {}).upstreams["a"].ca_file == tmp_path / "ca.pem"
    path.write_text('[upstreams.a]\naddress = "http://127.0.0.1:1"\nca_file = "ca.pem"\n')
    with pytest.raises(InvalidSettings) as caught:
        load(path, {})
    assert "https://" in caught.value.faults[0].reason
