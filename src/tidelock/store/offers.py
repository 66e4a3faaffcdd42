"""Offers: what waits for its turn, laid open to whoever has it.

A process that waits for a turn writes what it is about to publish into a file of its own. Whoever
has the turn may publish that along with its own work, and says in the same file where it is:

    offered -> taken -> published in record N

Invariant: an offer is taken by the holder of the turn alone, and marked before it is published. So
whoever has its turn and finds its offer as it was knows that nobody published it; in every other
case but `published` only the log can tell.
After a crash: a file belongs to whoever has a lock on it, and a dead process has none, so that what
it offered is not taken any more. The next process writes over it.
"""

from __future__ import annotations

import os
import secrets
import struct
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tidelock.store.file_locks import is_locked, try_lock

FILES_MAX = 64
OFFER_BYTES_MAX = 64 * 1024
_USUAL_BYTES = 4096

_HEADER = struct.Struct("<4sc3xQQII")
"""Magic, state, ticket, record, length and checksum of what follows."""
_MAGIC = b"tlo1"
_NOTHING, _OFFERED, _TAKEN, _PUBLISHED = b"-", b"o", b"t", b"p"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an offer."""

    record: int = 0
    """The record in which its taker published it, as far as it could; 0 if that is not told."""
    untouched: bool = False
    """Whether it is certain that nobody took it."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer of this process."""

    file: int
    ticket: int

    def is_published(self) -> bool:
        """Whether its taker has published it, as far as it could."""
        with suppress(OSError):
            state, ticket, _ = _head(os.pread(self.file, _HEADER.size, 0))
            return state == _PUBLISHED and ticket == self.ticket
        return False

    def outcome(self, in_turn: bool) -> Outcome:
        """Withdraw it. `in_turn`: whether this process has the turn now."""
        try:
            state, ticket, record = _head(os.pread(self.file, _HEADER.size, 0))
            _write(self.file, _NOTHING, self.ticket)
        except OSError:
            return Outcome()
        if ticket != self.ticket:
            return Outcome()
        if state == _PUBLISHED:
            return Outcome(record)
        return Outcome(untouched=in_turn and state == _OFFERED)


@dataclass(frozen=True, slots=True)
class Found:
    """An offer of another process."""

    data: bytes
    _file: int
    _ticket: int

    def take(self) -> bool:
        with suppress(OSError):
            _write(self._file, _TAKEN, self._ticket)
            return True
        return False

    def answer(self, record: int) -> None:
        """Say where it was published. Whoever is not told looks into the log."""
        with suppress(OSError):
            _write(self._file, _PUBLISHED, self._ticket, record)


class Offers:
    """The offers of one lake on this machine."""

    def __init__(self, folder: str | None) -> None:
        """`folder` is None where nobody can see them."""
        self._folder = folder
        self._lock = threading.Lock()
        self._mine: dict[int, int] = {}
        """The files that this process has a lock on, by their number."""
        self._free: list[int] = []
        self._others: dict[int, int] = {}
        # They are not closed before, for a thread may be writing to them.
        weakref.finalize(self, _close, self._mine, self._others)

    def make(self, data: bytes) -> Offer | None:
        """Offer something; None if there is no place for it."""
        if self._folder is None or len(data) > OFFER_BYTES_MAX:
            return None
        file = self._own_file(self._folder)
        if file is None:
            return None
        ticket = secrets.randbits(63)
        try:
            _write(file, _OFFERED, ticket, data=data)
        except OSError:
            self._give_back(file)
            return None
        return Offer(file, ticket)

    def end(self, offer: Offer, in_turn: bool) -> Outcome:
        outcome = offer.outcome(in_turn)
        self._give_back(offer.file)
        return outcome

    def others(self) -> Iterator[Found]:
        """What other processes offer."""
        if self._folder is None:
            return
        for number in range(FILES_MAX):
            if number in self._mine:
                continue
            try:
                file = self._others.get(number)
                if file is None:
                    file = self._others[number] = _open(self._folder, number)
                found = _read(file)
            except FileNotFoundError:
                # They are made one after the other and stay.
                return
            except OSError:
                continue
            if found is not None and is_locked(file):
                yield found

    def _own_file(self, folder: str) -> int | None:
        with self._lock:
            if self._free:
                return self._free.pop()
            with suppress(OSError):
                os.mkdir(folder)
            for number in range(FILES_MAX):
                if number in self._mine:
                    continue
                try:
                    file = _open(folder, number, os.O_CREAT)
                except OSError:
                    continue
                if try_lock(file):
                    self._mine[number] = file
                    return file
                os.close(file)
            return None

    def _give_back(self, file: int) -> None:
        with self._lock:
            self._free.append(file)


def _open(folder: str, number: int, flags: int = 0) -> int:
    return os.open(f"{folder}/{number:02d}", os.O_RDWR | os.O_CLOEXEC | flags, 0o666)


def _write(file: int, state: bytes, ticket: int, record: int = 0, data: bytes = b"") -> None:
    header = _HEADER.pack(_MAGIC, state, ticket, record, len(data), zlib.crc32(data))
    os.pwrite(file, header + data, 0)


def _read(file: int) -> Found | None:
    """The offer in a file. Its owner may be writing it: then it is not one yet."""
    content = os.pread(file, _USUAL_BYTES, 0)
    if len(content) < _HEADER.size:
        return None
    magic, state, ticket, _, length, checksum = _HEADER.unpack_from(content)
    if magic != _MAGIC or state != _OFFERED or length > OFFER_BYTES_MAX:
        return None
    end = _HEADER.size + length
    if len(content) < end:
        content += os.pread(file, end - len(content), len(content))
    data = content[_HEADER.size : end]
    return Found(data, file, ticket) if zlib.crc32(data) == checksum else None


def _head(content: bytes) -> tuple[bytes, int, int]:
    if len(content) < _HEADER.size:
        return _NOTHING, 0, 0
    magic, state, ticket, record, _, _ = _HEADER.unpack(content)
    return (state, ticket, record) if magic == _MAGIC else (_NOTHING, 0, 0)


def _close(*files: dict[int, int]) -> None:
    for opened in files:
        for file in opened.values():
            with suppress(OSError):
                os.close(file)
