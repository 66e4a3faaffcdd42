"""What an http sink may be told, and what it keeps to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidelock.deliver.destinations.http.settings import Credentials, HttpSettings, keeps_credentials
from tidelock.errors import InvalidOption

HTTPS = "https://example.com/rows"
VALUE = "hunter2-value"


@pytest.mark.parametrize(
    "to",
    [
        "ftp://example.com/x",
        "example.com/x",
        "https://",
        "https:///x",
        "https://example.com:99999/x",
        "https://example.com/a b",
        "https://example.com/a\nb",
        "https://example.com/#part",
        "https://example.com/?token=abc",
        "https://example.com/?x=1&api-key=abc",
        "/a/file",
        "",
    ],
)
def test_an_address_that_cannot_be_posted_to_is_refused(to: str) -> None:
    with pytest.raises(InvalidOption):
        HttpSettings.of(to, {})


@pytest.mark.parametrize(
    "options",
    [
        {"token": VALUE},
        {"basic_auth": f"user:{VALUE}"},
        {"headers": {"Authorization": VALUE}},
        {"headers": {"X-Api-Key": VALUE}},
        {"headers": {"Cookie": f"session={VALUE}"}},
        {"headers": {"X-Mine": f"Bearer {VALUE}"}},
    ],
)
def test_a_secret_is_taken_only_as_a_reference_and_never_repeated(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as caught:
        HttpSettings.of(HTTPS, options)
    assert VALUE not in str(caught.value) + repr(caught.value.evidence)


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Content-Type": "text/plain"}},
        {"headers": {"idempotency-key": "x"}},
        {"headers": {"Tidelock-Rows": "1"}},
        {"headers": {"a b": "x"}},
        {"headers": {"X": "a\r\nEvil: 1"}},
        {"headers": {"X": "1", "x": "2"}},
        {"headers": {"X": 1}},
        {"headers": ["X"]},
        {"token": "env:A", "basic_auth": "env:B"},
        {"token": "env:A", "headers": {"authorization": "env:B"}},
        {"timeout": "soon"},
        {"timeout": 0},
        {"timeout": True},
        {"rows_per_chunk": 0},
        {"rows_per_chunk": 5001},
        {"rows_per_chunk": "10"},
        {"rows_per_chunk": True},
        {"ca_file": "there/is/no/such.pem"},
        {"allow_plain_http": "no"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        HttpSettings.of(HTTPS, options)


def test_credentials_go_over_plain_http_only_to_this_machine_or_when_allowed() -> None:
    given = {"token": "env:A"}
    for host in ("127.0.0.1:8000", "127.9.9.9", "localhost", "a.localhost", "[::1]:80"):
        assert HttpSettings.of(f"http://{host}/x", given).has_credentials
    for host in ("example.com", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com"):
        with pytest.raises(InvalidOption, match="plain http"):
            HttpSettings.of(f"http://{host}/x", given)
        with pytest.raises(InvalidOption, match="plain http"):
            HttpSettings.of(f"http://{host}/x", {"headers": {"X-Api-Key": "env:A"}})
        assert HttpSettings.of(f"http://{host}/x", {**given, "allow_plain_http": True})
        assert HttpSettings.of(f"http://{host}/x", {"headers": {"X-Plain": "1"}})


def test_references_are_read_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    settings = HttpSettings.of(
        HTTPS, {"token": f"file:{file}", "headers": {"X-Api-Key": "env:MY_KEY", "X-A": "b"}}
    )
    monkeypatch.setenv("MY_KEY", "k")
    for value in ("first", "second"):
        file.write_text(f"{value}\n")
        found = settings.credentials()
        assert found.headers == {"Authorization": f"Bearer {value}", "X-Api-Key": "k"}
    assert settings.headers == {"X-A": "b"}
    assert "second" not in repr(found)


@pytest.mark.parametrize("value", ["", "two\nlines", "snow ☃", "bell\x07"])
def test_a_secret_that_no_header_can_carry_is_not_repeated(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f"{VALUE}{value}" if value else "")
    with pytest.raises(InvalidOption) as caught:
        HttpSettings.of(HTTPS, {"headers": {"X-Api-Key": "env:MY_KEY"}}).credentials()
    assert VALUE not in str(caught.value)


def test_basic_auth_without_a_colon_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAIR", VALUE)
    with pytest.raises(InvalidOption, match="user:password") as caught:
        HttpSettings.of(HTTPS, {"basic_auth": "env:PAIR"}).credentials()
    assert VALUE not in str(caught.value)


def test_whatever_form_a_secret_is_repeated_in_it_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAIR", 'ann:p"ä/ss')
    monkeypatch.setenv("WHOLE", "Bearer abc.def")
    settings = HttpSettings.of(HTTPS, {"basic_auth": "env:PAIR"})
    found = settings.credentials()
    coded = found.headers["Authorization"].removeprefix("Basic ")
    echoed = f'{coded} ann:p"ä/ss p"ä/ss p\\"ä/ss p\\"\\u00e4/ss p%22%C3%A4/ss p%22%C3%A4%2Fss'
    assert set(found.scrub(echoed).split(" ")) == {"***"}
    whole = HttpSettings.of(HTTPS, {"headers": {"Authorization": "env:WHOLE"}}).credentials()
    assert whole.scrub("you sent abc.def") == "you sent ***"


def test_what_was_secret_before_stays_hidden() -> None:
    earlier, now = Credentials({}, frozenset({"old"})), Credentials({}, frozenset({"new"}))
    assert now.after(earlier).scrub("old and new") == "*** and ***"


@pytest.mark.parametrize(
    ("url", "target", "kept"),
    [
        ("https://a.com/x", "https://a.com/y", True),
        ("https://a.com/x", "https://a.com:443/y", True),
        ("https://a.com/x", "https://A.com/y", True),
        ("http://a.com/x", "https://a.com/x", True),
        ("https://a.com/x", "http://a.com/x", False),
        ("https://a.com/x", "https://b.com/x", False),
        ("https://a.com/x", "https://sub.a.com/x", False),
        ("https://a.com/x", "https://a.com.evil.com/x", False),
        ("https://a.com/x", "https://a.com@evil.com/x", False),
        ("https://a.com/x", "https://a.com:8443/x", False),
        ("http://a.com:8080/x", "https://a.com/x", False),
    ],
)
def test_a_redirect_takes_credentials_only_where_they_were_meant_for(
    url: str, target: str, kept: bool
) -> None:
    assert keeps_credentials(url, target) is kept
