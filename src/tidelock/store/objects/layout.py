"""Where everything in a lake is. docs/storage-layout.md shows the same as a tree.

Names that users choose become one path segment each: percent-encoding with `=` for `%`, so that a
name with slashes, spaces or Unicode neither nests nor collides. One that would be too long for a
file system is cut off, and ends in `~` and a hash of all of it. Branches and tags are found without
regard to case, so that their segments are those of their names in lower case.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from urllib.parse import quote, unquote

from tidelock.model.arguments import check_text
from tidelock.model.names import fold

FORMAT = 1
MAIN = "main"
"""The name and the id of the branch that is always there."""
LAKE = "_tidelock/lake.json"
BRANCHES = "_tidelock/branches"
LOG = "_tidelock/log"
PAST = "_tidelock/past"
PUBLISHED = "_tidelock/published"
TAGS = "_tidelock/tags"
OPERATIONS = "_tidelock/operations"
INTENTS = "_tidelock/intents"
RECOVERIES = "_tidelock/recoveries"
LEASES = "_tidelock/leases"
HOLDS = "_tidelock/holds"
MIRRORS = "_tidelock/mirrors"
COLLECTIONS = "_tidelock/collections"
DEFINITIONS = "_tidelock/definitions"
SCHEMAS = "_tidelock/schemas"
RENUMBERINGS = "_tidelock/renumberings"
ATTEMPTS = "_tidelock/attempts"
POSTS = "_tidelock/posts"
TURNS = "_tidelock/turns"
SINKS = "_tidelock/sinks"
SOURCES = "_tidelock/sources"
DISCARDED = "_tidelock/discarded"
RESERVE = "_tidelock/reserve"
TABLES = "tables"


SEGMENT_MAX = 160
"""So long may a name be as a segment; what else is in the segment has to fit as well."""


def encode(name: str) -> str:
    plain = quote(check_text(name, "A name"), safe="").replace("%", "=")
    plain = plain.replace(".", "=2E").replace("~", "=7E")
    if len(plain) <= SEGMENT_MAX:
        return plain
    digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{plain[: SEGMENT_MAX - len(digest) - 1]}~{digest}"


def decode(segment: str) -> str | None:
    """The name that a segment stands for; None if it was too long to be kept whole."""
    return None if "~" in segment else unquote(segment.replace("=", "%"))


def new_id(name: str) -> str:
    """An identity that nobody else has, readable by people who look into the lake."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "x"
    return f"{slug}-{secrets.token_hex(6)}"


def branch_folder(name: str) -> str:
    return f"{BRANCHES}/{encode(fold(name))}"


def branch(name: str, incarnation: int) -> str:
    return f"{branch_folder(name)}/{incarnation:08d}.json"


def record(branch_id: str, version: int) -> str:
    return f"{LOG}/{branch_id}/{version:020d}.json"


def checkpoint(branch_id: str, last: int, span: int) -> str:
    return f"{PAST}/{branch_id}/{last:020d}-{span}.json"


def tag(name: str) -> str:
    return f"{TAGS}/{encode(fold(name))}.json"


def operation(branch_id: str, operation_id: str) -> str:
    return f"{OPERATIONS}/{branch_id}/{encode(operation_id)}.json"


def intent(operation_id: str, attempt: str) -> str:
    """Each attempt at an operation has an intent of its own."""
    return f"{INTENTS}/{encode(operation_id)}.{attempt}.json"


def recovery(branch_id: str, operation_id: str) -> str:
    return f"{RECOVERIES}/{branch_id}/{encode(operation_id)}.json"


def definition(definition_id: str) -> str:
    return f"{DEFINITIONS}/{definition_id}.json"


def schema(schema_id: str) -> str:
    return f"{SCHEMAS}/{schema_id}.json"


def renumbering(name: str) -> str:
    return f"{RENUMBERINGS}/{name}.json"


def attempts(branch_id: str, table_id: str) -> str:
    return f"{attempts_of(branch_id)}/{table_id}"


def attempts_of(branch_id: str) -> str:
    return f"{ATTEMPTS}/{branch_id}"


def sink_name(name: str) -> str:
    return f"{SINKS}/names/{encode(name)}.json"


def sink(sink_id: str) -> str:
    return f"{SINKS}/{sink_id}"


def source_name(name: str) -> str:
    return f"{SOURCES}/names/{encode(name)}.json"


def source(source_id: str) -> str:
    return f"{SOURCES}/{source_id}"


def table(table_id: str) -> str:
    return f"{TABLES}/{table_id}"


_TABLE_FILE = re.compile(
    rf"{TABLES}/[a-z0-9-]+-[0-9a-f]{{12}}/"
    r"(data/[\w-]+\.lance|_deletions/[\w-]+\.(arrow|bin)|_indices/[0-9a-f-]{36}/.+"
    r"|_versions/\w+\.(manifest|json)|_transactions/[\w-]+\.txn|_sums/.+\.json|\w+/\.tmp.*)"
)


def is_table_file(key: str) -> bool:
    """Whether a file in the folder of tables is of Lance, which calls `.tmp…` what it has not
    finished, or of Tidelock: others are left alone."""
    return _TABLE_FILE.fullmatch(key) is not None
