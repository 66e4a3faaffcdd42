"""`make bench`, or `python -m bench [names]`: run the claims and print them."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table

from bench import (
    commits,
    concurrency,
    frames,
    growth,
    idling,
    landing,
    large,
    memory,
    merges,
    pipelines,
    requests,
    rules,
    schemas,
    sinks,
    startup,
    stream_costs,
    streams,
    tpch,
    write_streams,
)
from bench.measure import Claim

SUITES = {
    "commits": commits.CLAIMS,
    "growth": growth.CLAIMS,
    "large": large.CLAIMS,
    "concurrency": concurrency.CLAIMS,
    "frames": frames.CLAIMS,
    "memory": memory.CLAIMS,
    "merges": merges.CLAIMS,
    "requests": requests.CLAIMS,
    "rules": rules.CLAIMS,
    "schemas": schemas.CLAIMS,
    "sinks": sinks.CLAIMS,
    "idling": idling.CLAIMS,
    "startup": startup.CLAIMS,
    "landing": landing.CLAIMS,
    "write_streams": write_streams.CLAIMS,
    "streams": [*streams.CLAIMS, *stream_costs.CLAIMS, *pipelines.CLAIMS, *tpch.CLAIMS],
}


def main(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    wanted = [name for name in arguments if name != "--json"]
    known = {f.__name__ for suite in SUITES.values() for f in suite} | set(SUITES)
    if set(wanted) - known:
        print(f"Unknown: {set(wanted) - known}. There are: {', '.join(sorted(known))}.")
        return 2
    claims: list[Claim] = []
    progress = Console(stderr=True)
    for name, suite in SUITES.items():
        for function in suite:
            if wanted and name not in wanted and function.__name__ not in wanted:
                continue
            for claim in function():
                claims.append(claim)
                mark = "ok  " if claim.holds else "MISS"
                progress.print(f"{mark} {claim.measured:6.2f}  {claim.what}", highlight=False)
    if as_json:
        print(json.dumps([{**vars(claim), "holds": claim.holds} for claim in claims], indent=2))
    else:
        show(claims)
    return 0 if all(claim.holds for claim in claims) else 1


def show(claims: list[Claim]) -> None:
    table = Table("what", "measured", "must reach", "", "detail")
    for claim in claims:
        sign = "at least" if claim.at_least else "at most"
        table.add_row(
            claim.what,
            f"{claim.measured:.2f}",
            f"{sign} {claim.limit:g}",
            "[green]ok[/]" if claim.holds else "[red]missed[/]",
            claim.detail,
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
