"""Family and cause in one word, as candidates are written."""

from __future__ import annotations

CAP = "queueing/sequence_cap"
BUDGET = "queueing/token_budget"
KV = "memory/kv_capacity"
BANDWIDTH = "memory/hbm_bandwidth"
PREFILL = "compute/prefill"
DECODE = "compute/decode"
