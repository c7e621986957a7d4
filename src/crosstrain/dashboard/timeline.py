"""The plan as a picture: when each site probably begins, how much of the time it trains, and when the run is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstrain.domain.plural import counted
from crosstrain.errors import EnvironmentFault, UsageError
from crosstrain.placement.shape import time_limit
from crosstrain.wire.placement import PlanReply, SitePlanBody

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOUR_S = 3600.0
FORMATS = (".png", ".svg", ".pdf")


def draw(plan: PlanReply, target: Path) -> None:
    """Writes the picture; its kind follows from the name.

    Raises:
        UsageError: another ending than .png, .svg or .pdf.
        EnvironmentFault: matplotlib is missing, or the file cannot be written.
    """
    if target.suffix.lower() not in FORMATS:
        raise UsageError(f"Expected a name that ends with {', '.join(FORMATS)}, found {target.name}.", "see --help")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentFault(
            "A picture needs matplotlib, which is not installed.", "pip install 'crosstrain[plot]'"
        ) from None
    working = [site for site in plan.sites if site.first_start_s]
    figure = Figure(figsize=(9, 1.6 + 0.5 * max(1, len(working))), layout="constrained")
    axes = figure.add_subplot()
    end_h = _end(plan, working)
    for row, site in enumerate(working):
        _bar(axes, row, site, plan.finish_s["0.5"], end_h)
    _finish(axes, plan)
    axes.set_yticks(range(len(working)), [f"{site.site} ({site.role})" for site in working])
    axes.invert_yaxis()
    axes.set_xlim(0, end_h)
    axes.set_xlabel("hours from now")
    axes.set_title(f"{plan.run}: {plan.reason}", fontsize=9, wrap=True)
    try:
        figure.savefig(target, dpi=150)
    except OSError as error:
        raise EnvironmentFault(f"{target} cannot be written: {error.strerror}.", "choose another place") from error


def _end(plan: PlanReply, working: list[SitePlanBody]) -> float:
    times = [seconds for seconds in (plan.finish_s["0.95"], plan.finish_s["0.5"]) if seconds is not None]
    times += [seconds for site in working for seconds in site.first_start_s if seconds is not None]
    # A run that is done has nothing to show, but an axis has a length.
    return 1.05 * max([*times, 60.0] if times else [HOUR_S]) / HOUR_S


def _bar(axes: Axes, row: int, site: SitePlanBody, finish_s: float | None, end_h: float) -> None:
    low, middle, high = (end_h if s is None else s / HOUR_S for s in site.first_start_s)
    span = max(0.0, (end_h if finish_s is None else finish_s / HOUR_S) - middle)
    share = min(1.0, site.active_h / span) if span else 0.0
    axes.barh(row, span, left=middle, height=0.6, color="#4477aa", alpha=0.25 + 0.6 * share)
    axes.errorbar(middle, row, xerr=[[middle - low], [high - middle]], color="#222222", capsize=3, linewidth=1)
    shape: Any = site.shape
    if shape is not None:
        text = (
            f"{counted(shape.nodes, 'node')} x {time_limit(shape.walltime_s)}, {site.depth} ahead, "
            f"{counted(site.tokens, 'token', spec='.2g')}"
        )
        axes.text(middle + 0.005 * end_h, row + 0.27, text, va="bottom", fontsize=7)


def _finish(axes: Axes, plan: PlanReply) -> None:
    low, middle, high = (plan.finish_s[level] for level in ("0.1", "0.5", "0.9"))
    if low is not None and high is not None:
        axes.axvspan(low / HOUR_S, high / HOUR_S, color="#ee6677", alpha=0.2, linewidth=0)
    if middle is not None:
        axes.axvline(middle / HOUR_S, color="#ee6677", linewidth=1.5)
