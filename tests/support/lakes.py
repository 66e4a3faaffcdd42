"""Small lakes for tests: making them, comparing them as multisets, and processes that use them.

Processes are forked from a server that has imported what may be imported before a fork, which is
all but Lance and gRPC, and used nothing of it: a child starts in a tenth of a second, and is as
good as a new process. What a child runs is a function of an importable module, with arguments that
pickle.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import shutil
import sys
import time
import types
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidelock
from tidelock import Lake, Snapshot
from tidelock.store.objects.failpoints import armed


def _settings_at_start() -> dict[str, str]:
    """What the run was started with: no setting of Tidelock is left in the tests' environment."""
    try:
        items = Path("/proc/self/environ").read_text("utf-8", "replace").split("\0")
    except OSError:
        return dict(os.environ)
    return dict(item.split("=", 1) for item in items if "=" in item)


SETTINGS = _settings_at_start()

Rows = Counter[tuple[Any, ...]]
NUMBERS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
NUMBERS_DDL = "id BIGINT NOT NULL, v BIGINT"

# Comparing lakes


def rows_of(table: Any) -> Rows:
    """The rows of a Table or an Arrow table, as a multiset."""
    found = table if isinstance(table, pa.Table) else table.to_arrow()
    return Counter(tuple(row.values()) for row in found.to_pylist())


def contents(lake: Lake | Snapshot, **selector: Any) -> dict[str, Rows]:
    """Every table of one snapshot, as multisets; each read whole."""
    snapshot = lake.snapshot(**selector) if isinstance(lake, Lake) else lake
    found = {state.name: rows_of(snapshot.table(state.name)) for state in snapshot.tables()}
    for state in snapshot.tables():
        assert state.rows == found[state.name].total(), f"{state.name} says {state.rows} rows"
    return found


def check_log(lake: Lake, branch: str = "main") -> list[tidelock.Commit]:
    """The commits of a branch, oldest first, after checking that they are a whole history."""
    commits = list(lake.log(branch, limit=None))[::-1]
    assert [commit.version for commit in commits] == list(range(1, len(commits) + 1))
    assert [commit.time for commit in commits] == sorted(commit.time for commit in commits)
    for parent, commit in itertools.pairwise(commits):
        merged = commit.properties.get("merge")
        assert commit.parents == ((parent.id, merged["commit"]) if merged else (parent.id,))
    ids = Counter(commit.operation_id for commit in commits)
    assert not [one for one, count in ids.items() if count > 1], "an operation was published twice"
    return commits


def numbers(*pairs: tuple[int, int]) -> list[dict[str, int]]:
    return [{"id": one, "v": value} for one, value in pairs]


def streamed(rows: list[dict[str, int]]) -> pa.RecordBatchReader:
    """The rows as a stream of single-row batches: a writer of one leaves an intent."""
    batches = [pa.RecordBatch.from_pylist([row], schema=NUMBERS) for row in rows]
    return pa.RecordBatchReader.from_batches(NUMBERS, batches)


# Time and copies


def age(uri: str | Path, seconds: float = 3600.0) -> None:
    """Let time pass for the leases and intents of a lake on files: they were renewed long ago."""
    moment = time.time() - seconds
    for folder in ("leases", "intents", "collections"):
        for path in Path(uri, "_tidelock", folder).glob("*"):
            os.utime(path, (moment, moment))


def copy_lake(source: str | Path, target: str | Path) -> str:
    shutil.copytree(source, target)
    return str(target)


def files_of(uri: str | Path) -> set[str]:
    """The files of all tables of a lake on files."""
    root = Path(uri, "tables")
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def collect_all(lake: Lake, **options: Any) -> Any:
    """Collect everything that is garbage by now: a file system's clock ticks in milliseconds."""
    time.sleep(0.03)
    return lake.collect_garbage(older_than=0, **options)


def settle_chores(lake: Lake) -> None:
    """Wait until what commits left to be done beside them is done."""
    assert lake._store.chores.finish(60)


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


# Chance


_SEEDS_TAKEN: Counter[str] = Counter()


def fresh_seed() -> int:
    """TIDELOCK_SEED; else a new one in a long run, and in `make test` the same at every run.

    So `make test` judges what was changed, and long runs look for what nobody thought of.
    """
    if "TIDELOCK_SEED" in SETTINGS:
        return int(SETTINGS["TIDELOCK_SEED"])
    if "TIDELOCK_FAULT_SECONDS" in SETTINGS:
        return random.SystemRandom().randrange(1_000_000)
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    _SEEDS_TAKEN[test] += 1
    return zlib.crc32(f"{test} {_SEEDS_TAKEN[test]}".encode()) % 1_000_000


@contextlib.contextmanager
def seed_of() -> Iterator[int]:
    """A seed, as `fresh_seed` gives it; printed when what is done with it fails."""
    seed = fresh_seed()
    try:
        yield seed
    except BaseException:
        sys.stderr.write(f"\nseed {seed}: run it again with TIDELOCK_SEED={seed}\n")
        raise


def fault_seconds(usual: float) -> float:
    """How long a random run goes on: TIDELOCK_FAULT_SECONDS in place of the usual."""
    return float(SETTINGS.get("TIDELOCK_FAULT_SECONDS", usual))


# Processes

warnings.filterwarnings("ignore", message="lance is not fork-safe")
_context = multiprocessing.get_context("forkserver")
# Nearly all that a child would import, which is half a second of work for each: pandas comes with
# Arrow's datasets. Neither Lance nor gRPC is among them, nor what imports them: both dislike forks.
_context.set_forkserver_preload(
    [
        "tidelock.run.open",
        "tests.support.lakes",
        "pandas",
        "pyarrow.compute",
        "pyarrow.dataset",
        "sqlglot.dialects.spark",
        "pyiceberg.catalog.sql",
    ]
)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A child would run the program that started pytest again, only to find its name."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def start(
    function: Callable[..., None],
    *arguments: Any,
    failpoints: str = "",
    lease_seconds: float | None = None,
) -> BaseProcess:
    """Start a process that calls a function; `failpoints` as in TIDELOCK_FAILPOINTS."""
    process = _context.Process(
        target=_child, args=(function, arguments, failpoints, lease_seconds), daemon=True
    )
    with _without_main():
        process.start()
    return process


def pipe() -> tuple[Any, Any]:
    """A receiving and a sending end; the sending one may be given to a process."""
    return _context.Pipe(duplex=False)


def run(function: Callable[..., None], *arguments: Any, **options: Any) -> int:
    """Run a function in a process of its own; returns its exit code, -9 when it was killed."""
    process = start(function, *arguments, **options)
    process.join(timeout=120)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def _child(
    function: Callable[..., None],
    arguments: tuple[Any, ...],
    failpoints: str,
    lease_seconds: float | None,
) -> None:
    if lease_seconds is not None:
        os.environ["TIDELOCK_LEASE_SECONDS"] = str(lease_seconds)
    with contextlib.ExitStack() as stack:
        for failpoint in filter(None, failpoints.split(";")):
            name, _, action = failpoint.partition("=")
            stack.enter_context(armed(name, action))
        function(*arguments)


def end(*processes: BaseProcess) -> None:
    """Kill processes that are still there, and wait for them."""
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join(timeout=30)
        process.close()
