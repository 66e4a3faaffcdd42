"""Where everything in a lake is. docs/storage-layout.md shows the same as a tree.

Names that users choose become one path segment each: percent-encoding with `=` for `%`, so that a
name with slashes, spaces or Unicode neither nests nor collides.
"""

from __future__ import annotations

import re
import secrets
from urllib.parse import quote, unquote

from tidelock.model.arguments import check_text

FORMAT = 1
LAKE = "_tidelock/lake.json"
BRANCHES = "_tidelock/branches"
LOG = "_tidelock/log"
HINTS = "_tidelock/hints"
TAGS = "_tidelock/tags"
OPERATIONS = "_tidelock/operations"
INTENTS = "_tidelock/intents"
RECOVERIES = "_tidelock/recoveries"
LEASES = "_tidelock/leases"
HOLDS = "_tidelock/holds"
MIRRORS = "_tidelock/mirrors"
COLLECTIONS = "_tidelock/collections"
DEFINITIONS = "_tidelock/definitions"
ATTEMPTS = "_tidelock/attempts"
POSTS = "_tidelock/posts"
TURNS = "_tidelock/turns"
OFFERS = f"{TURNS}/offers"
RECENT_ROWS = f"{TURNS}/rows"
SINKS = "_tidelock/sinks"
TABLES = "tables"


def encode(name: str) -> str:
    return quote(check_text(name, "A name"), safe="").replace("%", "=").replace(".", "=2E")


def decode(segment: str) -> str:
    return unquote(segment.replace("=", "%"))


def new_id(name: str) -> str:
    """An identity that nobody else has, readable by whoever looks into the lake."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())[:32].strip("-") or "x"
    return f"{slug}-{secrets.token_hex(6)}"


def branch(name: str, incarnation: int) -> str:
    return f"{BRANCHES}/{encode(name)}/{incarnation:08d}.json"


def record(branch_id: str, version: int) -> str:
    return f"{LOG}/{branch_id}/{version:020d}.json"


def hint(branch_id: str) -> str:
    return f"{HINTS}/{branch_id}.json"


def tag(name: str) -> str:
    return f"{TAGS}/{encode(name)}.json"


def operation(branch_id: str, operation_id: str) -> str:
    return f"{OPERATIONS}/{branch_id}/{encode(operation_id)}.json"


def intent(operation_id: str, attempt: str) -> str:
    """Each attempt at an operation has an intent of its own."""
    return f"{INTENTS}/{encode(operation_id)}.{attempt}.json"


def recovery(branch_id: str, operation_id: str) -> str:
    return f"{RECOVERIES}/{branch_id}/{encode(operation_id)}.json"


def definition(definition_id: str) -> str:
    return f"{DEFINITIONS}/{definition_id}.json"


def attempts(branch_id: str, table_id: str) -> str:
    return f"{ATTEMPTS}/{branch_id}/{table_id}"


def sink_name(name: str) -> str:
    return f"{SINKS}/names/{encode(name)}.json"


def sink(sink_id: str) -> str:
    return f"{SINKS}/{sink_id}"


def table(table_id: str) -> str:
    return f"{TABLES}/{table_id}"
