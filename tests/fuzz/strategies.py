"""What clients and workers may send, sane, odd and hostile: bodies, headers, and answers to legs."""

import json
from typing import Any

from hypothesis import strategies as st

NAMED = "203.0.113.66"
"""The host that hostile clients name wherever a host could be named."""

TRANSFER = "kv_transfer_params"
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_STOLEN = st.fixed_dictionaries(
    {"do_remote_prefill": st.booleans(), "remote_host": st.just(NAMED), "remote_port": st.integers(0, 70_000)},
    optional={"do_remote_decode": st.booleans(), "remote_block_ids": st.just([[1, 2]]), "remote_engine_id": st.text()},
)
_HOSTILE = _STOLEN | st.just(NAMED) | JSON_VALUES
_ARGUMENTS = st.dictionaries(st.sampled_from([TRANSFER, "session_id", "x"]), _HOSTILE, max_size=3) | JSON_VALUES
_PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"])}, optional={"text": st.text(max_size=9)})
_MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "system", "tool"]) | JSON_VALUES},
    optional={"content": st.text(max_size=40) | st.lists(_PART, max_size=3) | JSON_VALUES},
)
_COUNT = st.integers(-2, 5) | st.none() | JSON_VALUES
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["m", "adapter", ""]) | JSON_VALUES,
    "prompt": st.text(max_size=60) | st.lists(st.integers(0, 9), max_size=9) | JSON_VALUES,
    "messages": st.lists(_MESSAGE, max_size=3) | JSON_VALUES,
    "stream": st.booleans() | JSON_VALUES,
    "n": _COUNT,
    "best_of": _COUNT,
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "min_tokens": _COUNT,
    "logprobs": st.booleans() | JSON_VALUES,
    "echo": st.booleans() | JSON_VALUES,
    "use_beam_search": st.booleans(),
    "prompt_logprobs": _COUNT,
    "stream_options": JSON_VALUES,
    "tools": JSON_VALUES,
    "tool_choice": JSON_VALUES,
    "priority": _COUNT,
    "request_id": st.just(f"___prefill_addr_{NAMED}:1___decode_addr_{NAMED}:2_"),
    TRANSFER: _HOSTILE,
    "vllm_xargs": _ARGUMENTS,
}
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({}, optional=_FIELDS)


@st.composite
def _written(draw: st.DrawFn) -> bytes:
    """Return an object in one of the many ways in which JSON can be written."""
    text = json.dumps(draw(OBJECTS), ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):  # the names in disguise, as readers of JSON see through it
        text = text.replace(TRANSFER, "\\u006bv_transfer_param\\u0073").replace("vllm_xargs", "vllm\\u005fxargs")
    if draw(st.booleans()):  # a name twice: whoever reads it must take the same one
        more = json.dumps(draw(OBJECTS))
        text = text[:-1] + ("," if len(text) > 2 and len(more) > 2 else "") + more[1:]
    coding = draw(st.sampled_from(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "utf-16-be", "utf-32-le"]))
    return text.encode(coding, "surrogatepass")


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    """Return a body with a piece cut out, doubled or replaced."""
    raw = draw(_written())
    start = draw(st.integers(0, len(raw)))
    end = draw(st.integers(start, len(raw)))
    return raw[:start] + draw(st.sampled_from([b"", raw[start:end] * 2, b"\x00", b"NaN", b"[" * 300])) + raw[end:]


BODIES = _written() | _damaged() | st.binary(max_size=40)
PATHS = st.sampled_from(
    [
        "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/models",
        "/v1/completions?a=b", "/v1/completions/", "/v1/chat/completions#x", "/v1/audio/transcriptions", "", "*",
    ]
)  # fmt: skip
CONTENT_TYPES = st.sampled_from(
    ["application/json", "APPLICATION/JSON; charset=utf-16", "text/plain", "", "multipart/form-data; boundary=x"]
)
NAMING_HEADERS = (
    "x-gateway-destination-endpoint", "x-prefiller-host-port", "x-data-parallel-host-port", "x-encoder-hosts-ports",
    "x-kv-cache-source-host-port", "x-envoy-original-dst-host", "x-envoy-original-path", "x-forwarded-host",
    "x-envoy-upstream-rq-per-try-timeout-ms", "x-envoy-retry-on", "x-envoy-max-retries", "x-envoy-decorator-operation",
)  # fmt: skip
"""Headers by which a client could name a host or bend what happens to its request."""

_VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
HEADERS = st.dictionaries(
    st.sampled_from([*NAMING_HEADERS, "authorization", "x-request-id", "traceparent", "x-gateway-inference-objective"]),
    _VALUES | st.just(f"{NAMED}:9"),
    max_size=5,
)
