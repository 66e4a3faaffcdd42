"""Names that are in the way: of the SQL grammar, of quoting, of patterns, and of our own names."""

from __future__ import annotations

from tidelock.errors import InvalidSchema
from tidelock.model.ddl import parse_schema
from tidelock.model.names import quote


def _words(text: str) -> list[str]:
    return text.split()


KEYWORDS = _words("""
all distinct from select order group values table lateral interval date timestamp case end null
true false not in is exists between and or on using join left right cross full semi anti natural
union except intersect minus having limit offset window over partition rows range array struct map
cast filter first last any some every default with as by time year pivot qualify recursive sort row
current_date unnest explode count sum if when then else key value position nulls desc
""")

INTERNAL = _words("""
c1 c2 c10 d1 _w r0 r1 f0 f1 _rowid _rowaddr _one packed _net l r o d n g q0r0 a0 _n _times _weight
_version _change __tidelock tidelock_hash _row _key _k0 _m0 body state changes
""")

QUOTED = ["a`b", "`", "``", "it's", "'x'", 'a"b', '"q"', "back\\slash", "\\", "'; --"]
DOTTED = ["a.b", "t.a", "x.y.z", ".", "a.", ".b", "1.5"]
MARKS = _words("""
$x #0 #1 {x} {f0} {} {0} %s % %(x)s a-b a;b a,b a:b --c /*c*/ a(b) [0] @x ? :p * + 1 007 -1 1a a/b
<a> = ! \\u0061 ~ ^ | &
""")
UNICODE = ["é", "straße", "日本", "Ω", "😀", "İ", "ﬀ", "a\u00a0b", "a\u200db", "Ünïcode"]
SPACES = ["a b", "two  spaces", "select from", "MiXed Case", "UPPER"]

HOSTILE = [*KEYWORDS, *INTERNAL, *QUOTED, *DOTTED, *MARKS, *UNICODE, *SPACES]


def _is_column(name: str) -> bool:
    try:
        parse_schema(f"{quote(name)} BIGINT", key=name)
    except InvalidSchema:
        return False
    return True


COLUMNS = [name for name in HOSTILE if _is_column(name)]
"""Those that a column of a table may have, a key too. Inside of a query all of them may be used."""
