"""Accelerators and models, and the step costs and cache size that follow from them.

Derived from data sheets, not measured: right in kind and order of magnitude, and the
place to start a calibration from. Nothing here should be quoted as a benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.capacity.costs import StepCosts
from analyzer.capacity.settings import EngineConfig, SchedulerConfig

BLOCK_SIZE = 16  # vLLM's default on GPUs
ACTIVATIONS = 3e9  # bytes that are neither weights nor cache: activations, CUDA graphs
MEMORY_UTILIZATION = 0.92  # vLLM 0.32's default of --gpu-memory-utilization
BYTES = 2  # of a weight or a cached value in bfloat16


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU: dense bfloat16 FLOP/s and bytes/s of its data sheet, memory in bytes.

    `flops_share` and `bandwidth_share` are what real kernels reach of them.
    `collective` is the seconds of one small all-reduce between GPUs of this kind.
    """

    name: str
    flops: float
    bandwidth: float
    memory: float
    flops_share: float
    bandwidth_share: float
    collective: float = 10e-6
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256


@dataclass(frozen=True, slots=True)
class Model:
    """A dense transformer with grouped-query attention."""

    name: str
    parameters: float
    layers: int
    heads: int
    kv_heads: int
    head_size: int

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * BYTES


# Model cards and config.json of meta-llama/Llama-3.1-8B and -70B.
LLAMA_8B = Model("Llama-3.1-8B", 8.03e9, 32, 32, 8, 128)
LLAMA_70B = Model("Llama-3.1-70B", 70.6e9, 80, 64, 8, 128)

# NVIDIA H100 SXM5 data sheet: 989 TFLOPS bf16 dense, 80 GB HBM3 at 3.35 TB/s. A public
# sweep of Llama-3.1-8B on vLLM 0.21 (yobitelcomm.github.io/bench) has a TPOT of 6.5 ms
# for one short request: 16.06 GB / 3.35 TB/s is 4.8 ms, so 74 % of the bandwidth.
# 45 % of the FLOPs is what prefill GEMMs of this size reach, some 28 000 tokens/s.
# vLLM gives GPUs of 70 GiB and more, but the A100, 8192 tokens and 1024 requests.
H100 = Accelerator(
    "H100-SXM-80GB",
    flops=989e12,
    bandwidth=3.35e12,
    memory=85.0e9,
    flops_share=0.45,
    bandwidth_share=0.74,
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
)
# NVIDIA A100 80GB SXM data sheet: 312 TFLOPS bf16 dense, HBM2e at 2.039 TB/s. On its
# 40 GB sister (1.555 TB/s) a public sweep of the same model on vLLM 0.23
# (johnmusgrave.com) decodes 75 tokens/s for one request: 77 % of the bandwidth.
A100 = Accelerator(
    "A100-SXM-80GB",
    flops=312e12,
    bandwidth=2.039e12,
    memory=85.0e9,
    flops_share=0.55,
    bandwidth_share=0.77,
)
# NVIDIA L4 data sheet: 121 TFLOPS bf16 dense (242 with sparsity), 24 GB GDDR6 at
# 300 GB/s. The shares are assumed: no measurement of this model was at hand.
L4 = Accelerator(
    "L4-24GB",
    flops=121e12,
    bandwidth=300e9,
    memory=24.1e9,
    flops_share=0.50,
    bandwidth_share=0.80,
)


def derived_costs(gpu: Accelerator, model: Model, *, tensor_parallel: int) -> StepCosts:
    """Returns the step costs of *model* on that many GPUs.

    A step reads all weights once and waits for two all-reduces a layer; a token costs
    two operations a parameter, a pair of tokens four a layer, head and dimension.
    Prefill overlaps with reading weights in truth, so short prefills come out a little
    slow.
    """
    bandwidth = gpu.bandwidth * gpu.bandwidth_share * tensor_parallel
    flops = gpu.flops * gpu.flops_share * tensor_parallel
    collectives = 2 * model.layers * gpu.collective if tensor_parallel > 1 else 0.0
    token = 2 * model.parameters / flops
    return StepCosts(
        base=model.parameters * BYTES / bandwidth + collectives,
        prefill_token=token,
        decode_token=token,
        kv_token=model.kv_bytes / bandwidth,
        prefill_pair=4 * model.layers * model.heads * model.head_size / flops,
    )


def kv_blocks(gpu: Accelerator, model: Model, *, tensor_parallel: int) -> int:
    """Returns how many cache blocks fit beside the weights.

    Raises ValueError when nothing is left.
    """
    usable = gpu.memory * MEMORY_UTILIZATION - ACTIVATIONS
    spare = usable * tensor_parallel - model.parameters * BYTES
    if spare <= 0:
        raise ValueError(f"{model.name} does not fit {tensor_parallel} × {gpu.name}")
    return int(spare / (model.kv_bytes * BLOCK_SIZE))


def on_gpu(
    gpu: Accelerator, model: Model, *, tensor_parallel: int = 1, max_model_len: int
) -> EngineConfig:
    """Returns a replica of *model* with the settings vLLM chooses by itself there."""
    return EngineConfig(
        SchedulerConfig(
            num_blocks=kv_blocks(gpu, model, tensor_parallel=tensor_parallel),
            block_size=BLOCK_SIZE,
            max_model_len=max_model_len,
            max_num_seqs=gpu.max_num_seqs,
            max_num_batched_tokens=gpu.max_num_batched_tokens,
            asynchronous=True,
        ),
        derived_costs(gpu, model, tensor_parallel=tensor_parallel),
        # Tokenising, HTTP and passing on: with 6.5 ms of a step, what is left of the
        # 14 ms of TTFT in the H100 sweep above.
        frontend_seconds=0.004,
    )


# vLLM 0.32's CPU build with a random float32 Llama of 4 layers on one core, fitted to a
# `vllm bench` sweep of it (`analyzer.capacity.fit`; the tests have the sweep). All its
# prompts have some 256 tokens, so it cannot tell a sequence's own cost from that of
# its context: the latter is from a run with 64 short sequences. A pair costs what its
# operations (4096) do at the rate of a token's (6.8 million).
CPU_DEMO_COSTS = StepCosts(
    base=0.0070,
    prefill_token=0.000193,
    decode_token=0.000158,
    kv_token=2.5e-6,
    prefill_pair=1.25e-7,
)


def cpu_demo() -> EngineConfig:
    """Returns the replica that those sweeps were run against, with its defaults."""
    return EngineConfig(
        SchedulerConfig(
            num_blocks=1024,
            block_size=128,
            max_model_len=2048,
            max_num_seqs=128,
            max_num_batched_tokens=2048,
        ),
        CPU_DEMO_COSTS,
        frontend_seconds=0.0156,
    )


def machines() -> dict[str, EngineConfig]:
    """Returns the replicas that have a name."""
    return {
        "cpu-demo": cpu_demo(),
        "l4-llama-8b": on_gpu(L4, LLAMA_8B, max_model_len=8192),
        "a100-llama-8b": on_gpu(A100, LLAMA_8B, max_model_len=32768),
        "h100-llama-8b": on_gpu(H100, LLAMA_8B, max_model_len=32768),
        "h100x4-llama-70b": on_gpu(
            H100, LLAMA_70B, tensor_parallel=4, max_model_len=32768
        ),
        "h100x8-llama-70b": on_gpu(
            H100, LLAMA_70B, tensor_parallel=8, max_model_len=32768
        ),
    }
