"""The JVM of this process: found, started quietly, shared, stopped by the last who leaves.

Owns: the check for Java, and the one Spark session with a JVM that this process may have. PySpark
allows one per process, so every engine that needs it shares it.

Invariants: `users > 0` if and only if `session` is set. A session that somebody else started in
this process is borrowed through `newSession()` and never stopped. A JVM that died is forgotten,
ours or another's: PySpark itself would speak to it for as long as the process lives.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelock.errors import EngineUnavailable, JavaMissing
from tidelock.run.engine.jvm_remains import forget_dead_jvm
from tidelock.run.engine.rules import EXCLUDED_RULES, without_wrong_rules
from tidelock.store.spark.sessions import why_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
STOP_SECONDS_MAX = 30.0
"""How long a JVM has to stop before it is killed."""
HOW_TO_GET_JAVA = (
    "Install it (for example: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one."
)
# PySpark's own mark of a process whose sessions are clients.
THREAD_STACK = "16m"
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
PANDAS_NOTICE = "PySpark does not yet fully support pandas"
LOG_SETTINGS = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Wish:
    """How Spark is to be started."""

    master: str | None = None
    memory: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


class _Shared:
    lock = threading.RLock()
    session: SparkSession | None = None
    users = 0
    master = ""
    started_with = Wish()
    borrowed = False
    folder: Path | None = None
    gateway: Any = None


def acquire(master: str | None, memory: str | None, conf: Mapping[str, str]) -> SparkSession:
    """The session of this process, started if there is none. Pair it with `release`."""
    with _Shared.lock:
        if _Shared.session is not None and why_gone(_Shared.session) is not None:
            # It died, or somebody stopped it behind our back. Others who use it want it as it was.
            again = _Shared.started_with
            _end()
            _start(again)
        elif _Shared.session is None:
            _start(Wish(master, memory, conf))
        running = _Shared.master
        if master and master != running:
            if not _Shared.users:
                _end()
            raise EngineUnavailable(
                f"Spark already runs in this process with master {running}, and a process has "
                f"only one. Leave the master out, or use {master} in a process of its own.",
                master=master,
                running=running,
            )
        _Shared.users += 1
        assert _Shared.session is not None
        return _Shared.session


def release(session: SparkSession) -> None:
    """Give the session back. The last one stops it, if it was started here."""
    with _Shared.lock:
        if session is not _Shared.session:
            # It died, and another has taken its place.
            return
        _Shared.users -= 1
        if _Shared.users == 0:
            _end()


def is_running() -> bool:
    """Whether this process has a session with a JVM, ours or another's."""
    if "pyspark.sql" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    return session is not None and why_gone(session) is None


def find_java(environ: Mapping[str, str]) -> str:
    """The `java` that Spark would use, checked for its version; else one clear sentence."""
    home = environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else environ.get("PATH"))
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on this machine"
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and there is no Java {where}. "
            f"{HOW_TO_GET_JAVA}",
            java_home=home,
        )
    told = subprocess.run(
        [java, "-version"], capture_output=True, text=True, check=False, timeout=60
    ).stderr
    version = java_version(told)
    if version is None or version < JAVA_VERSION_MIN:
        found = f"version {version}" if version else "of a version that could not be read"
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is {found}. "
            f"{HOW_TO_GET_JAVA}",
            java=java,
            version=version,
        )
    return java


def java_version(told: str) -> int | None:
    """The feature release in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_392"."""
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match.group(1)) if match else None


