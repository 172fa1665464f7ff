"""Which engine arguments are Swingpool's own, and what a user sets instead.

A pool's `extraArguments` reach the engine's command line as they are, so one of these there would quietly undo what the
spec, the probes or the router rely on.
"""

from typing import Annotated

from pydantic import Field

from swingpool_control.api.rules import Rule

OWNED_ARGUMENTS: dict[str, str] = {
    "--model": "use spec.model.name and spec.model.source",
    "--served-model-name": "use spec.model.servedNames",
    "--revision": "use spec.model.revision",
    "--max-model-len": "use spec.model.maxLength",
    "--tensor-parallel-size": "use engine.tensorParallelSize",
    "-tp": "use engine.tensorParallelSize",
    "--pipeline-parallel-size": "use engine.pipelineParallelSize",
    "-pp": "use engine.pipelineParallelSize",
    "--data-parallel-size": "use engine.dataParallelSize",
    "-dp": "use engine.dataParallelSize",
    "--enable-expert-parallel": "use engine.expertParallel",
    "--no-enable-expert-parallel": "use engine.expertParallel",
    "-ep": "use engine.expertParallel",
    "--quantization": "use engine.quantization",
    "-q": "use engine.quantization",
    "--kv-cache-dtype": "use engine.kvCacheDtype",
    "--block-size": "use engine.blockSize",
    "--max-num-batched-tokens": "use engine.maxBatchedTokens",
    "--max-num-seqs": "use engine.maxSequences",
    "--scheduling-policy": "use spec.engine.scheduling",
    "--enable-prefix-caching": "use spec.engine.prefixCaching",
    "--no-enable-prefix-caching": "use spec.engine.prefixCaching",
    "--shutdown-timeout": "use spec.engine.maxRequestDuration",
    "--profile": "use spec.profile",
    "--speedup": "use spec.engine.simulated.speedup",
    "--accelerator": "use accelerator.product",
    "--host": "remove it; probes and router need the pod's address",
    "--port": "remove it; probes and router need the fixed port",
    "--uds": "remove it; probes and router speak to the port",
    "--root-path": "remove it; probes and router need the plain paths",
    "--ssl-keyfile": "use router.builtIn.workerTls",
    "--ssl-certfile": "use router.builtIn.workerTls",
    "--ssl-ca-certs": "use router.builtIn.workerTls",
    "--ssl-cert-reqs": "use router.builtIn.workerTls",
    "--disable-log-stats": "remove it; decisions need the engine's metrics",
    "--config": "remove it; give its arguments here one by one",
    "--kv-transfer-config": "remove it; every worker can be prefill and decode only as Swingpool sets it",
    "--kv-offloading-size": "remove it; it replaces the KV transfer that roles need",
    "--data-parallel-rank": "remove it; use engine.dataParallelSize",
    "--data-parallel-size-local": "remove it; use engine.dataParallelSize",
    "--data-parallel-address": "remove it; a worker is one pod",
    "--data-parallel-external-lb": "remove it; the router balances",
    "--data-parallel-hybrid-lb": "remove it; the router balances",
    "--headless": "remove it; every worker serves HTTP",
    "--nnodes": "remove it; a worker is one pod",
    "--master-addr": "remove it; a worker is one pod",
}
"""Argument to remedy. vLLM takes each with `-` or `_`, abbreviated, with `=value`, and with `.key` for JSON values.

Arguments that do nothing without one of these (a master's port, a backend without a size) are not listed: what the API
server may spend on a rule is bounded.
"""

# The argument without its value and key, in its dashed spelling; abbreviations count too, hence startsWith.
_FLAG = "self.find('^-[^=.]*').replace('_', '-')"
_FLAGS = "[" + ", ".join(f'"{flag}"' for flag in OWNED_ARGUMENTS) + "]"
_SENTENCES = (
    "[" + ", ".join(f'"{flag} belongs to Swingpool: {remedy}"' for flag, remedy in OWNED_ARGUMENTS.items()) + "]"
)

ExtraArgument = Annotated[
    str,
    Field(min_length=1, max_length=896),  # what the API server may spend on the rule grows with it
    Rule(
        cel=f"!self.startsWith('-') || [{_FLAG}].all(f, !{_FLAGS}.exists(o, o.startsWith(f)))",
        message_cel=f"[{_FLAG}].map(f, {_SENTENCES}.filter(s, s.startsWith(f))[0])[0]",
        reason="FieldValueForbidden",
    ),
]
"""One argument of the engine that Swingpool does not set itself."""
