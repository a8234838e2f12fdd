"""Annotations of alerts: templates that look up what binds at the time of the page.

A value in an annotation may change without making the alert another one, so the
verdict of the last minutes stands here and not in a label.
"""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.rules.constraint import LEADING
from analyzer.rules.rule import Options

PLACE = "$labels.cluster $labels.namespace $labels.model"
HERE = "cluster=%[1]q,namespace=%[2]q,model=%[3]q"
ANYWHERE = "cluster=%[1]q,model=%[3]q"
UNKNOWN = "unknown"


def link(page: str, options: Options) -> str:
    """Returns the address of a runbook."""
    return f"{options.runbook_url.rstrip('/')}/{page}.md"


def looked_up(query: str, form: str, *, arguments: str = PLACE) -> str:
    """Returns a template for the value of *query* now, `unknown` when there is none.

    *form* is a pipeline of template functions; *arguments* fill the query's %q.
    """
    return (
        f"{{{{ with query (printf `{query}` {arguments}) }}}}"
        f"{{{{ . | first | value | {form} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
    )


def _leading(found: str, nothing: str) -> str:
    """Returns a template for the leading verdict; *found* sees its labels and share."""
    return (
        f"{{{{ with query (printf `{LEADING}{{{HERE}}}` {PLACE}) }}}}"
        f"{{{{ with first . }}}}{found}{{{{ end }}}}"
        f"{{{{ else }}}}{nothing}{{{{ end }}}}"
    )


# A family may be known without its cause.
CAUSE = '{{ label "family" . }}{{ with label "cause" . }}/{{ . }}{{ end }}'
LIMIT = _leading(CAUSE, '{{ or $labels.constraint "unknown" }}')
VERDICT = _leading(
    CAUSE + " ({{ value . | humanizePercentage }} of the last 5 minutes)",
    '{{ or $labels.constraint "unknown" }} '
    "(engines show no limit in the last 5 minutes)",
)
ADVICE = _leading(
    '{{ or (label "advice" .) "See the runbook." }}',
    "Look at errors and at the gateway, and run goodput diagnose: no limit of an "
    "engine shows.",
)


def _evidence(operation: str, record: str, form: str) -> str:
    """Returns a template for a level of the model in the alert's own namespace.

    Without engines there, as a gateway's, it is that of the cluster.
    """
    here, anywhere = (f"{operation}({record}{{{place}}})" for place in (HERE, ANYWHERE))
    return looked_up(f"{here} or {anywhere}", form)


EVIDENCE = "; ".join(
    (
        "fullest KV cache "
        + _evidence(
            "max", "model:goodput_kv_cache_usage_max60s:max", "humanizePercentage"
        ),
        _evidence("sum", "model:goodput_waiting_requests:sum", 'printf "%.0f"')
        + " waiting",
        _evidence("sum", "model:goodput_running_requests:sum", 'printf "%.0f"')
        + " running",
        _evidence("sum", "model:goodput_preemptions:rate5m", 'printf "%.2g"')
        + " preemptions/s",
    )
)
MISSED = (
    "{{ with query (printf `topk(3, sum by (criterion) (criterion:goodput_misses:rate5m"
    "{cluster=%q,namespace=%q,model=%q,slo_class=%q}) > 0)` "
    "$labels.cluster $labels.namespace $labels.model $labels.slo_class) }}"
    "Missed most: {{ range $i, $miss := . }}{{ if $i }}, {{ end }}"
    '{{ label "criterion" $miss }} {{ value $miss | printf "%.2g" }}/s{{ end }}.'
    "{{ end }}"
)


def cause_link(options: Options) -> str:
    """Returns a template for the runbook of the cause that leads now."""
    page = link('{{ or (label "cause" .) "unknown" }}', options)
    return _leading(page, link(UNKNOWN, options))


def with_cause(options: Options, summary: str, description: str) -> Mapping[str, str]:
    """Returns annotations of an alert on a model, with what binds it and why."""
    return {
        "summary": f"{summary}; limit: {LIMIT}",
        "description": description,
        "constraint": VERDICT,
        "evidence": EVIDENCE,
        "advice": ADVICE,
        "runbook_url": cause_link(options),
    }


def plain(
    options: Options, summary: str, description: str, page: str
) -> Mapping[str, str]:
    """Returns annotations of an alert whose name says the cause."""
    return {
        "summary": summary,
        "description": description,
        "runbook_url": link(page, options),
    }
