"""Equal inputs give equal plans in every process: none hangs on the order of a set, which a hash seed decides."""

import json
import os
import subprocess
import sys
from typing import Any

from swingpool_control.api.scaling import Scaling
from swingpool_control.api.v1alpha1 import PoolRole, ReplicaMode
from swingpool_control.sizing import wanted
from swingpool_control.sizing.memory import Lower
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import NOMINAL, ROLES_OF, PoolFacts
from swingpool_control.sizing.traffic import one_length
from tests.unit.swing.fleet import T0


def pool(order: int, role: PoolRole, *, asked: int) -> PoolFacts:
    facts: dict[str, Any] = {"fewest": 0, "most": 9, "useful": asked, "present": asked, "surge": 0, "accelerators": 1}
    return PoolFacts(
        name=f"pool{order}",
        order=order,
        role=role,
        mode=ReplicaMode.AUTO,
        asked=asked,
        warming=False,
        blocked="",
        price_per_hour=1.0,
        product="H100",
        rates=dict.fromkeys(ROLES_OF[role], NOMINAL),
        **facts,
    )


def shrunk() -> dict[str, int]:
    """A plan that finds six histories equally good: as many workers each, each enough at every moment."""
    pools = (pool(0, PoolRole.PREFILL, asked=5), *(pool(order, PoolRole.DECODE, asked=5) for order in (1, 2)))
    lower = tuple(
        Lower(
            at_unix_s=T0 - 400 + 60 * number,
            workers=(("pool0", 1), ("pool1", count), ("pool2", 5 - count)),
            prompt_tokens_per_s=50.0,
            output_tokens_per_s=40.0,
        )
        for number, count in enumerate((3, 1, 4, 2, 5, 0))
    )
    need = Need(prefill_per_s=0.5, decode_per_s=4.0, kv_tokens=0.0)
    lengths = one_length(prompt_tokens=100, output_tokens=10)
    found = wanted.decide(pools, Scaling(), now=need, lasting=need, lower=lower, now_unix_s=T0, lengths=lengths)
    return found.counts


def test_a_choice_between_equals_is_the_same_in_every_process() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-m", __spec__.name],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in range(4)
    ]
    assert [json.loads(text) for text in found] == [shrunk()] * 4
    assert sum(shrunk().values()) < 15


if __name__ == "__main__":
    print(json.dumps(shrunk()))
