from __future__ import annotations

import functools
import sys

import pytest
from diagnosed import SLO, Score, confusion, score
from episodes import NAMES

RIGHT = 0.97
CAUSE_RIGHT = 0.9
LONGEST_WRONG_SECONDS = 2.0
# What an engine or version may lack, by the names on its page.
SOURCES = {
    "queue reasons": ("num_requests_waiting_by_reason",),
    "queue time": ("request_queue_time_seconds",),
    "prefill time": ("request_prefill_time_seconds",),
    "estimated work": ("estimated_",),
    "tokens per step": ("iteration_tokens",),
    "preemptions": ("num_preemptions",),
    "gaps": ("inter_token_latency",),
    "cache usage": ("kv_cache_usage_perc",),
    "cache usage and preemptions": ("kv_cache_usage_perc", "num_preemptions"),
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "prompts by source": ("prompt_tokens_by_source",),
    "prompt tokens": ("prompt_tokens",),
    "output tokens": ("generation_tokens",),
    "first tokens": ("time_to_first_token",),
    "latencies": ("time_to_first_token", "request_time_per_output", "e2e_request"),
    "settings": ("cache_config_info",),
}


@functools.cache
def scores(recording: str) -> list[Score]:
    """Returns the scores of a recording's phases as it is."""
    return score(recording)


@pytest.mark.parametrize("recording", NAMES)
def test_each_phase_is_named_as_labelled(recording: str) -> None:
    """In nearly all of its time the family, and the cause where there is a label."""
    for item in scores(recording):
        phase = item.phase
        if phase.family == "traffic":  # of the phase as a whole
            assert max(item.families, key=item.families.__getitem__) == "traffic"
        elif phase.family:
            assert item.right() >= RIGHT, (phase, dict(item.families))
            assert item.longest_wrong <= LONGEST_WRONG_SECONDS, phase
            assert not phase.cause or item.causes[phase.cause] >= CAUSE_RIGHT, phase


def test_the_confusion_table_has_its_time_on_the_diagonal() -> None:
    """Prints how the time of each label was named (`pytest -s`)."""
    found = [item for recording in NAMES for item in scores(recording)]
    sys.stdout.write(f"\n{confusion(found)}\n")
    labelled = [item for item in found if item.phase.family]
    seconds = sum(item.phase.end - item.phase.begin for item in labelled)
    right = sum(item.right() * (item.phase.end - item.phase.begin) for item in labelled)
    assert right / seconds >= RIGHT


def test_aborts_and_a_full_but_healthy_cache_are_no_queue_and_no_lack_of_memory() -> (
    None
):
    """Every client leaves after three tokens; the cache is used to 70 %."""
    for recording in ("abortstorm-a", "kvhigh-a"):
        for item in scores(recording):
            named = {family for family, share in item.families.items() if share > 0}
            assert named <= {"none", "compute"}, (recording, named)
    assert {f for item in scores("kvhigh-a") for f in item.families} == {"none"}


@pytest.mark.parametrize("every", [2, 3, 5])
@pytest.mark.parametrize("recording", NAMES)
def test_slower_sampling_names_the_same(recording: str, every: int) -> None:
    """Scrapes 2, 3 and 5 s apart; at the edges of a phase one scrape is a part."""
    for item in score(recording, every=every, offset=every - 1, labelled=True):
        length = item.phase.end - item.phase.begin
        if item.phase.family != "traffic":
            assert item.right() >= RIGHT - 2 * every / length, (
                item.phase,
                dict(item.families),
            )


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_a_source_less_never_names_a_wrong_family(source: str) -> None:
    """It may abstain, or name the family with less; bursts may go unseen."""
    for recording in NAMES:
        for item in score(recording, without=SOURCES[source], labelled=True):
            phase = item.phase
            quiet = item.families["none"] if phase.family == "traffic" else 0.0
            wrong = item.wrong() - quiet
            assert wrong <= 1.0 - RIGHT, (phase, dict(item.families))


CALM = ("none", "")
LOADED = ("overload-a", "seqcap-a", "kv-a", "prefill-a", "prefillcap-a", "ramp-a")


@pytest.mark.parametrize("recording", LOADED)
@pytest.mark.parametrize("slo", [True, False])
def test_a_watch_that_begins_under_load_names_the_same(
    recording: str, *, slo: bool
) -> None:
    """Nothing was learnt of the engine before, with and without an SLO."""
    loaded = next(s.phase for s in scores(recording) if s.phase.family not in CALM)
    text = SLO if slo else "limits: {models: 5}"
    for item in score(recording, since=loaded.begin - 8.0, slo=text):
        if item.phase == loaded:
            assert item.right() >= RIGHT, dict(item.families)


def test_without_a_smaller_batch_seen_a_flat_one_is_not_called_healthy() -> None:
    """64 requests from the first scrape on: it may abstain, with what is missing."""
    wide = next(s.phase for s in scores("decode-a") if s.phase.name == "wide-decode")
    for item in score("decode-a", since=wide.begin - 8.0):
        if item.phase == wide:
            assert item.wrong() <= 1.0 - RIGHT, dict(item.families)
