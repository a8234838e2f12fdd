"""What to add to a gateway so that its log tells what it lacks now.

Every snippet stands, line by line, in the file that is named with it.
"""
# ruff: noqa: E501  (the snippets' lines are as long as in those files)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

USAGE = (
    "start vLLM with --enable-force-include-usage, or have clients send "
    '"stream_options": {"include_usage": true}'
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, in words; `snippet` is to be added, out of the shipped `file`."""

    text: str
    file: str = ""
    snippet: str = ""


_MIDDLEWARE = Advice(
    "this gateway cannot log it: read our middleware at the engine instead, and give "
    "this log `counts: false`",
    "docs/middleware.md",
    """\
gateways:
  - {name: engine, socket: "unix:///run/goodput/requests.sock"}""",
)
_ENVOY = "deploy/gateways/envoy/envoy.yaml"
_ENVOY_TIMES = Advice(
    "add these members to json_format of the access log (Envoy 1.37 or later)",
    _ENVOY,
    """\
start_epoch: "%START_TIME(%s.%6f)%"
response_code: "%RESPONSE_CODE%"
response_flags: "%RESPONSE_FLAGS%"
content_type: "%RESP(CONTENT-TYPE)%"
us_us_rx_beg: "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:us)%"
us_us_rx_body_beg: "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"
us_us_rx_end: "%COMMON_DURATION(DS_RX_BEG:US_RX_END:us)%"
us_ds_tx_end: "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%\"""",
)
_ENVOY_USAGE = Advice(
    "add these members to json_format of the access log, and the filters "
    "sse_to_metadata and json_to_metadata of that file before the router",
    _ENVOY,
    """\
llm_model: "%DYNAMIC_METADATA(llm:model)%"
prompt_tokens: "%DYNAMIC_METADATA(llm:prompt_tokens)%"
completion_tokens: "%DYNAMIC_METADATA(llm:completion_tokens)%"
cached_tokens: "%DYNAMIC_METADATA(llm:cached_tokens)%"
sse_error: "%DYNAMIC_METADATA(llm:sse_error)%"
- name: envoy.filters.http.sse_to_metadata
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata
    response_rules:
      max_event_size: 1048576  # larger events are not read
      content_parser:
        name: envoy.content_parsers.json
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.content_parsers.json.v3.JsonContentParser
          rules:
            - rule:
                selectors: [{key: usage}, {key: prompt_tokens}]
                on_present: {metadata_namespace: llm, key: prompt_tokens, type: NUMBER}
            - rule:
                selectors: [{key: usage}, {key: completion_tokens}]
                on_present: {metadata_namespace: llm, key: completion_tokens, type: NUMBER}
            - rule:
                selectors: [{key: usage}, {key: prompt_tokens_details}, {key: cached_tokens}]
                on_present: {metadata_namespace: llm, key: cached_tokens, type: NUMBER}
            - rule:
                selectors: [{key: model}]
                on_present: {metadata_namespace: llm, key: model, type: STRING}
            - rule:
                selectors: [{key: error}, {key: message}]
                on_present: {metadata_namespace: llm, key: sse_error, value: "1", type: STRING}""",
)
_ENVOY_TOKENS = Advice(
    "add these members to json_format of the access log, and the filter "
    "envoy.filters.http.lua of that file before the router",
    _ENVOY,
    """\
tok_first_us: "%DYNAMIC_METADATA(tok:first_us)%"
tok_last_us: "%DYNAMIC_METADATA(tok:last_us)%"
tok_max_gap_us: "%DYNAMIC_METADATA(tok:max_gap_us)%"
tok_events: "%DYNAMIC_METADATA(tok:events)%"
tok_done: "%DYNAMIC_METADATA(tok:done)%\"""",
)
_NGINX = Advice(
    "load njs at the top of nginx.conf, include njs.conf in http { } with goodput.js "
    "beside it, and set the last three where requests are proxied (with Lua: lua.conf "
    "and goodput.lua)",
    "deploy/gateways/nginx/nginx.conf",
    """\
load_module /usr/lib/nginx/modules/ngx_http_js_module.so;
include /etc/nginx/goodput/njs.conf;
proxy_buffering off;
js_body_filter goodput.answer;
access_log /var/log/nginx/goodput.log goodput;""",
)
_HAPROXY = Advice(
    "add these lines, of `defaults` and of the frontend",
    "deploy/gateways/haproxy/haproxy.cfg",
    """\
option http-no-delay
capture request header X-Request-Id len 128
capture request header X-Tenant-Id len 64
capture request header X-Model len 128
capture response header Content-Type len 64
http-request set-var(txn.t0) date(0,us)
http-response set-var(txn.th) date(0,us)
http-response wait-for-body time 600s at-least 1
http-response set-var(txn.tb) date(0,us)
"""
    """log-format '{"t0_us":"%[var(txn.t0)]","th_us":"%[var(txn.th)]","""
    """"tb_us":"%[var(txn.tb)]","x_request_id":"%[capture.req.hdr(0),json(utf8s)]","""
    """"tenant":"%[capture.req.hdr(1),json(utf8s)]","""
    """"model":"%[capture.req.hdr(2),json(utf8s)]","""
    """"res_ct":"%[capture.res.hdr(0),json(utf8s)]","be":"%b","server":"%s","""
    """"method":"%HM","path":"%[capture.req.uri,json(utf8s)]","status":%ST,"""
    """"term":"%tsc","retries":"%rc","Th":%Th,"Ti":%Ti,"TR":%TR,"Tw":%Tw,"Tc":%Tc,"""
    """"Tr":%Tr,"Td":%Td,"Ta":"%Ta"}'""",
)
_LITELLM_USAGE = Advice(
    "set always_include_stream_usage in LiteLLM's config.yaml",
    "deploy/gateways/litellm/config.yaml",
    """\
general_settings:
  always_include_stream_usage: true  # else tokens of most streams are an estimate""",
)
_LITELLM_TOKENS = Advice(
    "run the proxy with our middleware around it instead of the callback",
    "deploy/gateways/litellm/goodput_litellm.py",
    """\
from goodput_middleware import GoodputMiddleware
from litellm.proxy.proxy_server import app as proxy
app = GoodputMiddleware(proxy)""",
)
_CUSTOM = Advice(
    "name the key that holds it in `fields`, with its unit; a log that does not hold it "
    "cannot tell it",
    "docs/configuration.md",
)

