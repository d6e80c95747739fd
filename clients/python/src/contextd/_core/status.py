"""Reads the error details of a gRPC status."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2 as details
from google.rpc import status_pb2

from ..errors import DOMAIN, FieldViolation, Problem, QuotaViolation

STATUS_DETAILS = "grpc-status-details-bin"
# Codes of errors that may be transient, from any source.
PASSING = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
# Codes that a proxy or a broken connection may cause. With a reason of contextd they are not transient.
BROKEN = frozenset({"INTERNAL", "UNKNOWN", "CANCELLED"})


def problem_of(
    code: grpc.StatusCode, message: str | None, trailers: Iterable[tuple[str, str | bytes]] | None
) -> Problem:
    """Returns the error of a call that did not end with OK."""
    known: dict[str, object] = {}
    for packed in _packed(trailers):
        _read(packed, known)
    return Problem(code=code.name, message=message or "", **known)  # type: ignore[arg-type]


def _packed(trailers: Iterable[tuple[str, str | bytes]] | None) -> Iterable[AnyMessage]:
    for key, value in trailers or ():
        if key == STATUS_DETAILS and isinstance(value, bytes):
            try:
                return list(status_pb2.Status.FromString(value).details)
            except DecodeError:
                return ()
    return ()


def _read(packed: AnyMessage, known: dict[str, object]) -> None:
    info, request = details.ErrorInfo(), details.BadRequest()
    quota, retry = details.QuotaFailure(), details.RetryInfo()
    resource, origin = details.ResourceInfo(), details.RequestInfo()
    if packed.Unpack(info) and info.domain == DOMAIN:
        known |= {"reason": info.reason, "metadata": dict(info.metadata)}
    elif packed.Unpack(request):
        known["fields"] = tuple(FieldViolation(v.field, v.reason, v.description) for v in request.field_violations)
    elif packed.Unpack(quota):
        known["quotas"] = tuple(QuotaViolation(v.subject, v.description) for v in quota.violations)
    elif packed.Unpack(retry):
        known["retry_after"] = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
    elif packed.Unpack(resource):
        known |= {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    elif packed.Unpack(origin):
        known["request_id"] = origin.request_id


def may_pass(problem: Problem) -> bool:
    """Whether a retry of the same request may succeed."""
    return problem.code in PASSING and problem.reason != "PROVIDER_FAILED"


def is_broken_transport(problem: Problem) -> bool:
    """Whether the connection failed, and not the request: the error has no reason of contextd."""
    return problem.code in BROKEN and not problem.reason
