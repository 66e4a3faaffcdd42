"""What of a landing place is to be taken: what is new, what has changed, what is not ready.

Owns: the comparison of listings with the ledger, by columns, a page at a time. What is equal to the
listing of the last round of this process is not compared at all.
Invariant: a file is new if the ledger has no entry of its name; it is never passed over for good
because it was not ready. A file is ready when it has been as it is for as long as it is to settle:
by the clock of the store, or as seen from here, so that a clock that is wrong delays, and no more.
"""

from __future__ import annotations

import operator
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.files.marks import checksums, plain_marks
from tidelock.ingest.landing.places import LISTED, PAGE_FILES, Before, Place
from tidelock.ingest.ledger import Ledger

SKEW_NANOSECONDS = 900_000_000_000
"""So far S3 lets the clock of whoever asks be from its own."""
REMEMBERED_FILES_MAX = 500_000
SOURCES_MAX = 64
DIVISIONS_MAX, FILES_PER_DIVISION = 15, 5_000
"""Into how many parts a listing is divided, to be made at the same time."""
NOTHING = LISTED.empty_table()
DOUBTED = LISTED.append(pa.field("checksum", pa.string()))


@dataclass(frozen=True)
class Found:
    """What there is. Each is a table like a listing."""

    new: pa.Table
    changed: pa.Table
    """Files that were taken in another state."""
    unready: pa.Table
    doubted: pa.Table
    """Files that may have been taken in another state, in spite of their mark; with the checksum of
    what was taken as `checksum`."""
    listed: int

    @property
    def is_nothing(self) -> bool:
        return not (
            self.new.num_rows
            or self.changed.num_rows
            or self.unready.num_rows
            or self.doubted.num_rows
        )


@dataclass
class Memory:
    """What this process has seen of one source."""

    ledger: tuple[str, int] | None = None
    """The pin of the ledger that the last listing was compared with."""
    names: list[str] = field(default_factory=list)
    """Of the ledger, some names between which a bucket is listed at the same time."""
    pages: list[pa.Table] = field(default_factory=list)
    """The last listing, if there was nothing in it to be taken."""
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    """Since when files that are not ready are as they are, by the clock of this process."""
    sure: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Files in doubt, with mark and checksum, that were found to be what was taken."""

    def first_seen(self, name: str, mark: str, moment: float) -> float:
        return self.seen.setdefault((name, mark), moment)

    def forget_others(self, unready: pa.Table) -> None:
        kept = {(one["name"], one["mark"]) for one in unready.to_pylist()} if self.seen else set()
        self.seen = {key: since for key, since in self.seen.items() if key in kept}


_memories: OrderedDict[tuple[str, str], Memory] = OrderedDict()
_lock = threading.Lock()


def memory_of(lake: str, source: str) -> Memory:
    with _lock:
        memory = _memories.setdefault((lake, source), Memory())
        _memories.move_to_end((lake, source))
        if len(_memories) > SOURCES_MAX:
            _memories.popitem(last=False)
        return memory


def discover(
    place: Place,
    ledger: Ledger,
    memory: Memory,
    settle_seconds: float,
    after: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Look at what there is; with `after`, at names alone that come after it."""
    divisions = 0 if after else min(DIVISIONS_MAX, ledger.state.rows // FILES_PER_DIVISION)
    known = (ledger.state.id, ledger.state.pin)
    if memory.ledger != known:
        memory.names = ledger.some_items(divisions) if divisions else []
    last = memory.pages if memory.ledger == known else []
    pages = place.pages(after, Before(memory.names, last))
    listed = sum(page.num_rows for page in pages)
    if len(last) == len(pages) > 0 and all(map(operator.is_, last, pages)):
        return Found(NOTHING, NOTHING, NOTHING, DOUBTED.empty_table(), listed)
    parts = [_compare(page, ledger, trusting=bool(after)) for page in _gathered(pages)]
    new, changed = (_joined(part[n] for part in parts) for n in range(2))
    ready = _readiness(place, memory, settle_seconds, clock)
    new_ready, new_unready = ready(new)
    changed_ready, changed_unready = ready(changed)
    found = Found(
        new_ready,
        changed_ready,
        pa.concat_tables([new_unready, changed_unready]),
        pa.concat_tables([part[2] for part in parts] or [DOUBTED.empty_table()]),
        listed,
    )
    memory.forget_others(found.unready)
    memory.pages = pages if found.is_nothing and listed <= REMEMBERED_FILES_MAX else []
    memory.ledger = known
    return found


def _gathered(pages: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """The pages, of which many small ones are compared as one."""
    waiting: list[pa.Table] = []
    rows = 0
    for page in pages:
        if waiting and rows + page.num_rows > PAGE_FILES:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
        waiting.append(page)
        rows += page.num_rows
    if waiting:
        yield pa.concat_tables(waiting)


def _compare(page: pa.Table, ledger: Ledger, *, trusting: bool) -> tuple[pa.Table, ...]:
    """The files of a page that are new, that have changed, and that are in doubt."""
    if trusting or not page.num_rows:
        return page, NOTHING, DOUBTED.empty_table()
    names = page.column("name").combine_chunks()
    rows = ledger.rows_of(names)
    places = pc.index_in(names, value_set=rows.column("item").combine_chunks())
    marks = rows.column("mark").take(places)
    plain = plain_marks(marks)
    same = pc.equal(plain, page.column("mark"))
    doubted = pc.and_(same, pc.not_equal(plain, marks))
    return (
        page.filter(pc.is_null(places)),
        page.filter(pc.invert(same)),
        page.append_column("checksum", checksums(marks)).filter(doubted),
    )


def _readiness(
    place: Place, memory: Memory, settle_seconds: float, clock: Callable[[], float]
) -> Callable[[pa.Table], tuple[pa.Table, pa.Table]]:
    """What divides files into those that are ready and those that are not."""
    settle = int(settle_seconds * 1e9)
    asked: list[int] = []

    def divide(files: pa.Table) -> tuple[pa.Table, pa.Table]:
        if not settle or not files.num_rows:
            return files, NOTHING
        if not asked:
            asked.append(_now(place, files, settle))
        ready = pc.less_equal(files.column("modified"), asked[0] - settle)
        if not pc.all(ready).as_py():
            young = files.filter(pc.invert(ready)).select(["name", "mark"]).to_pylist()
            since = iter([memory.first_seen(one["name"], one["mark"], clock()) for one in young])
            moment = clock()
            ready = pa.array(
                one or moment - next(since) >= settle_seconds for one in ready.to_pylist()
            )
        return files.filter(ready), files.filter(pc.invert(ready))

    return divide


def _now(place: Place, files: pa.Table, settle: int) -> int:
    """The time by the clock of the store; which is not asked where ours is surely good enough."""
    ours = time.time_ns()
    newest = pc.max(files.column("modified")).as_py()
    return ours if newest <= ours - settle - SKEW_NANOSECONDS else place.now()


def _joined(parts: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([NOTHING, *parts])
