"""DistServe's profiles: latency formulas that its authors fitted to their measurements, in milliseconds.

Prefill is `a + b n + c n^2` in the prompt's tokens; decode is `a + b c + d s` in the batch's context tokens and its
sequences, with one triple below a threshold of sequences and one above. Points are computed from them on a grid inside
of what the models take, so that an iteration model can be fitted to them, and be told how far it lies off.
"""

from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, number
from swingpool_control.engine.measured.text import as_list, as_object, json_object

PROMPTS = (64, 128, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048)
"""OPT takes 2,048 tokens."""
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
CONTEXTS = (64, 128, 256, 512, 1024, 2048)
SOURCE = "Latency formulas fitted by DistServe's authors on A100 80GB (LLMServe/DistServe, simdistserve)"


def read(files: dict[str, bytes]) -> tuple[MeasuredSet, ...]:
    """Return a set for each model and degree of tensor parallelism: `MODEL/tpN` or, of several files, `FILE/MODEL/tpN`.

    Raises:
        MeasurementError: a file is not in this form.
    """
    found = []
    for origin, data in files.items():
        prefix = f"{origin}/" if len(files) > 1 else ""
        for model, sizes in json_object(data, origin).items():
            for size, formulas in as_object(sizes, f"{origin}, {model}").items():
                where = f"{origin}, {model}.{size}"
                if not size.isdecimal() or int(size) < 1:
                    raise MeasurementError(f"{where}: {size!r} is no degree of tensor parallelism")
                found.append(_set(as_object(formulas, where), f"{prefix}{model}/tp{size}", where, int(size)))
    return tuple(found)


def _set(formulas: dict[str, object], name: str, where: str, size: int) -> MeasuredSet:
    a, b, c = _triple(formulas, "prefill", where)
    threshold = number(formulas, "decoding_large_small_bs_threshold", where)
    small, large = _triple(formulas, "decoding_smallbs", where), _triple(formulas, "decoding_largebs", where)
    prefill = [
        Measurement(seconds=(a + b * n + c * n * n) / 1e3, origin=f"{where}.prefill", prompts=1, prompt_tokens=n)
        for n in PROMPTS
    ]
    decode = []
    for sequences in SEQUENCES:
        base, per_token, per_sequence = small if sequences < threshold else large
        decode += [
            Measurement(
                seconds=(base + per_token * sequences * context + per_sequence * sequences) / 1e3,
                origin=f"{where}.decoding",
                sequences=sequences,
                context_tokens=context,
            )
            for context in CONTEXTS
        ]
    return MeasuredSet(
        name=name,
        points=(*prefill, *decode),
        source=SOURCE,
        licence="Apache-2.0",
        published_fit=True,
        accelerators=size,
        tensor_parallel_size=size,
        max_batched_tokens=max(PROMPTS),
        max_sequences=max(SEQUENCES),
        notes=("Fitted to points computed from published formulas, not to measurements themselves",),
    )


def _triple(formulas: dict[str, object], key: str, where: str) -> tuple[float, float, float]:
    values = as_list(formulas.get(key), f"{where}.{key}")
    if len(values) != 3 or not all(isinstance(value, int | float) for value in values):
        raise MeasurementError(f"{where}.{key}: must be three numbers")
    return values[0], values[1], values[2]
