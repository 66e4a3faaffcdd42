"""Checking that no key occurs twice among rows, however many there are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidelock.store.lookup.wanted_keys import Positions, WantedKeys, divide
from tidelock.store.operations.counts import Target
from tidelock.store.rows.checks import are_unique, keys_repeated, repeated_rows
from tidelock.store.rows.refusals import OFFENDERS_MAX

AT_ONCE_ROWS = 65_536
"""So few keys are compared as they are: how to divide them takes longer to find out."""


def refuse_repeated(target: Target, keys: WantedKeys) -> None:
    """DuplicateKey when a key occurs twice. Equal keys lie in one range."""
    first: list[Positions] = []
    last: list[Positions] = []
    for one in divide(keys) if keys.rows > AT_ONCE_ROWS else [None]:
        found, positions = keys.within(one)
        if not are_unique(found, target.key):
            # What is read by ranges may come in any order.
            order = np.argsort(positions, kind="stable")
            repeated = repeated_rows(found.take(pa.array(order)), target.key)
            first.append(positions[order][repeated.column("first").to_numpy()])
            last.append(positions[order][repeated.column("last").to_numpy()])
    if not first:
        return
    begins, ends = np.concatenate(first), np.concatenate(last)
    shown = np.argsort(begins)[:OFFENDERS_MAX]
    raise keys_repeated(
        keys.take(begins[shown]), target.key, target.name, len(begins), ends[shown].tolist()
    )
