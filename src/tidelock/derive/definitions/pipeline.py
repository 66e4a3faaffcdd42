"""The folder of a pipeline: its name, its specification and the files that belong to it.

Owns: reading `spark-pipeline.yml`, the file that Spark Declarative Pipelines has in such a folder:

    name: shop                          required; names the pipeline in every origin
    libraries:                          or `definitions:`; without it every .sql and .py file
      - glob: {include: transformations/**}
    catalog: spark_catalog              names that are qualified with these two, and no others,
    database: shop                      are names in the lake; `schema` is the same as `database`
    configuration: {spark.x: "1"}       for the session that runs the queries
    storage: file:///checkpoints        accepted and not needed: the lake holds all state

Invariant: the files come sorted by path, each once, and all of them lie in the folder. Files and
folders whose name begins with a dot or an underscore do not count unless they are named in full.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import yaml

from tidelock.derive.definitions.file_sql import Namespace
from tidelock.derive.definitions.written import refusal
from tidelock.errors import InvalidName, InvalidOption
from tidelock.model.names import check_name, suggest

SPECIFICATIONS = ("spark-pipeline.yml", "spark-pipeline.yaml", "pipeline.yml", "pipeline.yaml")
SUFFIXES = (".sql", ".py")
SCHEMA = "schema"
"""The folder of tables; its .sql files belong to the pipeline, whatever its specification names."""
_TEXTS = ("name", "storage", "catalog", "database", "schema")
_GLOBS = ("libraries", "definitions")
_KEYS = (*_TEXTS, *_GLOBS, "configuration")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A folder of definitions, before any of them is read."""

    name: str
    folder: Path
    files: tuple[Path, ...]
    namespace: Namespace = field(default_factory=Namespace)
    configuration: tuple[tuple[str, str], ...] = ()


def read_pipeline(folder: Path) -> Pipeline:
    """The pipeline of a folder, by its specification or, without one, by what lies in it."""
    if not folder.is_dir():
        raise InvalidOption(f"{str(folder)!r} is not a folder of definitions.", file=str(folder))
    found = [folder / name for name in SPECIFICATIONS if (folder / name).is_file()]
    if len(found) > 1:
        raise refusal(found[1], 1, f"{found[0].name} is a specification as well. Remove one.")
    if found:
        return _Specification(found[0]).read()
    files = _all_files(folder)
    if not files:
        raise InvalidOption(
            f"There is no .sql or .py file in {str(folder)!r}. Name a folder of definitions.",
            file=str(folder),
        )
    resolved = folder.resolve().name
    try:
        name = check_name(resolved, "pipeline")
    except InvalidName as error:
        raise InvalidOption(
            f"The folder {str(folder)!r} does not name a pipeline: {error.message} Give it a "
            "spark-pipeline.yml with a name.",
            file=str(folder),
        ) from error
    return Pipeline(name, folder, files)


def _all_files(folder: Path) -> tuple[Path, ...]:
    return _sorted(folder, {path for suffix in SUFFIXES for path in folder.rglob(f"*{suffix}")})


def _sorted(folder: Path, paths: set[Path]) -> tuple[Path, ...]:
    kept = [path for path in paths if path.is_file() and not _hidden(path.relative_to(folder))]
    return tuple(sorted(kept, key=lambda path: path.relative_to(folder).as_posix()))


