"""How each proxy asks, from an address of its own on loopback."""

from __future__ import annotations

import socket

from tests.gateway.stage import Reply, Stage, parse

ADDRESSES = {
    "nginx": "127.0.0.11",
    "envoy": "127.0.0.12",
    "traefik": "127.0.0.13",
    "caddy": "127.0.0.13",
    "balancer": "127.0.0.14",
    "stranger": "127.0.0.15",
}
WORDS = {
    "nginx": ("X-Original-Method", "X-Original-URI", "X-Original-Host"),
    "envoy": ("X-Ext-Authz-Method", "X-Ext-Authz-Path", "X-Ext-Authz-Host"),
    "traefik": ("X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"),
    "caddy": ("X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"),
}
DIALECTS = tuple(WORDS)


def told(dialect: str, method: str, target: str, host: str = "portal.test") -> list[str]:
    """The three header lines of a dialect."""
    values = (method, target, host)
    return [f"{name}: {value}" for name, value in zip(WORDS[dialect], values, strict=True)]


def send(
    stage: Stage, path: str, lines: list[str], *, source: str, verb: str = "GET", body: bytes = b""
) -> Reply:
    """The gateway's answer to one request from an address."""
    head = [f"{verb} {path} HTTP/1.1", "Host: gateway.test", "Connection: close", *lines]
    raw = "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
    received = b""
    with socket.create_connection(("127.0.0.1", stage.port), 10, (source, 0)) as sock:
        sock.sendall(raw)
        while piece := sock.recv(65536):
            received += piece
    (reply,) = parse(received)
    return reply


def decide(
    stage: Stage,
    dialect: str,
    target: str,
    *more: str,
    method: str = "GET",
    audience: str = "",
    source: str = "",
    verb: str = "GET",
) -> Reply:
    """The decision over a forwarded request, asked as this dialect's proxy asks."""
    lines = [*told(dialect, method, target), *more]
    if audience:
        lines.append(f"Authorization: Bearer {stage.issuers.token(audience)}")
    source = source or ADDRESSES[dialect]
    return send(stage, f"/-/authz/{dialect}", lines, source=source, verb=verb)
