"""Opening a lake: from what a user says to a handle."""

from __future__ import annotations

import contextlib
import getpass
import math
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tidelock.derive.catalog import Catalog
from tidelock.errors import InvalidOption, LakeExists
from tidelock.model.time.durations import in_seconds, parse_duration
from tidelock.run.engine.session import Engine
from tidelock.run.lake import Lake
from tidelock.store.lake_info import create_lake
from tidelock.store.leases.leases import LEASE_SECONDS
from tidelock.store.objects import layout
from tidelock.store.objects.handle import HandleObjects
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.own_folder import is_lake
from tidelock.store.objects.protocol import Objects
from tidelock.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelock.store.transaction import Transaction

LEASE_SECONDS_MIN = 0.01


def open(
    uri: str | os.PathLike[str],
    *,
    create: bool = False,
    read_only: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    durability: str = "process",
    lease_seconds: float | None = None,
    spark: SparkSession | None = None,
    engine: str | None = None,
    master: str | None = None,
    memory: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    heal: bool = True,
    objects: Callable[[Objects], Objects] | None = None,
) -> Lake:
    """Open a lake.

    `uri` is a path, `file://…`, `s3://bucket/prefix` or `memory://name`. With `create=True` the
    lake is made when there is none. Queries run on `spark`, a session of yours, or on one that is
    made on first need (`engine`, `master`, `memory`, `remote`, `conf`). `durability="fsync"` makes
    commits on local files safe against power loss too. With `heal=False`, what dead writers left
    is not settled on opening, which is what `repair` needs when an intent cannot be read.
    `objects` may wrap the object store, for tests.
    """
    if create and read_only:
        raise InvalidOption("A lake cannot be created with read_only=True.")
    if not isinstance(uri, str | os.PathLike):
        raise InvalidOption(
            f"A lake is named by a path or a URI, not {uri!r}. Use a path, 's3://bucket/prefix' or "
            "'memory://name'.",
            uri=str(uri),
        )
    seconds = _lease_seconds(lease_seconds)
    location = locate(uri, storage_options)
    store_objects: Objects = location.objects(durability, anchor=layout.LAKE)
    if objects is not None:
        store_objects = objects(store_objects)
    if create and not is_lake(location, store_objects):
        with contextlib.suppress(LakeExists):
            create_lake(store_objects, on_files=location.kind == "file")
    session = Engine(spark, engine=engine, master=master, memory=memory, remote=remote, conf=conf)
    handle = HandleObjects(store_objects, location.uri)
    catalog = Catalog(cast(Objects, handle), session)
    store = Store(
        location,
        handle,
        session,
        actor=actor or os.environ.get("TIDELOCK_ACTOR") or getpass.getuser(),
        read_only=read_only,
        durability=durability,
        lease_seconds=seconds,
        heal=heal,
        check_tables=catalog.check_tables,
        carry_along=partial(_carry_along, catalog),
    )
    elsewhere = partial(
        _open_on,
        uri=location.uri,
        storage_options=dict(location.storage_options),
        actor=store.actor,
        durability=durability,
        lease_seconds=seconds,
    )
    return Lake(store, session, catalog, elsewhere)


def _open_on(session: SparkSession, **told: Any) -> Lake:
    """A lake on a session that is there."""
    return open(spark=session, **told)


def _carry_along(catalog: Catalog, transaction: Transaction, cascade: bool) -> None:
    # It brings the parser of SQL, which most transactions have no use for.
    from tidelock.derive.definitions.staged_streams import StreamStaging

    StreamStaging(catalog).carry_along(transaction, cascade)


def _lease_seconds(given: float | None) -> float:
    value = os.environ.get("TIDELOCK_LEASE_SECONDS") if given is None else given
    if value is None:
        return LEASE_SECONDS
    if isinstance(value, str):
        value = in_seconds(value)
    seconds = value if isinstance(value, int | float) else parse_duration(value, "a lease")
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if not LEASE_SECONDS_MIN <= seconds < math.inf:
        raise InvalidOption(
            f"A lease of {seconds:g} seconds does not work: it must be renewed before it runs out. "
            f"Use {LEASE_SECONDS_MIN:g} or more; {LEASE_SECONDS:g} is the default.",
            lease_seconds=seconds,
        )
    return seconds
