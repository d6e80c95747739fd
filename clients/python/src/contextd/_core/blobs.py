"""Uploads and downloads in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ..v1 import blob_service_pb2

CHUNK_BYTES = 256 * 1024


def upload(data: bytes, media_type: str) -> Iterator[blob_service_pb2.PutBlobRequest]:
    """The pieces of an upload."""
    header = blob_service_pb2.BlobHeader(
        media_type=media_type, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    yield blob_service_pb2.PutBlobRequest(header=header)
    for start in range(0, len(data), CHUNK_BYTES):
        yield blob_service_pb2.PutBlobRequest(chunk=data[start : start + CHUNK_BYTES])
