"""Where the server is and how to reach it, from arguments and `CONTEXTD_*` variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:7070"
PORTS = {"http": 7070, "https": 443}


class ConfigurationError(ValueError):
    """The URL or another setting is invalid. The message has its name and the problem."""


@dataclass(frozen=True)
class Settings:
    """How to connect. `targets` has one gRPC target for each host of the URL."""

    url: str
    targets: tuple[str, ...]
    tls: bool
    api_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def settings(
    env: Mapping[str, str],
    url: str | None = None,
    api_key: str | None = None,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
) -> Settings:
    """The settings of the arguments, else those of the environment. Empty variables are ignored."""
    url = url or env.get("CONTEXTD_URL") or _address(env.get("CONTEXTD_ADDRESS")) or DEFAULT_URL
    targets, tls = parse_url(url)
    found = Settings(
        url=url,
        targets=targets,
        tls=tls,
        api_key=key_of(api_key) or key_of(env.get("CONTEXTD_API_KEY")),
        ca_file=ca_file or env.get("CONTEXTD_CA_FILE") or None,
        cert_file=cert_file or env.get("CONTEXTD_CERT_FILE") or None,
        key_file=key_file or env.get("CONTEXTD_KEY_FILE") or None,
    )
    if (found.cert_file is None) != (found.key_file is None):
        raise ConfigurationError("a client certificate takes both cert_file (CONTEXTD_CERT_FILE) and key_file")
    if not tls and (ca_file or cert_file):
        raise ConfigurationError(f"{url} is plain text; certificates take an https:// URL")
    return found


def key_of(text: str | None) -> str | None:
    """An API key without surrounding white space, such as the newline of a file. No message contains a key."""
    key = (text or "").strip()
    for position, character in enumerate(key):
        if not "!" <= character <= "~":
            raise ConfigurationError(
                f"the API key has a character at position {position + 1} of {len(key)} that no key has: "
                "a space, a control character, or one that is not ASCII"
            )
    return key or None


def _address(text: str | None) -> str | None:
    """`CONTEXTD_ADDRESS`, which the command line also reads: its plain-text form has no scheme."""
    return text if not text or "://" in text or text.startswith("dns:") else f"http://{text}"


def parse_url(url: str) -> tuple[tuple[str, ...], bool]:
    """The targets of a URL, and whether TLS is used.

    `http://host:7070`, `https://host`, several hosts by comma (`http://a:7070,b:7070`), or
    `dns:///name:7070` (plain text) and `https+dns:///name:443`, whose addresses are used in turn.
    """
    for prefix, tls in (("dns:///", False), ("http+dns:///", False), ("https+dns:///", True)):
        if url.startswith(prefix):
            return ("dns:///" + with_port(url[len(prefix) :], url, PORTS["https" if tls else "http"]),), tls
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in PORTS:
        raise ConfigurationError(f"{url!r} is not a URL of a server: it begins with http://, https:// or dns:///")
    hosts = [host.removeprefix(f"{scheme}://").strip() for host in rest.split(",")]
    return tuple(f"dns:///{with_port(host, url, PORTS[scheme])}" for host in hosts), scheme == "https"


def with_port(host: str, url: str, default: int) -> str:
    """`host:port`; refuses paths, users and whatever else does not belong there."""
    try:
        parts = urlsplit(f"//{host}")
        port = parts.port or default
    except ValueError as error:
        raise ConfigurationError(f"{url!r}: {error}") from None
    if not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise ConfigurationError(f"{url!r} names a host and a port, nothing else")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{name}:{port}"


@cache
def shared_config() -> Any:
    """`service_config.json`, which the clients of all languages share."""
    return json.loads(resources.files("contextd").joinpath("service_config.json").read_text("utf-8"))


def channel_options(user_agent: str) -> list[tuple[str, Any]]:
    """The options of a gRPC channel."""
    shared = shared_config()
    return [
        ("grpc.service_config", json.dumps(shared["serviceConfig"])),
        ("grpc.enable_retries", 1),
        ("grpc.keepalive_time_ms", shared["keepalive"]["timeMs"]),
        ("grpc.keepalive_timeout_ms", shared["keepalive"]["timeoutMs"]),
        ("grpc.initial_reconnect_backoff_ms", shared["reconnect"]["initialBackoffMs"]),
        ("grpc.min_reconnect_backoff_ms", shared["reconnect"]["connectTimeoutMs"]),
        ("grpc.max_reconnect_backoff_ms", shared["reconnect"]["maxBackoffMs"]),
        ("grpc.dns_min_time_between_resolutions_ms", 2000),
        ("grpc.max_receive_message_length", 64 * 1024 * 1024),
        ("grpc.primary_user_agent", user_agent),
    ]


def call_metadata(settings: Settings) -> list[tuple[str, str]]:
    """The metadata of each call."""
    return [("authorization", f"Bearer {settings.api_key}")] if settings.api_key else []
