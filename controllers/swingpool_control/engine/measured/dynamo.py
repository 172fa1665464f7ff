"""NVIDIA Dynamo's profiles: `raw_data.npz` of prefill and of decode, as its planner interpolates in them.

The decode grid names each point by the share of the KV cache that was asked for and the context's length. What really
ran was less where the engine's own limit on sequences was lower: there the latency against the share is not even
monotone. Throughput times latency gives the sequences that ran (Little's law), and against them it is.
"""

import io
import zipfile

import numpy as np
import numpy.typing as npt

from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError

Array = npt.NDArray[np.float64]

PREFILL = ("prefill_isl", "prefill_ttft")
DECODE = ("y_context_length", "z_itl", "z_thpt_per_gpu", "max_kv_tokens")
SOURCE = "Prefill and decode interpolation data of NVIDIA Dynamo's profiler (raw_data.npz)"


def read(files: dict[str, bytes], *, accelerators: int = 1) -> tuple[MeasuredSet, ...]:
    """Return the one set that a prefill file and a decode file make.

    Args:
        files: both files, by the name to call them in errors; which is which is told by the arrays they hold.
        accelerators: accelerators of one worker; throughput stands in the file per accelerator.

    Raises:
        MeasurementError: a file is none of the two, or one is missing, or an array is broken.
    """
    prefill: tuple[Measurement, ...] = ()
    decode: tuple[Measurement, ...] = ()
    capacity = None
    for origin, data in files.items():
        arrays = _arrays(data, origin)
        if all(name in arrays for name in PREFILL):
            prefill += _prefill(arrays, origin)
        elif all(name in arrays for name in DECODE):
            decode += _decode(arrays, origin, accelerators)
            capacity = _capacity(arrays, origin) * accelerators
        else:
            raise MeasurementError(
                f"{origin}: holds neither {', '.join(PREFILL)} (prefill) nor {', '.join(DECODE)} (decode)"
            )
    if not prefill or not decode:
        missing = "prefill" if not prefill else "decode"
        raise MeasurementError(f"{', '.join(files)}: no {missing} file; give both raw_data.npz")
    return (
        MeasuredSet(
            name="dynamo",
            points=prefill + decode,
            source=SOURCE,
            licence="Apache-2.0",
            accelerators=accelerators,
            tensor_parallel_size=accelerators,
            max_batched_tokens=max(int(point.prompt_tokens) for point in prefill),
            max_sequences=max(round(point.sequences) for point in decode),
            kv_capacity_tokens=capacity,
            notes=(
                "Sequences of the decode points are throughput times latency, not the KV use that was asked for",
                "Each prompt is taken as computed in one iteration: the file does not tell the token budget",
            ),
        ),
    )


def _arrays(data: bytes, origin: str) -> dict[str, Array]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            found = {name: archive[name].astype(np.float64) for name in archive.files}
    except (ValueError, OSError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise MeasurementError(f"{origin}: not an npz archive of numbers: {error}") from error
    for name, array in found.items():
        wrong = np.flatnonzero(~np.isfinite(array.ravel()) | (array.ravel() <= 0))
        if name in PREFILL + DECODE and (array.ndim != 1 or not array.size or wrong.size):
            place = f" at index {wrong[0]}" if wrong.size else ""
            raise MeasurementError(f"{origin}, array {name}{place}: must be a row of finite numbers above zero")
    return found


def _column(arrays: dict[str, Array], names: tuple[str, ...], origin: str) -> Array:
    if len({arrays[name].size for name in names}) != 1:
        raise MeasurementError(f"{origin}: arrays {', '.join(names)} differ in length")
    return np.column_stack([arrays[name] for name in names])


def _prefill(arrays: dict[str, Array], origin: str) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(seconds=float(ttft_ms) / 1e3, origin=f"{origin}, index {i}", prompts=1, prompt_tokens=float(tokens))
        for i, (tokens, ttft_ms) in enumerate(_column(arrays, PREFILL, origin))
    )


def _decode(arrays: dict[str, Array], origin: str, accelerators: int) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(
            seconds=float(itl_ms) / 1e3,
            origin=f"{origin}, index {i}",
            sequences=float(tokens_per_s * accelerators * itl_ms) / 1e3,
            context_tokens=float(context),
        )
        for i, (context, itl_ms, tokens_per_s) in enumerate(_column(arrays, DECODE[:3], origin))
    )


def _capacity(arrays: dict[str, Array], origin: str) -> int:
    if arrays["max_kv_tokens"].size != 1:
        raise MeasurementError(f"{origin}, array max_kv_tokens: must hold one number")
    return int(arrays["max_kv_tokens"][0])
