"""The engine of a lake: where its Spark session comes from, made on first need.

Owns: the settings of the engine (argument, then environment, then configuration file, then
default) and the sessions that were made here. A session of the user is used and never changed or
stopped.

Invariants:
- nothing of PySpark is imported and no JVM is started before the first `get()`;
- what `get()` returns answered just now; a session of ours that is gone is replaced by another;
- one process has at most one JVM session of ours: engines share it, the last to close stops it;
- our JVM writes to a file, never to the console;
- what we put into the process environment is gone after `close()`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidelock.errors import Advice, EngineError, EngineUnavailable, InvalidOption
from tidelock.model.time.zones import UTC, ZONE_SETTING
from tidelock.run.engine import jvm
from tidelock.run.engine.connect import connect, leave, place_of
from tidelock.run.engine.rules import EXCLUDED_RULES, without_wrong_rules
from tidelock.store.spark.sessions import (
    Speaker,
    could_not,
    engine_errors,
    introduce,
    is_client,
    speaker_of,
    unavailable,
    why_gone,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("spark", "sail")
BELIEVED_SECONDS = 0.1
"""A session that has just answered is not asked again whether it is there."""
STARTS_AGAIN = "Another one is started when it is next needed."
CONNECTS_AGAIN = "Another session is begun when it is next needed, as soon as the server answers."
GIVE_ANOTHER = (
    "It was given to the lake, which cannot start another. Open the lake again with a session that "
    "works."
)
CONFIG_FILE = "tidelock.toml"
# What our queries rely on, on every engine whose session we make.
SESSION_CONF = {ZONE_SETTING: UTC, "spark.sql.ansi.enabled": "true"}
SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True)
class EngineSettings:
    """Which engine to use and where. `None` means: not said, use the default."""

    engine: str | None = None
    master: str | None = None
    memory: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def over(self, lower: EngineSettings) -> EngineSettings:
        """These settings, completed by `lower`. Who says where queries run says all of it: a
        `master` given as an argument is not mixed with a `remote` from the environment."""
        says_where = self.master or self.remote or self.engine == "sail"
        place = self if says_where else lower
        return EngineSettings(
            engine=self.engine or place.engine,
            master=place.master,
            remote=place.remote,
            memory=self.memory or lower.memory,
            conf={**lower.conf, **self.conf},
        )

    def checked(self) -> EngineSettings:
        """The settings with their defaults, or an error that says what contradicts."""
        engine = self.engine or "spark"
        if engine not in ENGINES:
            raise InvalidOption(
                f"There is no engine {engine!r}. Use one of: {', '.join(ENGINES)}.", engine=engine
            )
        if engine == "sail" and (self.master or self.remote):
            raise InvalidOption(
                "The engine 'sail' runs inside this process and takes no master and no remote.",
                Advice(
                    "Leave them out, or use engine='spark'.",
                    "Leave them out, or use --engine spark.",
                ),
                engine=engine,
            )
        if self.master and self.remote:
            raise InvalidOption(
                f"Both a master ({self.master}) and a remote ({self.remote}) were given. "
                "Give the master of a Spark to start, or the URL of a server that runs.",
                master=self.master,
                remote=self.remote,
            )
        if self.remote and not self.remote.startswith("sc://"):
            raise InvalidOption(
                f"{self.remote!r} is not a Spark Connect URL. It looks like sc://host:15002.",
                remote=self.remote,
            )
        return replace(self, engine=engine)


def read_settings(
    given: EngineSettings, environ: Mapping[str, str], working_directory: Path
) -> EngineSettings:
    """Argument over environment over configuration file over default."""
    environment = EngineSettings(
        engine=environ.get("TIDELOCK_ENGINE") or None,
        master=environ.get("TIDELOCK_SPARK_MASTER") or None,
        memory=environ.get("TIDELOCK_SPARK_MEMORY") or None,
        remote=environ.get("TIDELOCK_SPARK_REMOTE") or None,
    )
    # Spark's own variable says the same thing, to everybody; ours goes first.
    spark_wide = EngineSettings(remote=environ.get("SPARK_REMOTE") or None)
    file = _read_config_file(environ.get("TIDELOCK_CONFIG"), working_directory)
    return given.over(environment).over(file).over(spark_wide).checked()


def _read_config_file(named: str | None, working_directory: Path) -> EngineSettings:
    path = Path(named) if named else working_directory / CONFIG_FILE
    if not named and not path.is_file():
        return EngineSettings()
    import tomllib

    try:
        section = tomllib.loads(path.read_text("utf-8")).get("spark", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidOption(
            f"The configuration file {path} cannot be read: {error}. Correct it or remove it.",
            file=str(path),
        ) from error
    known = {"engine", "master", "memory", "remote", "conf"}
    if not isinstance(section, dict) or set(section) - known:
        raise InvalidOption(
            f"The section [spark] of {path} may hold {', '.join(sorted(known))}, and nothing else.",
            file=str(path),
        )
    conf = section.pop("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(v, str) for v in section.values()):
        raise InvalidOption(
            f"The section [spark] of {path} takes strings, and a table for conf.", file=str(path)
        )
    return EngineSettings(**section, conf={key: _conf_text(value) for key, value in conf.items()})


def _conf_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Engine:
    """A Spark session on demand. Safe to use from several threads."""

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        engine: str | None = None,
        master: str | None = None,
        memory: str | None = None,
        remote: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        given = EngineSettings(engine, master, memory, remote, dict(conf or {}))
        if spark is not None and given != EngineSettings():
            raise InvalidOption(
                "A session was given together with engine, master, memory, remote or conf. "
                "Give the session alone: it is used as it is."
            )
        self._given = spark
        self._session = spark
        self.settings = None if spark is not None else read_settings(given, os.environ, Path.cwd())
        self._lock = threading.Lock()
        self._undo: list[Callable[[], None]] = []
        self._closed = False
        self._answered = 0.0
        """When the session was last known to be there."""
        self._failure: EngineError | None = None
        self._failed = 0.0
        """Why the last attempt to start a session failed, and when."""
        self._small: SparkSession | None = None
        self._followed: dict[str, str] = {}
        """The settings that the session had when the one for small queries was made."""

    @property
    def started(self) -> bool:
        return self._session is not None

    @property
    def name(self) -> str:
        """Which engine this is, for people: `spark`, `sail`, or where the server is."""
        if self.settings is None:
            return "the given session"
        return self.settings.remote or self.settings.master or self.settings.engine or "spark"

    @property
    def zone(self) -> str:
        """The time zone in which queries read dates and times. Starts nothing."""
        if self.settings is None:
            assert self._given is not None
            try:
                with engine_errors(self._given, could_not("did not tell its time zone")):
                    return self._given.conf.get(ZONE_SETTING) or UTC
            except EngineUnavailable as error:
                raise self._given_is_gone(error.cause) from error
        return self.settings.conf.get(ZONE_SETTING, SESSION_CONF[ZONE_SETTING])

    def get(self) -> SparkSession:
        """The session; made at the first call, and again when the one that was made is gone.

        EngineUnavailable if there is none to be had, or if the one that was given is gone.
        """
        asked = time.monotonic()
        session, gone = self._session, None
        if session is not None and not self._closed:
            if asked - self._answered < BELIEVED_SECONDS:
                return session
            gone = why_gone(session)
            if gone is None:
                self._answered = asked
                return session
        with self._lock:
            if self._closed:
                raise EngineUnavailable("The engine was closed. Open the lake again.")
            if self._given is not None:
                raise self._given_is_gone(gone or "it was stopped")
            if self._failure is not None and self._failed > asked:
                # Found out for somebody else, while this one waited.
                raise self._failure
            if self._session is not session:
                # Somebody else was first.
                assert self._session is not None
                return self._session
            return self._begin()

    def _given_is_gone(self, words: str) -> EngineUnavailable:
        """Another lake may own the session, and start another in its place: not this one."""
        assert self._given is not None
        return unavailable(speaker_of(self._given), words, GIVE_ANOTHER)

    def _begin(self) -> SparkSession:
        """Start a session, in the place of one that is gone."""
        self._session = self._small = None
        try:
            self._run_undo()
            self._session = self._start()
        except BaseException as error:
            self._run_undo()
            if isinstance(error, EngineError):
                self._failure, self._failed = error, time.monotonic()
            raise
        self._failure, self._answered = None, time.monotonic()
        return self._session

    def peek(self) -> SparkSession | None:
        """The session if there is one, whether it answers or not. Starts nothing."""
        return self._session

    def small(self) -> SparkSession | None:
        """A session beside the other that answers queries over a few local rows sooner.

        Such a query costs what it takes to plan it and to start its tasks. Here it is one task
        where it can be, and nothing is compiled for it. It has the other settings of the session
        as `follow_settings` last found them.
        """
        session = self.get()
        if is_client(session):
            # A server plans its queries, and its sessions are not ours to multiply.
            return None
        small = self._small
        return small if small is not None else self._follow(session)

    def follow_settings(self) -> None:
        """Give the session for small queries the settings that the session has now."""
        session = self.get()
        if not is_client(session):
            self._follow(session)

    def _follow(self, session: SparkSession) -> SparkSession:
        with self._lock, engine_errors(session, could_not("did not tell its settings")):
            found = session.conf.getAll
            if self._session is session and self._small is not None and found == self._followed:
                return self._small
            small = session.newSession()
            introduce(small, speaker_of(session))
            known = small.conf.getAll
            rules = {EXCLUDED_RULES: without_wrong_rules(found.get(EXCLUDED_RULES, ""))}
            for key, value in {**found, **SMALL_CONF, **rules}.items():
                if known.get(key) != value and small.conf.isModifiable(key):
                    small.conf.set(key, value)
            if self._session is session:
                self._small, self._followed = small, found
            return small

    def close(self) -> None:
        """Stop what was started here. A session that was given runs on."""
        with self._lock:
            self._closed = True
            self._session = self._small = None
            self._run_undo()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Engine({self.name}, {'started' if self.started else 'not started'})"

    def _run_undo(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _start(self) -> SparkSession:
        assert self.settings is not None
        if self.settings.engine == "sail":
            return self._start_sail(self.settings)
        remote = self.settings.remote
        if remote:
            speaker = Speaker(f"The Spark Connect server at {place_of(remote)}", CONNECTS_AGAIN)
            return self._connect(remote, self.settings.conf, speaker)
        session = jvm.acquire(
            self.settings.master, self.settings.memory, {**SESSION_CONF, **self.settings.conf}
        )
        introduce(session, Speaker("Spark", STARTS_AGAIN))
        self._undo.append(lambda: jvm.release(session))
        return session

    def _start_sail(self, settings: EngineSettings) -> SparkSession:
        try:
            with _quiet_rust():
                from pysail.spark import SparkConnectServer

                server = SparkConnectServer("127.0.0.1", 0)
        except ImportError as error:
            raise EngineUnavailable(
                "The engine 'sail' is not installed. Install it: pip install 'tidelock[sail]'.",
                engine="sail",
            ) from error
        jvm.hush_pyspark()
        server.start(background=True)
        self._undo.append(server.stop)
        host, port = server.listening_address
        # Sail does not say how wide it is; it runs here, so it is as wide as this machine.
        cores = {"spark.default.parallelism": str(os.cpu_count() or 1)}
        speaker = Speaker("Sail", STARTS_AGAIN)
        return self._connect(f"sc://{host}:{port}", {**cores, **settings.conf}, speaker)

    def _connect(self, url: str, conf: Mapping[str, str], speaker: Speaker) -> SparkSession:
        session: Any = connect(url)
        introduce(session, speaker)
        # Also when the lake is not closed: PySpark's own way to end a session may keep the process
        # from ending. What is registered last is called first, which `finalize` alone would not be.
        ending = weakref.finalize(self, leave, session)
        atexit.register(ending)
        self._undo += [lambda: atexit.unregister(ending), ending]
        # `pyspark.sql.functions` looks at this variable to know which kind of column to make. A
        # process that also has a JVM session keeps what it had.
        if jvm.CONNECT_MODE not in os.environ and not jvm.is_running():
            os.environ[jvm.CONNECT_MODE] = "1"
            self._undo.append(_leave_connect_mode)
        with engine_errors(session, could_not("did not take the settings")):
            for key, value in {**SESSION_CONF, **conf}.items():
                session.conf.set(key, value)
        return session  # type: ignore[no-any-return]


@contextmanager
def _quiet_rust() -> Iterator[None]:
    """Sail reads its log level once, when it is loaded, and reports everything if it finds none."""
    if "RUST_LOG" in os.environ:
        yield
        return
    os.environ["RUST_LOG"] = "error"
    try:
        yield
    finally:
        os.environ.pop("RUST_LOG", None)


def _leave_connect_mode() -> None:
    os.environ.pop(jvm.CONNECT_MODE, None)
