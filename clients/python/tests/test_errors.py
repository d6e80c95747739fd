"""Refusals of the server as exceptions."""

from __future__ import annotations

import inspect

import grpc
import pytest

from contextd import ApiError, AsyncContextd, AsyncSession, Contextd, Session, errors
from contextd._core.status import problem_of
from contextd.errors import Problem, error_of
from contextd.v1 import error_pb2


def test_every_reason_has_a_class() -> None:
    known = {name.removeprefix("ERROR_REASON_") for name in error_pb2.ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118
    assert set(errors.BY_REASON) == known


def test_an_unknown_reason_goes_by_its_code() -> None:
    error = error_of(Problem("NOT_FOUND", "gone", reason="NEWER_THAN_THIS"))
    assert type(error) is errors.NotFoundError
    assert error.reason == "NEWER_THAN_THIS"
    assert type(error_of(Problem("UNKNOWN", "?"))) is ApiError


def test_a_status_without_details_is_read() -> None:
    problem = problem_of(grpc.StatusCode.UNAVAILABLE, None, None)
    assert (problem.code, problem.reason, problem.message) == ("UNAVAILABLE", "", "")


def test_fields_that_are_wrong_are_listed(client: Contextd) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        client.session("not valid", limits={"max_steps": 5000})
    error = caught.value
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    assert {(each.field, each.reason) for each in error.fields} >= {("session.limits.max_steps", "OUT_OF_RANGE")}


def test_what_is_not_there_is_named(client: Contextd) -> None:
    session = client.session()
    with pytest.raises(errors.NotFoundError) as caught:
        session.turn("01a209ad-e498-7015-8757-37cccabbf574")
    assert isinstance(caught.value, errors.TurnNotFoundError)
    assert caught.value.resource[1]
    with pytest.raises(errors.ModelNotFoundError):
        client.session(model="none/such")


def test_a_full_queue_says_when_to_come_back(client: Contextd) -> None:
    from contextd.v1 import policy_pb2

    overrides = policy_pb2.Policy(queue=policy_pb2.QueuePolicy(max_pending=1))
    session = client.session(policy_overrides=overrides)
    session.send("one")
    with pytest.raises(errors.QueueFullError) as caught:
        session.send("two")
    assert caught.value.metadata == {"limit": "1"}
    assert caught.value.retry_after is not None
    assert caught.value.quotas


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with Contextd("http://127.0.0.1:1", timeout=3) as lost, pytest.raises(errors.UnavailableError):
        lost.session()


def test_a_run_is_given_up_after_its_time(client: Contextd) -> None:
    session = client.session()
    with Contextd("http://127.0.0.1:1", reconnect_for=0.5) as lost:
        session._host = lost._host
        with pytest.raises(errors.UnavailableError):
            session.run("hello").result()


@pytest.mark.parametrize(("sync", "asynchronous"), [(Contextd, AsyncContextd), (Session, AsyncSession)])
def test_both_faces_have_the_same_methods(sync: type, asynchronous: type) -> None:
    def methods(face: type) -> dict[str, list[str]]:
        found = inspect.getmembers(face, inspect.isfunction)
        return {name: list(inspect.signature(each).parameters) for name, each in found if not name.startswith("_")}

    assert methods(sync) == methods(asynchronous)
