"""How long one step of an engine takes, by what is computed and read in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of a step, and seconds more for each thing in it.

    `base` is there whatever the batch holds: reading the weights, launching kernels,
    collectives. `prefill_token` and `decode_token` are arithmetic, and the sampling
    of a sequence; `kv_token` is a token read from the cache, once for each sequence
    and step; `prefill_pair` is the attention of one prefill token to one token, which
    matters from prompts of several thousand tokens.
    """

    base: float
    prefill_token: float
    decode_token: float
    kv_token: float
    prefill_pair: float = 0.0

    def seconds(
        self,
        *,
        prefill_tokens: int = 0,
        decode_tokens: int = 0,
        kv_tokens: int = 0,
        prefill_pairs: float = 0.0,
    ) -> float:
        """Returns how long a step with this work takes."""
        return (
            self.base
            + prefill_tokens * self.prefill_token
            + decode_tokens * self.decode_token
            + kv_tokens * self.kv_token
            + prefill_pairs * self.prefill_pair
        )

    def scaled(self, factor: float) -> StepCosts:
        """Returns the costs of a machine that is slower by *factor* in everything."""
        return StepCosts(
            self.base * factor,
            self.prefill_token * factor,
            self.decode_token * factor,
            self.kv_token * factor,
            self.prefill_pair * factor,
        )