def hush_pyspark() -> None:
    """Keep PySpark's Python side off the console: it logs every SQL error that it also raises, and
    warns about new pandas versions at every `mapInArrow`, though we hand it no pandas."""
    from pyspark.logger import PySparkLogger

    warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def local_settings(
    master: str, memory: str | None, folder: Path, conf: Mapping[str, str]
) -> dict[str, str]:
    """Everything that our own Spark is started with; `conf` has the last word."""
    local = master.startswith("local")
    cores = os.cpu_count() or 1
    settings = {
        "spark.app.name": "tidelock",
        "spark.master": master,
        "spark.driver.memory": (memory if local else None) or default_memory(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark walks a query recursively. A thread of it whose stack overflows leaves its caller
        # waiting for ever.
        "spark.driver.extraJavaOptions": (
            f"-Xss{THREAD_STACK} -Dlog4j2.configurationFile={_log_file_uri(folder)}"
        ),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(max(2, min(cores, 16)) if local else 64),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # With a limit in bytes Spark asks for the size of a batch after every row, which takes
        # longer than to write the row. Without it, a batch has to be of few rows.
        EXCLUDED_RULES: without_wrong_rules(""),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.python.worker.reuse": "true",
        # Rows go between the JVM and its Python workers; this is the quickest way.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.executorEnv.PYTHONWARNINGS": f"ignore:{PANDAS_NOTICE}:FutureWarning",
        "spark.executorEnv.LANCE_LOG": "error",
    }
    if local:
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    elif memory:
        settings["spark.executor.memory"] = memory
    return {**settings, **conf}


def default_memory() -> str:
    """A quarter of the machine, between 1 and 8 GiB: a ceiling for the heap, not a reservation."""
    try:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "2g"
    return f"{min(max(machine_bytes // 4 >> 20, 1024), 8192)}m"


def _log_file_uri(folder: Path) -> str:
    return (folder / "log4j2.properties").as_uri()


def _start(wish: Wish) -> None:
    if not is_running():
        if CONNECT_MODE in os.environ:
            raise EngineUnavailable(
                "This process is already a client of a Spark Connect server, and PySpark starts no "
                "Spark beside it. Give that session (spark=) or its URL (remote=)."
            )
        find_java(os.environ)
    from pyspark.sql import SparkSession

    hush_pyspark()
    if forget_dead_jvm(_Shared.gateway):
        _Shared.gateway = None
    if is_running():
        _borrow(SparkSession.builder.getOrCreate().newSession(), wish)
        return
    folder = Path(tempfile.mkdtemp(prefix="tidelock-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "log4j2.properties").write_text(LOG_SETTINGS)
    settings = local_settings(wish.master or "local[*]", wish.memory, folder, wish.conf)
    _Shared.session, _Shared.started_with = _launch(settings, folder / "spark.log"), wish
    _Shared.master = settings["spark.master"]
    _Shared.folder = folder
    _Shared.borrowed = False


def _borrow(session: SparkSession, wish: Wish) -> None:
    master = wish.master
    running = session.conf.get("spark.master", "") or ""
    if master and master != running:
        raise EngineUnavailable(
            f"Spark already runs in this process with master {running}, and a process has only "
            f"one. Give that session (spark=), or use {master} in a process of its own.",
            master=master,
            running=running,
        )
    for key, value in wish.conf.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    _Shared.session, _Shared.started_with = session, wish
    _Shared.master = running
    _Shared.borrowed = True


def _launch(settings: Mapping[str, str], log: Path) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    environment = {"PYSPARK_PYTHON": settings["spark.pyspark.python"]}
    if settings["spark.master"].startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.config(map=dict(settings))
    try:
        with _environment(environment):
            # A JVM outlives its session, and the next session of the process runs in it.
            if _Shared.gateway is None:
                _Shared.gateway = _launch_gateway(settings, log)
            address = _Shared.gateway.java_parameters
            door = {
                "PYSPARK_GATEWAY_PORT": str(address.port),
                "PYSPARK_GATEWAY_SECRET": address.auth_token,
            }
            with _environment(door):
                return builder.getOrCreate()
    except (PySparkRuntimeError, OSError) as error:
        last = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
        raise EngineUnavailable(
            f"Spark did not start: {str(error).rstrip('.')}. It said: {' / '.join(last)}",
            master=settings["spark.master"],
        ) from error


def _launch_gateway(settings: Mapping[str, str], log: Path) -> Any:
    """A JVM whose output goes to `log`. Started here, because a builder's JVM writes to our console
    before it has read any setting."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    launch: Any = launch_gateway
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with log.open("wb") as output, warnings.catch_warnings():
        # Lance warns about every fork; the fork that becomes the JVM never uses Lance.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return launch(conf, {"stdout": output, "stderr": output})


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """The process environment with `changes`, for as long as PySpark looks at it."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _stop(session: SparkSession, failed: list[Exception]) -> None:
    try:
        if why_gone(session) is None:
            session.stop()
    except Exception as error:  # noqa: BLE001
        failed.append(error)


def _end() -> None:
    """Stop the session if it is ours and can be stopped, and forget it."""
    session = _Shared.session
    if session is not None and not _Shared.borrowed:
        # One that does not answer, as a process that was suspended, would be waited for for ever.
        failed: list[Exception] = []
        ending = threading.Thread(
            target=_stop, args=(session, failed), name="tidelock-stop", daemon=True
        )
        ending.start()
        ending.join(STOP_SECONDS_MAX)
        if ending.is_alive() and _Shared.gateway is not None:
            _Shared.gateway.proc.kill()
            ending.join()
            failed.clear()
        if failed:
            raise failed[0]
    if _Shared.folder is not None:
        shutil.rmtree(_Shared.folder, ignore_errors=True)
    _Shared.session, _Shared.folder = None, None
    _Shared.users, _Shared.master, _Shared.borrowed = 0, "", False
