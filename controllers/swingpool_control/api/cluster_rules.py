"""Rules over a whole spec: what pools must be together, and what they must fit in."""

from swingpool_control.api.rules import Rule

_FEWEST = "(has(p.replicas.count) ? p.replicas.count : p.replicas.min)"
_MOST = "(has(p.replicas.count) ? p.replicas.count : p.replicas.max)"
"""Of pool `p`. A pool that something else scales has min and max 1 here, the API's own defaults."""


def _takes(role: str) -> Rule:
    return Rule(
        cel=f"self.pools.exists(p, p.role in ['{role}', 'Swing'] && {_MOST} > 0)",
        message=f"no pool can take {role.lower()}: add a pool with role {role} or Swing that may have a worker",
        field=".pools",
    )


def _alike(field: str) -> Rule:
    return Rule(
        cel=f"self.pools.all(p, p.engine.{field} == self.pools[0].engine.{field})",
        message=f"pools exchange KV cache and need the same engine.{field}: set it alike in all pools",
        field=".pools",
    )


_POOLS_OF_BUDGET = (
    "self.pools.filter(p, b.product == '*' || (has(p.accelerator.product) && p.accelerator.product == b.product))"
)

CLUSTER_RULES = (
    _takes("Prefill"),
    _takes("Decode"),
    Rule(
        cel=f"self.pools.map(p, {_MOST}).sum() >= 2",
        message="prefill and decode need a worker each, but all pools together may have only one: raise replicas.max",
        field=".pools",
    ),
    _alike("blockSize"),
    _alike("kvCacheDtype"),
    Rule(
        cel="self.engine.type != 'VLLM' || (self.engine.kvTransfer.connector == 'Nixl' "
        "&& self.engine.kvTransfer.buffer == 'Host') || self.pools.all(p, p.replicas.reserve == 0)",
        message="a worker's sleep frees the accelerators' memory that its connector has registered: set "
        "kvTransfer.buffer to Host, or reserve to 0 in all pools",
        field=".pools",
    ),
    Rule(
        cel="self.engine.type != 'VLLM' || self.engine.kvTransfer.connector != 'Nixl' "
        "|| self.engine.kvTransfer.buffer == 'Host' || self.pools.all(p, p.accelerator.resource != 'cpu')",
        message="a pool computes on processor cores, whose KV cache lies in the host's memory: set kvTransfer.buffer "
        "to Host",
        field=".engine.kvTransfer.buffer",
    ),
    Rule(
        cel="!has(self.router.external) || self.pools.all(p, !has(p.podTemplate) || !has(p.podTemplate.metadata) "
        "|| !has(p.podTemplate.metadata.labels) "
        "|| !(self.router.external.roleLabels.key in p.podTemplate.metadata.labels))",
        message="a pool's podTemplate sets the label router.external.roleLabels.key, which says a worker's role: "
        "remove it there",
        field=".pools",
        reason="FieldValueForbidden",
    ),
    Rule(
        cel="!has(self.scaling.budgets.accelerators) || self.scaling.budgets.accelerators.all(b, "
        f"{_POOLS_OF_BUDGET}.map(p, {_FEWEST} * p.accelerator.count).sum() <= b.max)",
        message="the pools' fewest workers need more accelerators than scaling.budgets.accelerators allows: lower "
        "replicas.min or raise the budget's max",
        field=".scaling.budgets.accelerators",
    ),
    Rule(
        cel="!has(self.scaling.budgets.accelerators) || self.scaling.budgets.accelerators.all(b, b.product == '*' "
        "|| self.pools.exists(p, has(p.accelerator.product) && p.accelerator.product == b.product))",
        message="a budget names a product that no pool has: name it as pools' accelerator.product does, or use *",
        field=".scaling.budgets.accelerators",
    ),
    Rule(
        cel="!has(self.scaling.budgets.costPerHour) || self.pools.all(p, has(p.costPerHour))",
        message="scaling.budgets.costPerHour needs costPerHour in every pool: set it there",
        field=".scaling.budgets.costPerHour",
    ),
    Rule(
        cel="!has(self.scaling.budgets.costPerHour) || self.pools.exists(p, !has(p.costPerHour)) "
        f"|| self.pools.map(p, double({_FEWEST}) * double(p.costPerHour)).sum() "
        "<= double(self.scaling.budgets.costPerHour)",
        message="the pools' fewest workers cost more than scaling.budgets.costPerHour: lower replicas.min or raise it",
        field=".scaling.budgets.costPerHour",
    ),
)
"""Rules of `spec`. Every field they read is there, since defaults are written before rules are asked."""
