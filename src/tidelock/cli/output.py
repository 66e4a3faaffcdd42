"""What a command prints: one JSON document, or text for people.

Owns: the two consoles. Answers go to stdout; progress and notes go to stderr, and progress only
when it is a terminal. Nothing that comes from data is taken as markup or reaches a terminal as a
control character.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelock.cli.show.cells import NULL, cell, shortened
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from tidelock.model.listing import Listing

# Text that is piped to another program is not folded to any width.
PIPE_WIDTH = 100_000
FOLDED_WIDTH_MIN = 24
GAP = 3
COUNTS = {"rows", "version", "files", "bytes", "inserted", "updated", "deleted", "tables"}
PROSE = {"reason", "status", "message", "answer", "last result", "not due because", "differs in"}
PROSE_WIDTH_MAX = 80
RIGHT = COUNTS | {
    *("rows in", "rows out", "seconds", "epoch", "as of"),
    *(
        "resolved",
        "conflicts",
        "chunks",
        "until",
        "watermark",
        "newest",
        "quarantined",
        "expected",
        "actual",
    ),
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Let the command end as it does for every closed pipe, not by rich's own exit."""
        raise


class Output:
    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        terminal = sys.stdout.isatty()
        self.console = _Console(
            file=sys.stdout, width=None if terminal else PIPE_WIDTH, highlight=False, markup=False
        )
        self.notes = _Console(file=sys.stderr, highlight=False, markup=False)

    def aside(self) -> Output:
        """The same on stderr, for what belongs to a failure."""
        other = Output()
        other.console = _Console(
            file=sys.stderr,
            width=None if sys.stderr.isatty() else PIPE_WIDTH,
            highlight=False,
            markup=False,
        )
        return other

    def answer(self, document: object, show: Callable[[], None]) -> None:
        """The document with --json; else what `show` prints."""
        if self.as_json:
            self.document(document)
        else:
            show()

    def document(self, document: object) -> None:
        self.raw(json.dumps(document, indent=2, ensure_ascii=False) + "\n")

    def raw(self, text: str) -> None:
        sys.stdout.write(text)

    def line(self, text: str = "", style: str = "") -> None:
        self.console.print(Text(text, style), soft_wrap=True)

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair per line, aligned."""
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            text = Text(f"{name.ljust(width)}  ", "dim").append(Text(printable(value), "not dim"))
            self.console.print(text, soft_wrap=True)

    def listing(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], none: str, whole: str = ""
    ) -> None:
        """A table of facts about the lake, or the sentence `none`.

        Sentences in it are shortened if there is a command that shows them `whole`, and stand below
        the table where it leaves them no room.
        """
        if not rows:
            self.line(none, "dim")
            return
        shown = [[printable(value) for value in row] for row in rows]
        prose = [n for n, name in enumerate(columns) if name in PROSE]
        room = self._room(columns, shown, prose)
        longest = max((cell_len(row[n]) for row in shown for n in prose), default=0)
        if room < min(longest, FOLDED_WIDTH_MIN):
            self._sentences_apart(columns, shown, prose)
            return
        width = min(room, PROSE_WIDTH_MAX) if whole else longest
        fitting = [
            [shortened(value, width) if n in prose else value for n, value in enumerate(row)]
            for row in shown
        ]
        self._facts_table(columns, fitting)
        if fitting != shown:
            self.note(f"What ends with … is shown whole by: {whole}")

    def listed(self, found: Listing[Any], none: str, whole: str = "") -> None:
        """What the handle lists, in the columns that it has there."""
        self.listing(list(found.columns), found.cells(), none, whole)

    def _room(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], prose: Sequence[int]
    ) -> int:
        """The width that the other columns leave to each that holds sentences."""
        others = sum(
            max(cell_len(name), *(cell_len(row[n]) for row in rows))
            for n, name in enumerate(columns)
            if n not in prose
        )
        return (self.console.width - others - GAP * len(columns)) // max(len(prose), 1)

    def _sentences_apart(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], prose: Sequence[int]
    ) -> None:
        kept = [n for n in range(len(columns)) if n not in prose]
        self._facts_table([columns[n] for n in kept], [[row[n] for n in kept] for row in rows])
        for row in rows:
            for n in prose:
                if row[n]:
                    named = f"{row[0]}, {columns[n]}: " if len(prose) > 1 else f"{row[0]}: "
                    self.console.print(Text(named, "dim").append(Text(row[n], "not dim")))

    def _facts_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        texts = [[Text(value) for value in row] for row in rows]
        self._table(columns, texts, [name in RIGHT for name in columns])

    def rows(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[bool]
    ) -> None:
        """Rows of data: as a table if it fits, else one value per line."""
        texts = [
            [
                Text(NULL, "dim italic") if value is None else Text(cell(value, not is_number))
                for value, is_number in zip(row, numeric, strict=True)
            ]
            for row in rows
        ]
        names = [printable(name) for name in columns]
        widths = [
            max([cell_len(name), *(row[n].cell_len for row in texts)])
            for n, name in enumerate(names)
        ]
        # A number is never broken over two lines, and other text only where enough of it is left.
        needed = [
            width if is_number else min(width, FOLDED_WIDTH_MIN)
            for width, is_number in zip(widths, numeric, strict=True)
        ]
        if sum(needed) + GAP * len(needed) <= self.console.width:
            self._table(names, texts, numeric, needed)
        else:
            self._records(names, texts)

    def _table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Text]],
        right: Sequence[bool],
        needed: Sequence[int] | None = None,
    ) -> None:
        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        for n, (name, is_right) in enumerate(zip(columns, right, strict=True)):
            table.add_column(
                Text(name),
                justify="right" if is_right else "left",
                overflow="fold",
                min_width=needed[n] if needed else None,
            )
        for row in rows:
            table.add_row(*row)
        self.console.print(table)

    def _records(self, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
        width = max(cell_len(name) for name in columns)
        for number, row in enumerate(rows, start=1):
            self.line(f"row {number}", "bold")
            for name, value in zip(columns, row, strict=True):
                named = Text(f"  {set_cell_size(name, width)}  ", "dim")
                self.console.print(named.append(value), soft_wrap=True)

    def note(self, text: str) -> None:
        """A remark that is not part of the answer."""
        self.notes.print(Text(text, "dim"), soft_wrap=True)

    @contextmanager
    def warning(self) -> Iterator[None]:
        """Tells warnings of the lake as notes, without the line of code that they came from."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for one in caught:
            if one.category is UserWarning:
                self.note(f"warning: {one.message}")
            else:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)

    @contextmanager
    def counting(self, what: str, unit: str = "rows") -> Iterator[Callable[[int], None]]:
        """Shows how many there were so far and how fast; the yielded function adds to them."""
        if not self.notes.is_terminal:
            yield lambda number: None
            return
        from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn

        class Counted(ProgressColumn):
            def render(self, task: Task) -> Text:
                seconds = task.elapsed or 0
                rate = f", {task.completed / seconds:,.0f}/s" if seconds > 1 else ""
                return Text(f"{task.completed:,.0f} {unit}{rate}")

        columns = (SpinnerColumn(), TextColumn("{task.description}"), Counted())
        with self._progress(*columns, TimeElapsedColumn()) as progress:
            task = progress.add_task(what, total=None)
            yield lambda number: progress.advance(task, number)

    @contextmanager
    def stepping(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Shows how many of how many steps are done; the yielded function says so."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with self._progress(*columns) as progress:
            task = progress.add_task(what, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Shows that something is going on."""
        if not self.notes.is_terminal:
            yield
            return
        with self.notes.status(what):
            yield

    def _progress(self, *columns: Any) -> Progress:
        from rich.progress import Progress

        shown = self.notes.is_terminal
        return Progress(*columns, console=self.notes, transient=True, disable=not shown)
