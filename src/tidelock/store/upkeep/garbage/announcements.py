"""Announcements: what a garbage collection says while it runs, and who asks for it.

A process that names an old version while one runs may come too late to be seen by it, and checks
that what it named is still there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tidelock.errors import (
    CorruptObject,
    ObjectMissing,
    SnapshotExpired,
    StoreError,
    VersionNotFound,
)
from tidelock.model.history.commit import BranchRef, TableState
from tidelock.store.leases.leases import Held, expired
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.protocol import ObjectInfo
from tidelock.store.objects.records import decode
from tidelock.store.parts import Parts


@dataclass(frozen=True, slots=True)
class _Collection:
    lease_seconds: float
    format: int = 1


@contextmanager
def announced(store: Parts, dry_run: bool) -> Iterator[Held | None]:
    """Say that a collection runs: a reader that names an old commit now checks that it is still
    there."""
    if dry_run:
        yield None
        return
    key = f"{layout.COLLECTIONS}/{secrets.token_hex(8)}.json"
    content = _Collection(store.lease_seconds)
    held = Held(key, store.lease_seconds, lambda: content, final=True)
    store.keeper.hold(held)
    try:
        yield held
    finally:
        # What cannot be removed expires.
        with suppress(StoreError):
            store.keeper.release(held)


def collection_runs(store: Parts) -> bool:
    infos = entries(store.objects, layout.COLLECTIONS)
    now = store.clock.now()
    return any(not expired(info, _announced_seconds(store, info), now) for info in infos)


def _announced_seconds(store: Parts, info: ObjectInfo) -> float:
    try:
        return decode(store.objects.get(info.key), _Collection, info.key).lease_seconds
    except ObjectMissing:
        return 0.0
    except CorruptObject:
        return store.lease_seconds


def check_readable(store: Parts, branch: BranchRef, version: int) -> None:
    """SnapshotExpired unless every pin of a version can be opened."""

    def check(state: TableState) -> None:
        try:
            store.files.forget(state.id)
            store.files.open(state.id, state.pin)
        except SnapshotExpired as error:
            raise SnapshotExpired(
                f"Version {version} is no longer readable: the data of {state.name!r} was "
                "removed by garbage collection.",
                table=state.name,
                version=version,
            ) from error

    try:
        tables = store.log.tables_at(branch, version)
    except VersionNotFound as error:
        raise SnapshotExpired(
            f"Version {version} is no longer readable: branch {branch.name!r} was deleted, and "
            "garbage collection has removed its log.",
            version=version,
        ) from error
    store.together.map(check, tables.states())
