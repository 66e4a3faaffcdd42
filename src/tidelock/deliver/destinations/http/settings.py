"""What an http sink is told: its address and options, checked, and its credentials.

Invariants: what is secret is kept as a reference and read when it is used; credentials go over
plain http only to this machine, unless that was allowed in so many words; certificates are always
verified, and there is no option for it.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from tidelock.errors import Advice, InvalidOption
from tidelock.model.time.durations import in_seconds, parse_duration
from tidelock.store.secrets import is_reference, is_secret, refer_to, resolve

ROWS_PER_CHUNK_MAX = 5000
TIMEOUT_SECONDS = 60.0
HIDDEN = "***"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SCHEME = re.compile(r"(bearer|basic|digest|token)\s", re.IGNORECASE)
_OURS = frozenset(
    {"content-type", "content-length", "content-encoding", "transfer-encoding", "connection"}
    | {"host", "idempotency-key", "expect", "te", "trailer", "upgrade"}
)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What tells the destination who sends. Never shown, never kept."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    def scrub(self, text: str) -> str:
        """Text of the destination's, without the secrets that it may have repeated."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    @property
    def longest(self) -> int:
        return max((len(secret) for secret in self.secrets), default=0)

    def after(self, earlier: Credentials) -> Credentials:
        """These, that hide also what was secret before."""
        return Credentials(self.headers, self.secrets | earlier.secrets)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The options of an http sink, checked."""

    to: str
    headers: dict[str, str]
    """Headers of the user's that are no secret."""
    references: dict[str, str]
    """Where the secret headers are found, by name."""
    token: str | None
    basic_auth: str | None
    ca_file: str | None
    timeout_seconds: float
    rows_per_chunk: int

    @classmethod
    def of(cls, to: str, options: Mapping[str, Any]) -> HttpSettings:
        """InvalidOption for an address or an option that cannot be used."""
        parts = _check_address(to)
        headers = _check_headers(options.get("headers", {}))
        secret = {name for name, value in headers.items() if is_secret(name) or is_reference(value)}
        settings = cls(
            to,
            {name: value for name, value in headers.items() if name not in secret},
            {name: headers[name] for name in secret},
            _check_reference("token", options.get("token")),
            _check_reference("basic_auth", options.get("basic_auth")),
            _check_ca(options.get("ca_file")),
            _check_timeout(options.get("timeout", TIMEOUT_SECONDS)),
            _check_rows(options.get("rows_per_chunk", ROWS_PER_CHUNK_MAX)),
        )
        allowed = options.get("allow_plain_http", False)
        if not isinstance(allowed, bool):
            raise InvalidOption(f"allow_plain_http={allowed!r} is neither True nor False.")
        settings._check_authorization()
        if settings.has_credentials and not allowed and not _is_private(parts):
            raise InvalidOption(
                f"{to} would get credentials over plain http, where anybody on the way can read "
                "them. Use https.",
                Advice(
                    "Or say allow_plain_http=True if the way is safe.",
                    "Or say --option allow_plain_http=true if the way is safe.",
                ),
                to=to,
            )
        return settings

    @property
    def has_credentials(self) -> bool:
        return bool(self.token or self.basic_auth or self.references)

    def _check_authorization(self) -> None:
        given = [name for name in ("token", "basic_auth") if getattr(self, name)]
        given += [f"headers[{name!r}]" for name in self.references if _is_authorization(name)]
        if len(given) > 1:
            raise InvalidOption(
                f"{' and '.join(given)} each say who sends. Give one of them.", options=given
            )

    def credentials(self) -> Credentials:
        """What the references stand for now; InvalidOption when that cannot be found or used."""
        headers: dict[str, str] = {}
        secrets: set[str] = set()
        for name, value in resolve(self.references).items():
            headers[name] = value
            # Of `Bearer abc` the second word is the secret.
            secrets |= {value, _SCHEME.sub("", value, count=1).strip()}
        if self.token is not None:
            token = resolve({"token": self.token})["token"]
            headers["Authorization"] = f"Bearer {token}"
            secrets.add(token)
        if self.basic_auth is not None:
            pair = resolve({"basic_auth": self.basic_auth})["basic_auth"]
            if ":" not in pair:
                raise InvalidOption(
                    "What basic_auth refers to has no colon in it. Write user:password into the "
                    "variable or the file.",
                    option="basic_auth",
                )
            coded = base64.b64encode(pair.encode()).decode("ascii")
            headers["Authorization"] = f"Basic {coded}"
            secrets |= {pair, coded, pair.partition(":")[2]}
        for name, value in headers.items():
            if not value or not _VALUE.fullmatch(value):
                raise InvalidOption(
                    f"What is referred to for header {name!r} is empty, has a line end in it, or "
                    "has signs that no header can carry. Look at the variable or the file.",
                    header=name,
                )
        return Credentials(headers, frozenset(_spellings(secrets)))


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or ""), parts.port or (443 if scheme == "https" else 80)


