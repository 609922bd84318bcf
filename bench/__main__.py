"""``python -m bench [SECTION]... [--rounds N] [--requests N]``.

Every figure is a ratio of two things that were measured in the same run, in turns; it is the median of the rounds and
stands beside its goal. Nothing here fails a build: a machine with other work on it measures that work too.
"""

from __future__ import annotations

import argparse
import sys

from bench.admission import measure_admission
from bench.cache import measure_cache, measure_churn
from bench.measure import Row, table
from bench.neighbours import measure_neighbours
from bench.offline import measure_cli, measure_core, measure_files
from bench.program import measure_program
from bench.rehearsal import measure_rehearsal
from bench.reloading import measure_reload
from bench.scanning import measure_scan
from bench.serving import measure_idle, measure_serving, measure_start
from bench.shapes import measure_shapes
from bench.upgrading import measure_preflight

SECTIONS = {
    "serve": measure_serving,
    "start": measure_start,
    "admission": measure_admission,
    "core": measure_core,
    "program": measure_program,
    "rehearsal": measure_rehearsal,
    "shapes": measure_shapes,
    "cli": measure_cli,
    "files": measure_files,
    "scan": measure_scan,
    "preflight": measure_preflight,
    "cache": measure_cache,
    "reload": measure_reload,
    "idle": measure_idle,
    "churn": measure_churn,
    "neighbours": measure_neighbours,
}
LONG = ("idle", "churn", "neighbours")


def main() -> int:
    """Print the table; 1 where nothing could be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help=f"of {', '.join(SECTIONS)}; without one all but {', '.join(LONG)}, which take minutes",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement, interleaved (default 5)")
    parser.add_argument("--requests", type=int, default=20_000, help="requests of each load run (default 20000)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]}; known: {', '.join(SECTIONS)}")
    rows: list[Row] = []
    for name in arguments.sections or [name for name in SECTIONS if name not in LONG]:
        sys.stderr.write(f"measuring {name} ...\n")
        rows += SECTIONS[name](arguments.rounds, arguments.requests)
    sys.stdout.write(f"{table(rows)}\n")
    return 0 if any(row.ratio is not None for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
