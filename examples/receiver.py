"""A small HTTP receiver of rows: what the other side of an `http` sink looks like.

It applies each Idempotency-Key once, in one transaction with the rows, so that a chunk that arrives
again changes nothing. `--die-after N` ends the process, without an answer, when the N-th chunk was
applied: the worst moment.

    python examples/receiver.py rows.db --port 8080
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer

TABLES = """
CREATE TABLE IF NOT EXISTS chunks (key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS rows (line TEXT);
"""


class Receiver(BaseHTTPRequestHandler):
    database: sqlite3.Connection
    die_after = 0
    taken = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self.database:
            done = self.database.execute(
                "INSERT OR IGNORE INTO chunks VALUES (?)", [self.headers["Idempotency-Key"]]
            )
            if done.rowcount:
                lines = [[line] for line in body.splitlines()]
                self.database.executemany("INSERT INTO rows VALUES (?)", lines)
        Receiver.taken += 1
        if Receiver.taken == self.die_after:
            os._exit(1)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--die-after", type=int, default=0)
    given = parser.parse_args()
    Receiver.database = sqlite3.connect(given.database)
    Receiver.database.executescript(TABLES)
    Receiver.die_after = given.die_after
    server = HTTPServer(("127.0.0.1", given.port), Receiver)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
