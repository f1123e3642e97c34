"""Measures foretell: `python -m bench CASE …`.

A case measures and makes tables. They are printed; those of a whole run are also written to
bench/results/CASE.json and into the documents. With --quick, --baseline, --seconds or --only they
are printed alone.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import tempfile
from pathlib import Path

from bench import render
from bench.harness import RESULTS, Result, Run

# Cases of `bench.cases` and of `bench.research`.
CASES = {
    "graphs": "our graphs next to torch and a plain export: time, memory, operators",
    "server": "our server next to others, under load; needs wrk",
    "request": "a request outside the model",
    "bulk": "a thousand series in one request, as JSON and as a table",
    "endurance": "memory and answers under load, and when processes end; ten minutes; needs wrk",
    "soak": "memory while good, refused, cut-off and hostile requests come; ten minutes",
    "many-models": "200 models where 20 fit",
    "ledger": "a server with a ledger, and the scores of a million forecasts; needs wrk",
    "replay": "intervals that learn, ETTh2 hour by hour; half an hour; --data FOLDER of ETTh2.csv",
    "batch": "forecasts of a million series, killed and on Ray, too; --data ETTh1.csv",
    "wide": "memory of 862 channels and of 10,000 series; most of an hour",
    "gpu": "every graph on a stand-in for CUDA's libraries; a quarter of an hour",
    "gpu-workers": "two HTTP workers in front of that stand-in; needs wrk",
}
RESEARCH = {
    "accuracy": "the published recipes, trained; days; --data FOLDER of the ETT data sets",
    "attention": "the mechanisms of attention compared; hours; --data ETTh1.csv",
    "covariates": "bike rentals with and without the weather; an hour; --data bikes.csv",
    "coverage": "what intervals hold, by pass and method; --data CHECKPOINT …",
    "history": "quantiles calibrated by a request's own rows; --data CHECKPOINT …",
    "counts": "heads of counts on levels that shift",
    "comparison": "verdicts on two versions, on simulated forecasts; minutes",
}
WITH_BASELINE = ("graphs", "server", "gpu-workers")


# Cases that are not `measure` of the module with their name.
_FUNCTIONS = {
    "bulk": "request:bulk",
    "gpu-workers": "gpu:workers",
    "coverage": "intervals:coverage",
    "history": "intervals:history",
    "counts": "intervals:counts",
}


def measure(case: str, run: Run) -> Result:
    """Run a case."""
    package = "bench.research" if case in RESEARCH else "bench.cases"
    name, _, function = _FUNCTIONS.get(case, case.replace("-", "_")).partition(":")
    module = importlib.import_module(f"{package}.{name}")
    result: Result = getattr(module, function or "measure")(run)
    return result


def main() -> None:
    """Run cases."""
    every = CASES | RESEARCH
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="cases:\n" + "".join(f"  {name:13} {about}\n" for name, about in every.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--quick", action="store_true", help="everything for a moment")
    parser.add_argument(
        "--baseline",
        nargs="+",
        default=[],
        metavar="COMMIT",
        help="measured in turns with this one",
    )
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="parts of the case")
    parser.add_argument("--data", nargs="+", default=[], type=Path)
    given = parser.parse_args()
    if unknown := set(given.cases) - every.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if given.baseline and not set(given.cases) <= set(WITH_BASELINE):
        parser.error(f"--baseline is for {', '.join(WITH_BASELINE)}")
    if shutil.which("wrk") is None and any("needs wrk" in every[case] for case in given.cases):
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    only_printed = given.quick or given.baseline or given.only or given.seconds is not None
    failures: list[str] = []
    for case in given.cases:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            run = Run(
                folder=Path(folder),
                quick=given.quick,
                baselines=tuple(given.baseline),
                seconds=given.seconds,
                data=tuple(given.data),
                only=tuple(given.only),
            )
            result = measure(case, run)
        print(f"\n{result.machine}")
        for name, rows in result.tables.items():
            print(f"\n{name}\n\n{render.table(rows)}", end="", flush=True)
        failures += [f"{case}: {failure}" for failure in result.failures]
        if not only_printed:
            result.write(RESULTS / f"{case}.json")
    if not only_printed:
        # Without a case, from the results of earlier runs.
        render.write()
    for failure in failures:
        print(failure)
    raise SystemExit(bool(failures))


if __name__ == "__main__":
    main()
