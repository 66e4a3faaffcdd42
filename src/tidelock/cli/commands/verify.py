"""`tidelock verify`: whether everything in a lake is what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.errors import CorruptObject
from tidelock.model.time.durations import show_size

if TYPE_CHECKING:
    from tidelock.store.upkeep.repair.inventory import Finding
    from tidelock.store.upkeep.repair.verification import VerifyReport


def register(app: typer.Typer) -> None:
    command(app, "verify", example="tidelock verify")(verify)


def verify(
    call: Call,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Which; else the whole lake.")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", min=1, help="So many files, chosen by chance."),
    ] = None,
) -> None:
    """Compare every object and every file with the checksum that was kept when it was written.

    Reads all that is there, old versions too, and changes nothing. Ends with exit code 7 when
    something is damaged or gone, and names it.
    """
    with call.open() as lake, call.output.stepping("verifying") as step:
        report = lake.verify(tables or None, sample=sample, progress=step)
    call.output.answer(documents.of_verification(report), lambda: _show(call, report))
    if not report.ok:
        named = [finding.key for finding in report.damaged]
        raise CorruptObject(
            f"{count(len(named), 'file')} of this lake {'is' if len(named) == 1 else 'are'} "
            f"damaged or gone: {', '.join(named[:5])}{', …' if len(named) > 5 else ''}.",
            keys=named,
        )


def _show(call: Call, report: VerifyReport) -> None:
    show_findings(call, report.findings)
    told = f"{count(report.objects, 'object')}, {count(report.files, 'file')}"
    call.output.line(f"Verified {told}, {show_size(report.size_bytes)}.")


def show_findings(call: Call, findings: tuple[Finding, ...]) -> None:
    """What is wrong with which file, and what to do about it."""
    for finding in findings:
        of = f" of table {finding.table!r}" if finding.table else ""
        call.output.line(f"{finding.what}: {finding.key}{of}: {finding.why}")
        if finding.is_damage:
            call.output.line(f"    {finding.advice}")
    if findings:
        call.output.line()
