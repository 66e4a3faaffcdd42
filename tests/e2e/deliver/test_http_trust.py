"""Whom an http sink trusts, and with what: secrets, redirects, certificates."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.sinks.receivers import (
    Do,
    Receiver,
    Request,
    add,
    check_equal,
    make_certificate,
    receiving,
)

import tidelock
from tidelock import Lake
from tidelock.errors import InvalidOption

SECRET = "hunter2-hunter2"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "id BIGINT NOT NULL, place STRING")
    return lake


def everything_written(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())


# Secrets


def authorized(secret: str) -> Any:
    def rule(request: Request) -> Do | None:
        given = request.headers.get("authorization", "")
        if given == f"Bearer {secret}":
            return None
        return Do(401, body=f"who is {given}?".encode())

    return rule


def test_a_token_that_was_changed_is_read_again(
    lake: Lake, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    receiver.rule = authorized("old")
    lake.create_sink(
        "hook", table="t", kind="http", to=receiver.url, token=f"file:{file}", rows_per_chunk=10
    )
    add(lake, 0, 50)

    def rotate(request: Request) -> Do | None:
        if len(receiver.requests) == 2:
            file.write_text(SECRET)
            receiver.rule = authorized(SECRET)
            return receiver.rule(request)
        return authorized("old")(request)

    receiver.rule = rotate
    assert lake.deliver("hook").action == "delivered"
    assert len(receiver.requests) == 6
    check_equal(lake, receiver)


def test_credentials_that_are_wrong_stop_the_partition_and_are_never_shown(
    lake: Lake,
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HOOK_TOKEN", SECRET)
    monkeypatch.setenv("HOOK_KEY", f"key-{SECRET}")
    receiver.rule = lambda request: Do(401, body=json.dumps(request.headers).encode())
    status = lake.create_sink(
        "hook",
        table="t",
        kind="http",
        to=receiver.url,
        token="env:HOOK_TOKEN",
        headers={"X-Api-Key": "env:HOOK_KEY", "X-Plain": "shown"},
    )
    add(lake, 0, 10)
    report = lake.deliver("hook")
    assert report.action == "failed"
    assert "401" in report.reason
    assert len(receiver.requests) == 2
    assert receiver.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert receiver.requests[0].headers["x-api-key"] == f"key-{SECRET}"
    receiver.rule = lambda request: Do(400, body=json.dumps(request.headers).encode() * 100)
    lake.deliver("hook")
    (refused,) = lake.quarantine("hook")
    assert "shown" in refused.answer
    shown = [status, report, lake.sink_status("hook"), refused, *lake.sinks(), caplog.text]
    assert SECRET not in repr(shown) + str(shown)
    assert SECRET.encode() not in everything_written(tmp_path)
    monkeypatch.delenv("HOOK_TOKEN")
    add(lake, 10, 10)
    assert "HOOK_TOKEN" in lake.deliver("hook").reason


def test_basic_authentication_is_sent(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_PAIR", f"ann:{SECRET}")
    lake.create_sink("hook", table="t", kind="http", to=receiver.url, basic_auth="env:HOOK_PAIR")
    add(lake, 0, 10)
    lake.deliver("hook")
    expected = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    assert receiver.requests[0].headers["authorization"] == f"Basic {expected}"


@pytest.mark.parametrize("options", [{"verify": False}, {"token": SECRET}, {"basic_auth": SECRET}])
def test_what_is_unsafe_cannot_be_created(
    lake: Lake, receiver: Receiver, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption) as caught:
        lake.create_sink("hook", table="t", kind="http", to=receiver.url, **options)
    assert SECRET not in str(caught.value)
    assert len(lake.sinks()) == 0


# Redirects


def test_redirects_that_keep_the_method_are_followed_without_credentials_elsewhere(
    lake: Lake, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", SECRET)
    monkeypatch.setenv("HOOK_KEY", SECRET)
    with receiving() as other:
        receiver.rule = lambda request: (
            Do(307, (("Location", "/here"),))
            if request.path == "/rows"
            else Do(308, (("Location", f"{other.url}?signed=1"),))
        )
        lake.create_sink(
            "hook",
            table="t",
            kind="http",
            to=receiver.url,
            token="env:HOOK_TOKEN",
            headers={"Cookie": "env:HOOK_KEY", "X-Plain": "shown"},
        )
        add(lake, 0, 10)
        assert lake.deliver("hook").action == "delivered"
        assert [request.path for request in receiver.requests] == ["/rows", "/here"]
        assert all("authorization" in request.headers for request in receiver.requests)
        (request,) = other.requests
        assert request.headers["x-plain"] == "shown"
        assert SECRET not in str(request.headers)
        assert not {"authorization", "cookie"} & set(request.headers)
        check_equal(lake, other)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Do(307, (("Location", "/rows"),)), "more than 5 times"),
        (
            Do(301, (("Location", "https://u:p@example.com/x?sig=1"),)),
            "leads to https://example.com",
        ),
        (Do(302, (("Location", "/x"),)), "give the address"),
        (Do(303), "303"),
        (Do(308), "without an address"),
        (Do(307, (("Location", "file:///etc/passwd"),)), "without an address"),
        (Do(307, (("Location", "http://[broken/"),)), "without an address"),
    ],
)
def test_redirects_that_lead_nowhere_stop_the_partition(
    lake: Lake, receiver: Receiver, answer: Do, said: str
) -> None:
    receiver.rule = lambda request: answer
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 0, 10)
    report = lake.deliver("hook")
    assert report.action == "failed"
    assert said in report.reason
    assert "sig=" not in report.reason
    assert "u:p@" not in report.reason
    assert len(receiver.requests) <= 6


# TLS


def test_a_certificate_is_verified_and_an_authority_of_ones_own_can_be_named(
    lake: Lake, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    with receiving(certificate) as receiver:
        lake.create_sink("blind", table="t", kind="http", to=receiver.url)
        lake.create_sink(
            "hook", table="t", kind="http", to=receiver.url, ca_file=str(certificate[0])
        )
        elsewhere = receiver.url.replace("127.0.0.1", "localhost")
        lake.create_sink(
            "misnamed", table="t", kind="http", to=elsewhere, ca_file=str(certificate[0])
        )
        add(lake, 0, 10)
        for name in ("blind", "misnamed"):
            report = lake.deliver(name)
            assert report.action == "failed"
            assert "certificate" in report.reason
        assert receiver.requests == []
        assert lake.deliver("hook").action == "delivered"
        check_equal(lake, receiver)
