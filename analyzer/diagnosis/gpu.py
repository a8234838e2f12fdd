"""What GPU activity adds: it corroborates, and tells bandwidth from arithmetic.

It is up to 40 s old and averages over prefill and decode, so it never makes a verdict
by itself. The engine's own rates split the mean.
"""

from __future__ import annotations

from analyzer.diagnosis.situation import Situation, evidence
from analyzer.diagnosis.thresholds import (
    DRAM_HIGH,
    DRAM_LOW,
    GPU_AGE,
    RIDGE,
    TENSOR_HIGH,
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
    dram = _decode_dram(s)
    if dram is not None:
        proof = (
            *proof,
            *evidence("gpu_dram_active_ratio", dram, DRAM_HIGH.value, SOURCE),
        )
        tensor = s.gpu.tensor if s.gpu else None
        busy = tensor is not None and tensor >= TENSOR_HIGH.value
        if dram >= DRAM_HIGH.value:
            return Verdict(Family.MEMORY, "hbm_bandwidth", confidence, proof)
        if dram < DRAM_LOW.value and busy:
            more = evidence(
                "gpu_tensor_active_ratio", tensor, TENSOR_HIGH.value, SOURCE
            )
            return Verdict(Family.COMPUTE, "decode", confidence, (*proof, *more))
        return _unsure(proof, confidence, ("gpu_sm_active_ratio",), other)
    if s.now.read_bytes:
        intensity = s.now.flops / s.now.read_bytes
        proof = (*proof, *evidence("flops_per_byte", intensity, RIDGE.value))
    return _unsure(proof, confidence, ("gpu_dram_active_ratio",), other)


def _unsure(
    proof: tuple[Evidence, ...],
    confidence: float,
    missing: tuple[str, ...],
    other: tuple[str, ...],
) -> Verdict:
    return Verdict(
        Family.COMPUTE,
        "decode",
        min(confidence, UNSURE),
        proof,
        missing=missing,
        candidates=("memory/hbm_bandwidth", *other),
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
    if gpu is None or gpu.tensor is None or gpu.age > GPU_AGE.value:
        return (), 0.0
    proof = evidence("gpu_tensor_active_ratio", gpu.tensor, TENSOR_HIGH.value, SOURCE)
    if gpu.power_capped:
        proof += evidence("gpu_power_capped_share", gpu.power_capped, None, SOURCE)
    return proof, 0.1 if gpu.tensor >= TENSOR_HIGH.value else 0.0
