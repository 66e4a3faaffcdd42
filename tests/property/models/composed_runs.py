"""Runs of compositions: batches of cases, by processes side by side, and what they covered.

Sail runs in the process that asks it, so that two processes use two cores. What is wrong there is
run again on Apache Spark, with the same rows and steps, before it is believed: an engine's own
mistakes are not ours.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.property.models.composed_lakes import STEPS, Found, Life
from tests.property.models.compositions import Case
from tests.property.models.oracle_tables import FAST
from tests.support import lakes

import tidelock
from tidelock.run.engine.session import Engine

BATCH_CASES = 25
WORKERS = 2
COVERED: list[str] = []
"""What the tests of this run covered; shown at its end."""


@dataclass(frozen=True)
class Batch:
    """Cases that share a lake. Their tables and what happens to them follow from the seed."""

    cases: tuple[Case, ...]
    seed: str
    steps: str

    @property
    def hostile(self) -> bool:
        return self.cases[0].hostile


def batches_of(cases: Iterable[Case], steps: str, start: int = 0) -> Iterator[Batch]:
    """Batch by batch, from one on; every other one has hostile names."""
    waiting = itertools.islice(cases, start * BATCH_CASES, None)
    for number in itertools.count(start):
        some = tuple(itertools.islice(waiting, BATCH_CASES))
        if not some:
            return
        hostile = number % 2 == 0
        named = tuple(replace(case, hostile=hostile) for case in some)
        yield Batch(named, f"{some[0].seed} {number}", steps)


@dataclass
class Coverage:
    """What a run covered, and what it found wrong."""

    what: str
    kinds: Counter[str] = field(default_factory=Counter)
    families: set[tuple[str, ...]] = field(default_factory=set)
    reasons: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    wrong: list[tuple[Batch, Found]] = field(default_factory=list)
    confirmed: list[Found] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.kinds.total()

    def add(self, batch: Batch, found: Iterable[Found]) -> None:
        for one in found:
            self.kinds[one.kind] += 1
            self.empty += one.empty
            self.families.add(tuple(operator.family for operator in one.case.operators))
            if one.kind == "full":
                self.reasons[f"{one.kind}: {one.detail[:200]}"] += 1
            if _is_doubtful(one):
                self.wrong.append((batch, one))

    def __str__(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        lines = [f"{self.what}: {self.count} of {len(self.families)} kinds: {told}"]
        lines += [f"    {count} {reason}" for reason, count in self.reasons.most_common()]
        if self.wrong:
            told = f"{len(self.wrong)} wrong or refused on Sail"
            lines.append(f"    {told}, {len(self.confirmed)} on Spark too")
        return "\n".join(lines)


def _is_doubtful(found: Found) -> bool:
    """Whether it is a mistake, if the engine did not make it: every composition can be computed."""
    return found.is_wrong or found.kind == "refused"


def live(batch: Batch, session: Any, beside: Any) -> list[Found]:
    """One batch in a lake of its own; `beside` is a session that nothing of ours uses."""
    with (
        tempfile.TemporaryDirectory() as folder,
        # Whoever shares the machine may keep a writer waiting.
        tidelock.open(Path(folder, "lake"), create=True, spark=session, lease_seconds=600) as lake,
    ):
        return Life(lake, beside, batch.cases, batch.seed, batch.hostile).live(STEPS[batch.steps])


def judge_of(spark: Any) -> Any:
    """A session that nothing of ours uses, which answers queries over a few rows quickly."""
    beside = spark.newSession()
    for name, value in FAST.items():
        beside.conf.set(name, value)
    return beside


def on_spark(batches: Iterable[Batch], spark: Any, coverage: Coverage) -> None:
    beside = judge_of(spark)
    for batch in batches:
        coverage.add(batch, live(batch, spark, beside))


def on_sail(batches: Iterable[Batch], coverage: Coverage, seconds: float | None = None) -> int:
    """Run batches side by side until there are no more, or for some time; how many there were."""
    until = None if seconds is None else time.monotonic() + seconds
    workers = [_Worker() for _ in range(WORKERS)]
    waiting, count = iter(batches), 0
    try:
        while True:
            for worker in workers:
                late = until is not None and time.monotonic() > until
                if worker.batch is None and not late and (batch := next(waiting, None)) is not None:
                    worker.give(batch)
            busy = {worker.answers: worker for worker in workers if worker.batch is not None}
            if not busy:
                return count
            for answers in wait(list(busy)):
                worker = busy[answers]
                batch, worker.batch = worker.batch, None
                coverage.add(batch, answers.recv())
                count += 1
    finally:
        lakes.end(*(worker.process for worker in workers))


class _Worker:
    """A process with a Sail of its own."""

    def __init__(self) -> None:
        asked, self._ask = lakes.pipe()
        self.answers, answer = lakes.pipe()
        self.process = lakes.start(_work, asked, answer)
        # Its ends are its own alone, so that it is noticed when it dies.
        asked.close()
        answer.close()
        self.batch: Batch | None = None

    def give(self, batch: Batch) -> None:
        self.batch = batch
        self._ask.send(batch)


def _work(asked: Any, answer: Any) -> None:
    with Engine(engine="sail") as own:
        session = own.get()
        with Engine(remote=f"sc://{session.client._builder.endpoint}") as other:
            beside = other.get()
            for one in (session, beside):
                # Nobody else is asked, and nothing is ever lost on the way.
                one.client.disable_reattachable_execute()
            while True:
                answer.send(live(asked.recv(), session, beside))


def confirm(coverage: Coverage, spark: Any) -> None:
    """Run again on Spark what was wrong or refused on Sail."""
    beside = judge_of(spark)
    again: dict[Batch, list[Case]] = {}
    for batch, found in coverage.wrong:
        again.setdefault(batch, []).append(found.case)
    for batch, cases in again.items():
        fewer = Batch(tuple(cases), batch.seed, batch.steps)
        coverage.confirmed += [one for one in live(fewer, spark, beside) if _is_doubtful(one)]
