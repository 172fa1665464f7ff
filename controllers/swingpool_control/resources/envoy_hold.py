"""Holds a stream's headers back in Envoy until its first byte comes, so that until then another worker can take over.

vLLM sends a stream's headers when it has read the request, long before the first token. Envoy hands them on at once,
and can then not try another worker any more, though the client has seen nothing that says anything. No setting of
Envoy's changes that; a filter between its router and the worker does, which returns "stop" for headers that a body
follows. The body lets them go, as in any filter, and no byte of it passes through here.

The filter is a WebAssembly module, written out below since it has one function with two instructions. The interface is
proxy-wasm's, ABI 0.2.1.
"""

import base64

from swingpool_control.resources.envoy_settings import TYPE, Config

_I32, _FUNCTION = b"\x7f", b"\x60"
_FUNCTION_EXPORT, _MEMORY_EXPORT = b"\x00", b"\x02"
_CONSTANT_0, _ARGUMENT_2, _IS_0, _END = b"\x41\x00", b"\x20\x02", b"\x45", b"\x0b"
_TYPES, _FUNCTIONS, _MEMORIES, _EXPORTS, _CODE = 1, 3, 5, 7, 10

_EXPORTED = (
    # Name, arguments, results, instructions.
    ("proxy_abi_version_0_2_1", 0, 0, b""),
    ("proxy_on_memory_allocate", 1, 1, _CONSTANT_0),  # demanded, and never called: nothing is handed to the module
    ("proxy_on_response_headers", 3, 1, _ARGUMENT_2 + _IS_0),  # (context, headers, end of stream): stop unless it ends
)


def upstream_filters() -> list[Config]:
    """Return the filters between Envoy's router and a worker."""
    code = base64.b64encode(module()).decode("ascii")
    return [
        {
            "name": "swingpool.hold_headers",
            "typed_config": {
                "@type": f"{TYPE}.extensions.filters.http.wasm.v3.Wasm",
                "config": {
                    "name": "hold_headers",
                    # Otherwise "stop" would stop the body too, for ever.
                    "allow_on_headers_stop_iteration": True,
                    "vm_config": {
                        "vm_id": "hold_headers",
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": {"local": {"inline_bytes": code}},
                    },
                },
            },
        },
        {
            "name": "envoy.filters.http.upstream_codec",
            "typed_config": {"@type": f"{TYPE}.extensions.filters.http.upstream_codec.v3.UpstreamCodec"},
        },
    ]


def module() -> bytes:
    """Return the WebAssembly module."""
    types = [_FUNCTION + _vector([_I32] * takes) + _vector([_I32] * gives) for _, takes, gives, _ in _EXPORTED]
    exports = [_name(name) + _FUNCTION_EXPORT + _number(at) for at, (name, *_) in enumerate(_EXPORTED)]
    bodies = [b"\x00" + instructions + _END for *_, instructions in _EXPORTED]
    return b"".join(
        (
            b"\x00asm\x01\x00\x00\x00",
            _section(_TYPES, types),
            _section(_FUNCTIONS, [_number(at) for at in range(len(_EXPORTED))]),
            _section(_MEMORIES, [b"\x00\x01"]),  # one page, with no limit
            _section(_EXPORTS, [*exports, _name("memory") + _MEMORY_EXPORT + _number(0)]),
            _section(_CODE, [_number(len(body)) + body for body in bodies]),
        )
    )


def _section(number: int, items: list[bytes]) -> bytes:
    content = _vector(items)
    return bytes([number]) + _number(len(content)) + content


def _vector(items: list[bytes]) -> bytes:
    return _number(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    return _number(len(text)) + text.encode("ascii")


def _number(value: int) -> bytes:
    """Return a number as LEB128; all of them here are small."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _number(high) if high else bytes([low])
