"""The curves of runs, for each class that takes them."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.benchmarks.run import Problem, Run
from analyzer.slo import SloClass
from analyzer.sweep.curve import Curve, curve
from analyzer.sweep.pool import by_folder, pools, unique


def curves_by_class(
    runs: Sequence[Run], classes: Sequence[SloClass]
) -> tuple[list[list[Curve]], list[Problem]]:
    """Returns the curves of each class; without classes one list of unjudged ones.

    A class takes the runs of models that it matches, as tenants, routes and headers
    are not in a benchmark.
    """
    kept, problems = unique(runs)
    kept = by_folder(kept)
    if not classes:
        return [[curve(listed, None) for listed in pools(kept)]], problems
    curves = []
    for slo_class in classes:
        match = slo_class.match
        taken = [run for run in kept if not run.model or match.takes_model({run.model})]
        curves.append([curve(listed, slo_class) for listed in pools(taken)])
        if kept and not taken:
            models = ", ".join(sorted({run.model for run in kept}))
            message = f"takes none of the models measured ({models})"
            problems.append(Problem("", f"class {slo_class.name}", message))
    return [listed for listed in curves if listed], problems