# By format and by what is missing: a criterion; `token` for a first token instead of
# a first body byte; `usage` for the server's token counts; `ending` for how answers
# ended.
ADVICE: Mapping[str, Mapping[str, Advice]] = {
    "envoy": {
        "ttft": _ENVOY_TIMES,
        "tpot": _ENVOY_USAGE,
        "usage": _ENVOY_USAGE,
        "max_gap": _ENVOY_TOKENS,
        "token": _ENVOY_TOKENS,
        "e2e": _ENVOY_TIMES,
        "ending": _ENVOY_USAGE,
    },
    "nginx": dict.fromkeys(
        ("ttft", "tpot", "max_gap", "e2e", "ending", "token"), _NGINX
    ),
    "haproxy": {
        "ttft": _HAPROXY,
        "e2e": _HAPROXY,
        **dict.fromkeys(("tpot", "max_gap"), _MIDDLEWARE),
    },
    "traefik": dict.fromkeys(("ttft", "tpot", "max_gap", "ending"), _MIDDLEWARE),
    "caddy": dict.fromkeys(("ttft", "tpot", "max_gap", "ending"), _MIDDLEWARE),
    "litellm": {
        "usage": _LITELLM_USAGE,
        **dict.fromkeys(("ttft", "tpot", "max_gap"), _LITELLM_TOKENS),
    },
    "custom": dict.fromkeys(("ttft", "tpot", "max_gap", "e2e", "ending"), _CUSTOM),
}


def advice(log_format: str, missing: str) -> Advice | None:
    """Returns what makes a log tell what is missing, None when nothing does."""
    return ADVICE.get(log_format, {}).get(missing)