def _with_schema(folder: Path, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files, and those in which tables are declared beside them."""
    found = {*files, *_sorted(folder, set((folder / SCHEMA).glob("*.sql")))}
    return tuple(sorted(found, key=lambda path: path.relative_to(folder).as_posix()))


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


class _Specification:
    """Reads a specification from YAML nodes, which know their lines."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folder = file.parent

    def read(self) -> Pipeline:
        entries = dict(self._entries(self._root(), _KEYS))
        if "name" not in entries:
            raise refusal(self._file, 1, "The pipeline has no name. Add `name: …`.")
        texts = {key: self._text(entries[key], key) for key in _TEXTS if key in entries}
        for one, other in (("database", "schema"), _GLOBS):
            if one in entries and other in entries:
                raise self._refuse(entries[other], f"{one} and {other} are the same. Remove one.")
        name = self._pipeline_name(entries["name"], texts["name"])
        namespace = Namespace(texts.get("catalog"), texts.get("database", texts.get("schema")))
        globs = entries.get("libraries", entries.get("definitions"))
        files = _all_files(self._folder) if globs is None else self._files(globs)
        files = _with_schema(self._folder, files)
        return Pipeline(name, self._folder, files, namespace, self._configuration(entries))

    def _root(self) -> yaml.Node:
        try:
            root = yaml.compose(self._file.read_bytes(), Loader=yaml.SafeLoader)
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or "it is not UTF-8 text"
            line = mark.line + 1 if mark else 1
            raise refusal(self._file, line, f"This is not YAML: {problem}.") from error
        if root is None:
            raise refusal(self._file, 1, "The specification is empty. Add `name: …`.")
        return root

    def _entries(
        self, node: yaml.Node, keys: tuple[str, ...] | None
    ) -> Iterator[tuple[str, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._refuse(node, "Expected keys and values here, as in `name: shop`.")
        seen: set[str] = set()
        for key, value in node.value:
            text = self._text(key, "A key")
            if text in seen:
                raise self._refuse(key, f"The key {text!r} is given twice. Remove one.")
            if keys is not None and text not in keys:
                raise self._refuse(key, f"The key {text!r} is not known. {suggest(text, keys)}")
            seen.add(text)
            yield text, value

    def _text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != "tag:yaml.org,2002:str":
            raise self._refuse(node, f"{what} must be text. Write it in quotes.")
        return str(node.value)

    def _pipeline_name(self, node: yaml.Node, text: str) -> str:
        try:
            name = check_name(text, "pipeline")
        except InvalidName as error:
            raise self._refuse(node, error.message) from error
        if "/" in name:
            raise self._refuse(node, f"{name!r} cannot be a pipeline name: it holds a slash.")
        return name

    def _configuration(self, entries: dict[str, yaml.Node]) -> tuple[tuple[str, str], ...]:
        if "configuration" not in entries:
            return ()
        pairs = self._entries(entries["configuration"], None)
        return tuple((key, self._text(value, f"The value of {key}")) for key, value in pairs)

    def _files(self, node: yaml.Node) -> tuple[Path, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._refuse(node, "Expected a list, as in `- glob: {include: queries/**}`.")
        found: set[Path] = set()
        for item in node.value:
            found.update(self._included(self._include(item)))
        return tuple(sorted(found, key=lambda path: path.relative_to(self._folder).as_posix()))

    def _include(self, item: yaml.Node) -> yaml.Node:
        for key in ("glob", "include"):
            entries = dict(self._entries(item, (key,)))
            if key not in entries:
                raise self._refuse(item, f"The key {key!r} is missing here.")
            item = entries[key]
        return item

    def _included(self, node: yaml.Node) -> tuple[Path, ...]:
        pattern = self._text(node, "A glob")
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/" or ".." in parts:
            raise self._refuse(
                node, f"{pattern!r} leaves the folder. Name files relative to it, without '..'."
            )
        if not glob.has_magic(pattern):
            matched = tuple(path for path in (self._folder / pattern,) if path.is_file())
        else:
            below = "/*" if pattern.endswith("**") else ""
            try:
                matched = _sorted(self._folder, set(self._folder.glob(pattern + below)))
            except ValueError as error:
                raise self._refuse(node, f"{pattern!r} is no pattern: {error}.") from error
        if not matched:
            raise self._refuse(node, f"{pattern!r} matches no file. Correct it or remove it.")
        for path in matched:
            if path.suffix not in SUFFIXES:
                raise self._refuse(
                    node,
                    f"{pattern!r} matches {path.relative_to(self._folder).as_posix()!r}, which is "
                    "neither .sql nor .py. Narrow the pattern, or move the file.",
                )
        return matched

    def _refuse(self, node: yaml.Node, message: str) -> Exception:
        return refusal(self._file, node.start_mark.line + 1, message)
