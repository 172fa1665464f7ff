"""The coefficients of llm-inferno's sample data, in milliseconds.

One iteration is `alpha + beta (tokens computed) + gamma (tokens read)`. A decoding sequence computes one token and
reads its context; a prompt computes and reads its own. Most accelerators of that data are one another's figures times a
constant, so none of them counts as measured.
"""

from swingpool_control.engine.measured.point import MeasuredSet, Measurement, number
from swingpool_control.engine.measured.text import as_list, as_object, json_object

PROMPTS = (32, 128, 512, 1024, 2048, 4096, 8192)
CONTEXTS = (128, 512, 2048, 8192)
SOURCE = "Sample data of llm-inferno (model-data.json)"


def read(files: dict[str, bytes]) -> tuple[MeasuredSet, ...]:
    """Return a set for each model and accelerator, named `MODEL/ACCELERATOR`.

    Raises:
        MeasurementError: a file is not in this form.
    """
    found = []
    for origin, data in files.items():
        models = as_list(json_object(data, origin).get("models"), f"{origin}, models")
        for i, entry in enumerate(models):
            where = f"{origin}, models[{i}]"
            found.append(_set(as_object(entry, where), where))
    return tuple(found)


def _set(entry: dict[str, object], where: str) -> MeasuredSet:
    parameters = as_object(entry.get("perfParms"), f"{where}.perfParms")
    alpha, beta, gamma = (number(parameters, name, f"{where}.perfParms") for name in ("alpha", "beta", "gamma"))
    largest = max(1, int(number(entry, "maxBatchSize", where)))
    count = max(1, int(number(entry, "accCount", where, default=1)))
    prefill = [
        Measurement(seconds=(alpha + (beta + gamma) * n) / 1e3, origin=where, prompts=1, prompt_tokens=n)
        for n in PROMPTS
    ]
    decode = [
        Measurement(
            seconds=(alpha + s * (beta + gamma * context)) / 1e3, origin=where, sequences=s, context_tokens=context
        )
        for s in sorted({1, max(1, largest // 4), max(1, largest // 2), largest})
        for context in CONTEXTS
    ]
    return MeasuredSet(
        name=f"{entry.get('name')}/{entry.get('acc')}",
        points=(*prefill, *decode),
        source=SOURCE,
        licence="Apache-2.0",
        published_fit=True,
        measured=False,
        accelerators=count,
        tensor_parallel_size=count,
        max_batched_tokens=max(PROMPTS),
        max_sequences=largest,
        notes=("Most accelerators of this data are one another's figures times a constant: sample data, not measured",),
    )
