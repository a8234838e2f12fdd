"""What to do first about each cause, in the sentence that a page has room for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Its runbook has what follows, in order.
FIRST: Mapping[str, str] = MappingProxyType(
    {
        "kv_capacity": "Stop the preemptions: lower --max-num-seqs; then give the KV "
        "cache more (--gpu-memory-utilization, --kv-cache-dtype fp8) or add a replica.",
        "hbm_bandwidth": "Add a replica or lower --max-num-seqs; smaller weights or "
        "KV (quantisation, --kv-cache-dtype fp8) move fewer bytes a token.",
        "prefill": "Add a replica, or keep prompts from each other: prefix caching, "
        "a smaller --max-num-batched-tokens for TPOT, a pool for long prompts.",
        "decode": "Add a replica or lower --max-num-seqs: the batch is so wide that "
        "each token takes too long.",
        "sequence_cap": "Raise --max-num-seqs by half and look at TPOT; memory and "
        "compute have room.",
        "token_budget": "Raise --max-num-batched-tokens and look at TPOT; steps are "
        "full while memory has room.",
        "deferral": "See what requests wait for: an adapter (--max-loras), a grammar "
        "or a KV transfer.",
        "api_server": "Raise --api-server-count, or give the pod more CPU: time goes "
        "before and after the engine.",
        "flow_control": "See the gateway's flow control: it holds requests back "
        "although engines have room.",
        "collectives": "Check the links between GPUs (NVLink, NCCL); a smaller "
        "--tensor-parallel-size with more replicas needs them less.",
        "kv_transfer": "Check the KV connector and the network between prefill and "
        "decode.",
        "burst": "Add headroom or smooth arrivals: the mean load fits, its bursts "
        "do not.",
        "overhead": "Look at the gateway: the time is spent before the engine.",
        "network": "Look at the network between gateway and engine.",
        "down": "See the pod's events and the last lines of the engine's log.",
        "stalled": "Take a stack dump (py-spy dump) and restart the engine.",
        "frozen_gauges": "Judge by counters, and upgrade vLLM (0.12 or later).",
        "stats_disabled": "Start vLLM without --disable-log-stats.",
        "throttled": "Check cooling and power of the node; drain it if it lasts.",
    }
)
