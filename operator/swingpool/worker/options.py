"""The simulated worker's command line: vLLM's own arguments, so that it stands wherever vLLM would, and a few more.

vLLM's parser takes several values after one flag (`--served-model-name a b`) and ignores dashes against underscores;
argparse does the first and a small rewrite the second, which click does not.
"""

import argparse
import json
import math
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swingpool_control import names
from swingpool_control.engine import profile
from swingpool_control.engine.linear import LinearModel

DEFAULT_MODEL = "swingpool/simulated"
DEFAULT_LEASE_S = 30.0
LONGEST_DEFAULT_CONTEXT = 131_072
HIGHEST_PORT = 65_535
DEFAULT_EVENTS = "tcp://*:5557"
DEFAULT_BUFFER_STEPS = 10_000


class OptionError(ValueError):
    """An argument that cannot be used: names it and says what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransfer:
    """How KV cache goes from worker to worker; from `--kv-transfer-config` and vLLM's environment variables."""

    recompute_on_failure: bool
    lease_s: float
    side_channel_host: str
    side_channel_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVEvents:
    """Where it tells what its KV cache holds; from `--kv-events-config`."""

    endpoint: str
    replay_endpoint: str | None
    """Where it tells again; None for nowhere."""
    buffer_steps: int
    """How many messages it tells again, the last ones."""
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """What it shows, and whom it believes."""

    certificate: str
    key: str
    trust: str | None
    """CAs of clients; None for the system's."""
    clients: ssl.VerifyMode
    """Whether clients must show a certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything a simulated worker is told."""

    host: str
    port: int
    tls: TlsFiles | None
    """None for plain HTTP."""
    model_source: str
    served_names: tuple[str, ...]
    """At least one; the first is what answers call the model."""
    max_model_len: int
    block_size: int
    kv_cache_dtype: str
    tensor_parallel_size: int
    prefix_caching: bool
    by_priority: bool
    """Whether requests are scheduled by their priorities, the smallest first."""
    kv_transfer: KVTransfer | None
    kv_events: KVEvents | None
    """None if it does not tell what its KV cache holds."""
    shutdown_timeout_s: float
    startup_delay_s: float
    wake_delay_s: float
    development: bool
    """Whether calls for development are answered: sleep and waking."""
    keep_alive_s: float
    seed: int
    speedup: float
    model: LinearModel
    profile_name: str
    unknown: tuple[str, ...]
    """Arguments that mean nothing here."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options in a command line.

    Raises:
        OptionError: a value cannot be used, or the profile cannot be read.
        SystemExit: help was asked for, or an argument lacks its value.
    """
    known, unknown = _parser().parse_known_args([_dashes(argument) for argument in arguments])
    served = tuple(known.served_model_name or [known.model])
    chosen = _profile(known.profile, model=served[0], source=known.model, product=known.accelerator)
    speedup = _positive("--speedup", known.speedup)
    model = chosen.model(max_batched_tokens=known.max_num_batched_tokens, max_sequences=known.max_num_seqs)
    return Options(
        host=known.host,
        port=known.port,
        tls=_tls(known),
        model_source=known.model,
        served_names=served,
        max_model_len=_max_model_len(known.max_model_len, _whole_blocks(model, known.block_size)),
        block_size=known.block_size,
        kv_cache_dtype=known.kv_cache_dtype,
        tensor_parallel_size=known.tensor_parallel_size,
        prefix_caching=known.enable_prefix_caching,
        by_priority=known.scheduling_policy == "priority",
        kv_transfer=_kv_transfer(known.kv_transfer_config, environment),
        kv_events=_kv_events(known.kv_events_config),
        shutdown_timeout_s=_not_negative("--shutdown-timeout", known.shutdown_timeout),
        startup_delay_s=_not_negative("--startup-delay", known.startup_delay),
        wake_delay_s=_not_negative("--wake-delay", known.wake_delay),
        development=environment.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"),
        keep_alive_s=_environment_number(environment, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", 5.0),
        seed=known.seed,
        speedup=speedup,
        model=model.faster(speedup),
        profile_name=chosen.name,
        unknown=tuple(unknown),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="swingpool worker",
        allow_abbrev=False,
        description="A simulated vLLM worker: no model, no accelerator, the latencies of a performance profile.",
    )
    same = parser.add_argument_group("as vLLM has them")
    same.add_argument("--model", default=DEFAULT_MODEL, help="model; its name, unless --served-model-name is given")
    same.add_argument("--served-model-name", nargs="+", metavar="NAME", help="names that clients may ask for")
    same.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a server in a pod
    same.add_argument("--port", type=_port, default=names.PORT_WORKER, help="port to listen on; 0 for a free one")
    same.add_argument("--ssl-certfile", metavar="FILE", help="speak TLS with this certificate")
    same.add_argument("--ssl-keyfile", metavar="FILE", help="its key")
    same.add_argument("--ssl-ca-certs", metavar="FILE", help="who signs clients' certificates")
    same.add_argument("--ssl-cert-reqs", type=int, choices=(0, 1, 2), default=0, help="2: clients must show one")
    same.add_argument("--enable-ssl-refresh", action="store_true", help=argparse.SUPPRESS)
    same.add_argument("--max-model-len", help="longest context in tokens; 4k means 4000, 4K means 4096")
    same.add_argument("--block-size", type=_count, default=16, help="tokens per KV block")
    same.add_argument("--kv-cache-dtype", default="auto")
    same.add_argument("--max-num-batched-tokens", type=_count, help="tokens per iteration; default: the profile's")
    same.add_argument("--max-num-seqs", type=_count, help="sequences per iteration; default: the profile's")
    same.add_argument("--tensor-parallel-size", "-tp", type=_count, default=1)
    same.add_argument("--kv-transfer-config", metavar="JSON", help="without it KV cache is neither sent nor received")
    same.add_argument("--kv-events-config", metavar="JSON", help="tell what the KV cache holds, over ZeroMQ")
    same.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    same.add_argument("--scheduling-policy", choices=("fcfs", "priority"), default="fcfs", help="who goes first")
    same.add_argument("--shutdown-timeout", type=float, default=0.0, metavar="SECONDS", help="for what is in flight")
    same.add_argument("--seed", type=int, default=0, help="of the generated text, its lengths, and of faults")
    for flags in (("--revision",), ("--quantization", "-q"), ("--dtype",), ("--gpu-memory-utilization",)):
        same.add_argument(*flags, help=argparse.SUPPRESS)
    for flags in (("--pipeline-parallel-size", "-pp"), ("--data-parallel-size", "-dp")):
        same.add_argument(*flags, type=_count, help=argparse.SUPPRESS)
    for flags in (
        ("--enable-expert-parallel", "-ep"),
        ("--enforce-eager",),
        ("--trust-remote-code",),
        ("--enable-sleep-mode",),
    ):
        same.add_argument(*flags, action="store_true", help=argparse.SUPPRESS)
    own = parser.add_argument_group("of the simulation")
    own.add_argument("--profile", metavar="NAME|FILE", help="performance profile; default: one that fits, else demo")
    own.add_argument("--accelerator", metavar="PRODUCT", help="product label by which a profile is chosen")
    own.add_argument("--speedup", type=float, default=1.0, help="how much faster than the profile")
    own.add_argument("--wake-delay", type=float, default=1.0, metavar="SECONDS", help="from sleep to serving")
    own.add_argument("--startup-delay", type=float, default=0.0, metavar="SECONDS", help="not ready for so long")
    return parser


def _tls(known: argparse.Namespace) -> TlsFiles | None:
    if known.ssl_certfile is None and known.ssl_keyfile is None:
        return None
    if known.ssl_certfile is None or known.ssl_keyfile is None:
        raise OptionError("--ssl-certfile and --ssl-keyfile go together")
    return TlsFiles(
        certificate=known.ssl_certfile,
        key=known.ssl_keyfile,
        trust=known.ssl_ca_certs,
        clients=ssl.VerifyMode(known.ssl_cert_reqs),
    )


def _dashes(argument: str) -> str:
    """Write a long flag with dashes, as vLLM reads it."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, not {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"must be a port, 0 to {HIGHEST_PORT}, not {text!r}")
    return int(text)


def _positive(flag: str, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise OptionError(f"{flag} must be a finite number above zero, not {value}")
    return value


def _not_negative(flag: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise OptionError(f"{flag} must be a finite number of seconds, zero or more, not {value}")
    return value


def _whole_blocks(model: LinearModel, block_size: int) -> int:
    """Return how many tokens fit into the whole blocks of a worker."""
    if block_size > model.kv_capacity_tokens:
        raise OptionError(f"--block-size {block_size} exceeds the KV cache of {model.kv_capacity_tokens} tokens")
    return model.kv_capacity_tokens // block_size * block_size


def _max_model_len(text: str | None, capacity_tokens: int) -> int:
    if text is None:
        return min(LONGEST_DEFAULT_CONTEXT, capacity_tokens)
    units = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not digits.isdigit() or int(digits) < 1:
        raise OptionError(f"--max-model-len must be a number of tokens such as 8192 or 8k, not {text!r}")
    length = int(digits) * unit
    if length > capacity_tokens:
        raise OptionError(
            f"--max-model-len {length} does not fit into the profile's KV cache of {capacity_tokens} tokens; "
            f"set it to {capacity_tokens} or less"
        )
    return length


def _profile(given: str | None, *, model: str, source: str, product: str | None) -> profile.Profile:
    if given is None:
        fitting = profile.choose(model=model, product=product) or profile.choose(model=source, product=product)
        return fitting or profile.built_in("demo")
    if "/" not in given and not given.endswith(".json"):
        return profile.built_in(given)
    try:
        return profile.parse(Path(given).read_bytes(), origin=given)
    except OSError as error:
        raise OptionError(f"--profile {given}: {error.strerror}") from error


def _read_json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option} is not JSON: {error}") from error


def _kv_transfer(text: str | None, environment: Mapping[str, str]) -> KVTransfer | None:
    if text is None:
        return None
    config = _read_json("--kv-transfer-config", text)
    if not isinstance(config, dict) or config.get("kv_connector") != "NixlConnector":
        raise OptionError('--kv-transfer-config needs "kv_connector": "NixlConnector", the one that is simulated')
    policy = config.get("kv_load_failure_policy", "fail")
    if policy not in ("fail", "recompute"):
        raise OptionError(f"--kv-transfer-config: kv_load_failure_policy must be fail or recompute, not {policy!r}")
    extra = config.get("kv_connector_extra_config") or {}
    lease_s = extra.get("kv_lease_duration", DEFAULT_LEASE_S) if isinstance(extra, dict) else None
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s < math.inf:
        raise OptionError(
            "--kv-transfer-config: kv_connector_extra_config.kv_lease_duration must be seconds above zero"
        )
    return KVTransfer(
        recompute_on_failure=policy == "recompute",
        lease_s=float(lease_s),
        side_channel_host=environment.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost"),
        side_channel_port=int(
            _environment_number(environment, "VLLM_NIXL_SIDE_CHANNEL_PORT", float(names.PORT_SIDE_CHANNEL))
        ),
    )


def _kv_events(text: str | None) -> KVEvents | None:
    if text is None:
        return None
    config = _read_json("--kv-events-config", text)
    if not isinstance(config, dict):
        raise OptionError("--kv-events-config must be a JSON object")
    if not config.get("enable_kv_cache_events") or config.get("publisher", "zmq") != "zmq":
        return None
    steps = config.get("buffer_steps", DEFAULT_BUFFER_STEPS)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OptionError("--kv-events-config: buffer_steps must be a whole number, 1 or more")
    replay = config.get("replay_endpoint")
    return KVEvents(
        endpoint=str(config.get("endpoint", DEFAULT_EVENTS)),
        replay_endpoint=None if replay is None else str(replay),
        buffer_steps=steps,
        topic=str(config.get("topic", "")),
    )


def _environment_number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        return _not_negative(name, float(text))
    except ValueError as error:
        raise OptionError(f"{name} must be a number, not {text!r}") from error
