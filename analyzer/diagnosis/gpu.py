"""What GPU activity adds: it corroborates, and tells bandwidth from arithmetic.

It is up to 40 s old and averages over prefill and decode, so it never makes a verdict
by itself. The engine's own rates split the mean.
"""

from __future__ import annotations

from analyzer.diagnosis.names import BANDWIDTH
from analyzer.diagnosis.situation import GpuActivity, Situation, evidence
from analyzer.diagnosis.thresholds import (
    DRAM_HIGH,
    DRAM_LOW,
    GPU_AGE,
    POWER_HIGH,
    RIDGE,
    SM_HIGH,
    TENSOR_HIGH,
    THROTTLED,
)
from analyzer.verdict import Evidence, Family, Verdict

SOURCE = "gpu"
UNSURE = 0.6  # the most that is claimed without a GPU


def decode_limit(
    s: Situation,
    proof: tuple[Evidence, ...],
    confidence: float,
    other: tuple[str, ...] = (),
) -> Verdict:
    """Returns which of bandwidth and arithmetic limits decode in *s*."""
    dram, gpu = _decode_dram(s), s.gpu
    if dram is not None and gpu is not None:
        proof = (
            *proof,
            *evidence("gpu_dram_active_ratio", dram, DRAM_HIGH.value, SOURCE),
        )
        if dram >= DRAM_HIGH.value:
            return Verdict(Family.MEMORY, "hbm_bandwidth", confidence, proof)
        proof = (*proof, *_arithmetic(gpu))
        spare = dram < DRAM_LOW.value
        if spare and (gpu.tensor or 0.0) >= TENSOR_HIGH.value:
            return Verdict(Family.COMPUTE, "decode", confidence, proof)
        missing = ("gpu_sm_active_ratio",) if gpu.sm is None else ()
        waits = spare and (gpu.sm or 0.0) >= SM_HIGH.value
        rival = "communication/collectives" if waits else BANDWIDTH
        return _unsure(proof, confidence, missing, (rival, *other))
    if s.now.read_bytes:
        intensity = s.now.flops / s.now.read_bytes
        proof = (*proof, *evidence("flops_per_byte", intensity, RIDGE.value))
    missing = ("gpu_dram_active_ratio",)
    return _unsure(proof, confidence, missing, (BANDWIDTH, *other))


def _arithmetic(gpu: GpuActivity) -> tuple[Evidence, ...]:
    """Returns what tells how busy the GPU's arithmetic is, and what holds it down."""
    proof = (
        *evidence("gpu_tensor_active_ratio", gpu.tensor, TENSOR_HIGH.value, SOURCE),
        *evidence("gpu_sm_active_ratio", gpu.sm, SM_HIGH.value, SOURCE),
    )
    if gpu.power_capped or (gpu.power or 0.0) >= POWER_HIGH.value:
        proof += (
            *evidence("gpu_power_ratio", gpu.power, POWER_HIGH.value, SOURCE),
            *evidence(
                "gpu_power_capped_share", gpu.power_capped, THROTTLED.value, SOURCE
            ),
        )
    return proof


def _unsure(
    proof: tuple[Evidence, ...],
    confidence: float,
    missing: tuple[str, ...],
    candidates: tuple[str, ...],
) -> Verdict:
    return Verdict(
        Family.COMPUTE,
        "decode",
        min(confidence, UNSURE),
        proof,
        missing=missing,
        candidates=candidates,
    )


def _decode_dram(s: Situation) -> float | None:
    """Returns DRAM activity while decoding, None without data young enough.

    Prefill hardly moves memory, so the mean belongs to the rest of the time.
    """
    gpu = s.gpu
    if gpu is None or gpu.dram is None or gpu.age > GPU_AGE.value:
        return None
    share = s.prefill_share or 0.0
    return min(1.0, gpu.dram / max(0.25, 1.0 - share))


def corroboration(s: Situation) -> tuple[tuple[Evidence, ...], float]:
    """Returns what GPU data say of prefill, and what that does to the confidence."""
    gpu = s.gpu
    if gpu is None or gpu.age > GPU_AGE.value:
        return (), 0.0
    busy = (gpu.tensor or 0.0) >= TENSOR_HIGH.value
    return _arithmetic(gpu), 0.1 if busy else 0.0
