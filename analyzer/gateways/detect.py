"""Which format a log has: by its configuration, or by its first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from analyzer.config_gateways import GatewaySource
from analyzer.gateways.caddy import caddy
from analyzer.gateways.custom import custom
from analyzer.gateways.envoy import envoy
from analyzer.gateways.format import Format
from analyzer.gateways.haproxy import haproxy
from analyzer.gateways.litellm import litellm
from analyzer.gateways.middleware import middleware
from analyzer.gateways.nginx import nginx
from analyzer.gateways.traefik import traefik

AUTO = "auto"
_FORMATS: Mapping[str, Callable[[Iterable[str]], Format]] = {
    "envoy": envoy,
    "nginx": nginx,
    "haproxy": haproxy,
    "traefik": traefik,
    "caddy": caddy,
    "litellm": litellm,
    "middleware": middleware,
}


def format_for(source: GatewaySource, headers: Iterable[str] = ()) -> Format | None:
    """Returns the format that *source* names, None for one to be detected.

    *headers* are the request headers (lower case) that SLO classes match on: a format
    reads only those. Each log needs a format of its own, since it remembers what it
    read. Raises PatternError.
    """
    if source.format == AUTO:
        return None
    if source.format == "custom":
        return custom(source.fields, source.pattern)
    return _FORMATS[source.format](headers)


def detect(lines: Sequence[bytes], headers: Iterable[str] = ()) -> Format | None:
    """Returns the format of a log that begins with *lines*, None while unsure.

    The first line that exactly one format recognises decides; banners and messages of
    other programs before it do not matter.
    """
    headers = tuple(headers)
    known = [make(headers) for make in _FORMATS.values()]
    for line in lines:
        found = [log_format for log_format in known if log_format.recognises(line)]
        if len(found) == 1:
            return found[0]
    return None
