"""Folding the fragments of an open transaction.

A transaction that changes a table many times adds a fragment each time, and every later operation
reads and lists them all. So they are folded as they come, as those of many commits are.
Invariant: only fragments that the transaction itself added are rewritten, so that what it changes
is the same; nothing of it is remembered, because another base makes other fragments.
"""

from __future__ import annotations

from tidelock.store.operations.counts import Counts
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.tables.fragments import Dataset, data_file
from tidelock.store.upkeep.fold_plan import FANOUT, plan_fold
from tidelock.store.upkeep.maintenance import Compaction, fragment_sizes
from tidelock.store.upkeep.rewrite import rewrite


def fold_own(staged: StagedTable) -> Dataset:
    """The pin with everything that was staged so far, in few fragments."""
    dataset = staged.current()
    base = {data_file(fragment.metadata) for fragment in staged.base.get_fragments()}
    own = {
        fragment.fragment_id
        for fragment in dataset.get_fragments()
        if data_file(fragment.metadata) not in base
    }
    if len(own) < FANOUT:
        return dataset
    ids = plan_fold([size for size in fragment_sizes(dataset) if size.id in own])
    if not ids:
        return dataset
    files, target = staged.files, staged.target
    folded = Compaction([rewrite(files, target.id, dataset, ids)])
    return staged.put_in_order(dataset, folded.apply(files, target, dataset, Counts()))
