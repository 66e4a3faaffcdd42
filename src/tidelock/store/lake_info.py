"""What makes a folder a lake: one object, with the lake's id."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime

from tidelock.errors import (
    Advice,
    CorruptObject,
    LakeExists,
    LakeNotFound,
    ObjectExists,
    ObjectMissing,
)
from tidelock.store.objects import layout
from tidelock.store.objects.disk_space import keep_reserve
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

logger = logging.getLogger("tidelock")


@dataclass(frozen=True, slots=True)
class LakeInfo:
    """What makes a folder a lake."""

    id: str
    created: datetime
    format: int = layout.FORMAT


def create_lake(objects: Objects, *, on_files: bool = False) -> None:
    info = LakeInfo(secrets.token_hex(16), datetime.now(UTC))
    try:
        objects.put_new(layout.LAKE, encode(info))
    except ObjectExists:
        raise LakeExists("There is a lake here already. Open it without create.") from None
    if on_files:
        keep_reserve(objects)


def lake_info(objects: Objects, uri: str, mend: bool = False) -> LakeInfo:
    """What makes the folder a lake. One that is damaged endangers nothing but the lake's id, and is
    made anew if that is asked for."""
    try:
        return decode(objects.get(layout.LAKE), LakeInfo, layout.LAKE)
    except CorruptObject as error:
        logger.warning("%s The lake has another id from now on.", error.message)
        info = LakeInfo(secrets.token_hex(16), datetime.now(UTC))
        if mend:
            objects.put(layout.LAKE, encode(info))
        return info
    except ObjectMissing:
        raise LakeNotFound(
            f"There is no lake at {uri!r}.",
            Advice(
                f"Create one with tidelock.open({uri!r}, create=True).",
                f"Create one with `tidelock init {uri}`.",
            ),
            uri=uri,
        ) from None
