"""The parts of channels for both APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from .._version import __version__
from ..v1.blob_service_pb2_grpc import BlobServiceStub
from ..v1.context_service_pb2_grpc import ContextServiceStub
from ..v1.model_service_pb2_grpc import ModelServiceStub
from ..v1.queue_service_pb2_grpc import QueueServiceStub
from ..v1.session_service_pb2_grpc import SessionServiceStub
from ..v1.turn_service_pb2_grpc import TurnServiceStub
from .settings import Settings, channel_options

USER_AGENT = f"contextd-python/{__version__}"
STUBS: dict[str, Any] = {
    "BlobService": BlobServiceStub,
    "ContextService": ContextServiceStub,
    "ModelService": ModelServiceStub,
    "QueueService": QueueServiceStub,
    "SessionService": SessionServiceStub,
    "TurnService": TurnServiceStub,
}


def options() -> list[tuple[str, Any]]:
    """The options of a channel. Clients do not share connections."""
    return [*channel_options(USER_AGENT), ("grpc.use_local_subchannel_pool", 1)]


def credentials(settings: Settings) -> grpc.ChannelCredentials | None:
    """The TLS credentials; `None` for plain text."""
    if not settings.tls:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=_read(settings.ca_file),
        private_key=_read(settings.key_file),
        certificate_chain=_read(settings.cert_file),
    )


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
