"""Definitions in `.py` files: functions decorated with `@tidelock.stream_table(...)`.

Owns: executing such a file, calling its functions, and the line of whatever goes wrong in them.
Invariant: a file that does not mention the decorator is not executed; one that does is executed
once, in a namespace of its own that nothing else can import.
"""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from sqlglot.tokenizer_core import TokenType

from tidelock.derive.definitions.decorator import StreamTableFunction, noting
from tidelock.derive.definitions.file_sql import FileSql, Namespace, read_query
from tidelock.derive.definitions.options import check_option
from tidelock.derive.definitions.written import Written, refusal
from tidelock.errors import InputError
from tidelock.model.names import check_name

_DECORATOR = "stream_table"


def read_python(file: Path, data: bytes, namespace: Namespace) -> list[Written]:
    """The definitions of a file, in the order in which it makes them."""
    tree = _parse(file, data)
    _refuse_pipelines(file, tree)
    if not _mentions_decorator(tree):
        return []
    # No statement can import a module of this name; a dataclass looks its own up.
    module = ModuleType(f"definitions in {file}")
    module.__file__ = str(file)
    code = compile(data, str(file), "exec", dont_inherit=True)
    sys.modules[module.__name__] = module
    try:
        with noting() as noted, _naming_lines(file, 1, "The file"):
            exec(code, module.__dict__)
        return [_read_function(file, made, namespace) for made in noted]
    finally:
        del sys.modules[module.__name__]


def why_no_tables(file: Path, data: bytes) -> str:
    """Why a file defines nothing, for a user who expected it to."""
    if _mentions_decorator(_parse(file, data)):
        return "it was executed, and decorated no function with @tidelock.stream_table()"
    return "it does not use @tidelock.stream_table(), and was not executed"


def _parse(file: Path, data: bytes) -> ast.Module:
    try:
        return ast.parse(data, str(file))
    except SyntaxError as error:
        raise refusal(file, error.lineno or 1, f"This is not Python: {error.msg}.") from error
    except (ValueError, RecursionError) as error:
        raise refusal(file, 1, f"This is not Python: {error}.") from error


def _refuse_pipelines(file: Path, tree: ast.Module) -> None:
    """PySpark's own decorators are for functions that return DataFrames, which need an engine."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        if any(name.split(".")[:2] == ["pyspark", "pipelines"] for name in names):
            raise refusal(
                file,
                getattr(node, "lineno", 1),
                "pyspark.pipelines defines tables by DataFrames, and a stream table is defined by "
                "SQL. Use @tidelock.stream_table() on a function that returns the query as text.",
            )


def _mentions_decorator(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == _DECORATOR:
            return True
        if isinstance(node, ast.Attribute) and node.attr == _DECORATOR:
            return True
        if isinstance(node, ast.alias) and node.name == _DECORATOR:
            return True
    return False


def _read_function(file: Path, made: StreamTableFunction, namespace: Namespace) -> Written:
    if made.file != str(file):
        raise refusal(
            file,
            1,
            f"The stream table {made.name!r} is defined by {Path(made.file).name}, which this file "
            "uses. Define it in a file of this folder.",
        )
    what = f"The function {made.function.__name__}"
    try:
        inspect.signature(made.function).bind()
    except TypeError as error:
        raise refusal(
            file, made.line, f"{what} takes arguments, and is called without any. Remove them."
        ) from error
    with _naming_lines(file, made.line, what):
        text = made.function()
    if not isinstance(text, str):
        raise refusal(
            file, made.line, f"{what} returned {type(text).__name__}. Return the query as text."
        )
    sql = FileSql(text, file, namespace, made.line)
    tokens = sql.tokens()
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise refusal(file, made.line, f"{what} returned no query. Return one as text.")
    try:
        name = check_name(made.name, "table")
        options = {option: check_option(option, value) for option, value in made.options.items()}
    except InputError as error:
        raise refusal(file, made.line, error.message, advice=error.advice) from error
    return Written(name, read_query(sql, tokens), file, made.line, options)


@contextmanager
def _naming_lines(file: Path, line: int, what: str) -> Iterator[None]:
    """Whatever the user's code raises, as an error at the line of the file that it came from."""
    try:
        yield
    except (Exception, SystemExit) as error:
        inside = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == str(file) and frame.lineno
        ]
        told = f"{type(error).__name__}: {error}".rstrip(": .")
        raise refusal(
            file, inside[-1] if inside else line, f"{what} raised {told}. Correct it."
        ) from error
