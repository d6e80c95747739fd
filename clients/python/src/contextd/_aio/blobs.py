"""Transfers of stored content, for programs with asyncio."""

from __future__ import annotations

import time

from .._core.blobs import upload
from ..content import Media
from ..v1 import blob_service_pb2
from .transport import Transport


async def put_blob(transport: Transport, data: bytes, media_type: str) -> Media:
    """Stores content and returns a reference to it."""

    async def put(left: float) -> Media:
        stub = transport.pick("BlobService")
        answer = await stub.PutBlob(upload(data, media_type), metadata=transport.metadata, timeout=left)
        return Media(media_type, blob_id=answer.blob.blob_id)

    return await transport.again(put, time.monotonic() + transport.timeout)


async def get_blob(transport: Transport, blob_id: str) -> bytes:
    """Reads stored content."""

    async def get(left: float) -> bytes:
        stub = transport.pick("BlobService")
        request = blob_service_pb2.GetBlobRequest(blob_id=blob_id)
        pieces = stub.GetBlob(request, metadata=transport.metadata, timeout=left)
        return b"".join([piece.chunk async for piece in pieces])

    return await transport.again(get, time.monotonic() + transport.timeout)