def keeps_credentials(url: str, target: str) -> bool:
    """Whether a redirect stays where credentials were meant for."""
    (scheme, host, port), (to_scheme, to_host, to_port) = origin(url), origin(target)
    if host != to_host:
        return False
    if (scheme, port) == (to_scheme, to_port):
        return True
    return (scheme, port) == ("http", 80) and (to_scheme, to_port) == ("https", 443)


def _spellings(secrets: set[str]) -> set[str]:
    """The forms in which an answer may repeat a secret."""
    found = set(secrets)
    for secret in secrets:
        found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        found |= {quote(secret), quote(secret, safe="")}
    return found - {""}


def _check_address(to: str) -> SplitResult:
    try:
        parts = urlsplit(to)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or re.search(r"[\s\x00-\x1f\x7f]", to) or parts.fragment:
        raise InvalidOption(
            f"to={to!r} is no address that can be posted to. Write it as https://host/path.", to=to
        )
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if is_secret(name):
            raise InvalidOption(
                f"The address in `to` holds the secret {name!r}, which would be kept in the lake. "
                f"Send it as a header instead: headers={{'X-Name': 'env:NAME'}}.",
                parameter=name,
            )
    return parts


def _check_headers(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise InvalidOption("headers is not a mapping of names to values.")
    found: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption(f"{name!r} cannot be the name of a header.", header=str(name))
        folded = name.lower()
        if folded in _OURS or folded.startswith("tidelock-"):
            raise InvalidOption(f"Header {name!r} is set by the sink itself.", header=name)
        if folded in {one.lower() for one in found}:
            raise InvalidOption(f"Header {name!r} is given twice.", header=name)
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InvalidOption(f"The value of header {name!r} cannot be sent.", header=name)
        if (is_secret(name) or _SCHEME.match(value)) and not is_reference(value):
            raise InvalidOption(
                f"Header {name!r} is a secret and is kept in the lake only as a reference. Write "
                "'env:NAME' for an environment variable, or 'file:PATH'.",
                header=name,
            )
        found[name] = value
    return found


def _check_reference(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not is_reference(value):
        raise InvalidOption(
            f"Option {name!r} is a secret and is kept in the lake only as a reference.",
            refer_to(name),
            option=name,
        )
    return str(value)


def _check_ca(path: Any) -> str | None:
    if path is None:
        return None
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, TypeError) as error:
        raise InvalidOption(
            f"The ca_file {path!r} cannot be used: {error}. Give the path of a file with "
            "certificates in PEM form.",
            ca_file=str(path),
        ) from error
    return str(path)


def _check_timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidOption(f"timeout={value!r} is no duration such as '60s'.", timeout=str(value))
    given = in_seconds(value) if isinstance(value, str) else value
    seconds = parse_duration(given, "a timeout").total_seconds()
    if seconds <= 0:
        raise InvalidOption("timeout must be longer than nothing.", timeout=str(value))
    return seconds


def _check_rows(value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not 1 <= value <= (ROWS_PER_CHUNK_MAX)
    ):
        raise InvalidOption(
            f"rows_per_chunk={value!r} is not a number from 1 to {ROWS_PER_CHUNK_MAX}.",
            rows_per_chunk=str(value),
        )
    return value


def _is_authorization(name: str) -> bool:
    return name.lower() == "authorization"


def _is_private(parts: SplitResult) -> bool:
    """Whether nobody on the way can read what is sent there."""
    if parts.scheme == "https":
        return True
    host = (parts.hostname or "").lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
