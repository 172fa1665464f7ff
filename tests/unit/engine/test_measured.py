"""Readers of measurements: what each form becomes, and that an error leads to the place in the file."""

import io
import json
from typing import Any

import numpy as np
import pytest

from swingpool_control.engine.measured import formats
from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, Phase


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


PREFILL = npz(prefill_isl=np.array([100, 1000]), prefill_ttft=np.array([20.0, 40.0]), prefill_thpt_per_gpu=[1.0, 2.0])


def decode(**changes: Any) -> bytes:
    arrays: dict[str, Any] = {
        "x_kv_usage": np.array([0.1, 0.9]),
        "y_context_length": np.array([500.0, 500.0]),
        "z_itl": np.array([10.0, 40.0]),
        "z_thpt_per_gpu": np.array([800.0, 2000.0]),
        "max_kv_tokens": np.array([900_000]),
    }
    return npz(**{**arrays, **changes})


def only(form: str, data: bytes | str, name: str = "table") -> MeasuredSet:
    content = data.encode() if isinstance(data, str) else data
    (found,) = formats.FORMATS[form]({name: content})
    return found


def test_dynamos_decode_batch_is_throughput_times_latency() -> None:
    (found,) = formats.FORMATS["dynamo"]({"d/raw_data.npz": decode(), "p/raw_data.npz": PREFILL})
    assert [point.sequences for point in found.of(Phase.DECODE)] == pytest.approx([8, 80])
    assert [(point.context_tokens, point.seconds) for point in found.of(Phase.DECODE)] == [(500, 0.01), (500, 0.04)]
    assert [(point.prompt_tokens, point.seconds) for point in found.of(Phase.PREFILL)] == [(100, 0.02), (1000, 0.04)]
    assert found.kv_capacity_tokens == 900_000
    assert found.licence == "Apache-2.0"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": PREFILL}, "a: no decode file; give both"),
        ({"a": decode()}, "a: no prefill file; give both"),
        ({"a": b"PK\x03\x04junk"}, "a: not an npz archive of numbers"),
        ({"a": b"text"}, "a: not an npz archive of numbers"),
        ({"a": npz(other=np.array([1]))}, "a: holds neither prefill_isl"),
        ({"a": decode(z_itl=np.array([1.0, np.nan]))}, "a, array z_itl at index 1: must be a row of finite numbers"),
        ({"a": decode(z_itl=np.array([1.0]))}, "a: arrays .* differ in length"),
        ({"a": npz(x=np.array([object()], dtype=object))}, "a: not an npz archive of numbers"),
    ],
)
def test_dynamos_files_that_cannot_be_used(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        formats.FORMATS["dynamo"](files)


DISTSERVE = {
    "opt": {
        "2": {
            "decoding_large_small_bs_threshold": 95,
            "prefill": [18.0, 0.1, 1e-5],
            "decoding_smallbs": [20.0, 0.001, 0.04],
            "decoding_largebs": [7.0, 0.001, 0.16],
        }
    }
}


def test_distserves_formulas() -> None:
    found = only("distserve", json.dumps(DISTSERVE))
    assert (found.name, found.tensor_parallel_size, found.published_fit) == ("opt/tp2", 2, True)
    times = {(point.sequences, point.context_tokens): point.seconds for point in found.of(Phase.DECODE)}
    assert times[1, 128] == pytest.approx((20 + 0.128 + 0.04) / 1e3)
    assert times[128, 128] == pytest.approx((7 + 0.001 * 128 * 128 + 0.16 * 128) / 1e3)
    prompts = {point.prompt_tokens: point.seconds for point in found.of(Phase.PREFILL)}
    assert prompts[1024] == pytest.approx((18 + 102.4 + 1e-5 * 1024**2) / 1e3)


def test_distserves_sets_of_several_files_are_told_apart() -> None:
    data = json.dumps(DISTSERVE).encode()
    assert [found.name for found in formats.FORMATS["distserve"]({"x": data, "y": data})] == ["x/opt/tp2", "y/opt/tp2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', "table, line 2, column 6: not JSON"),
        ("[]", "table: must be a JSON object"),
        ('{"opt": 3}', "table, opt: must be a JSON object"),
        ('{"opt": {"two": {}}}', r"table, opt\.two: 'two' is no degree"),
        ('{"opt": {"2": {"prefill": [1, 2]}}}', r"table, opt\.2\.prefill: must be three numbers"),
    ],
)
def test_distserves_files_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        only("distserve", text)


SPLITWISE = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"


def test_splitwises_medians() -> None:
    rows = "".join(f"m,h,512,{b},128,{t},50,8\n" for b, t in ((1, 100), (1, 300), (1, 110), (2, 250), (64, 200)))
    found = only("splitwise", SPLITWISE + rows)
    assert found.name == "m/h/tp8"
    assert [(point.prompts, point.seconds) for point in found.of(Phase.PREFILL)] == [(1, 0.11), (2, 0.25)]
    assert [(point.sequences, point.context_tokens) for point in found.of(Phase.DECODE)] == [(1, 576), (2, 576)]
    assert found.notes == ("Left out, for it did not run as one batch: 64 prompts of 512 tokens",)


def test_what_splitwise_scaled_does_not_count_as_measured() -> None:
    assert not only("splitwise", SPLITWISE + "m,h100-80gb-pcap,512,1,128,100,50,8\n").measured


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,hardware\n", "table, line 1: no column batch_size"),
        (SPLITWISE + "m,h,512,1,128,fast,50,8\n", "table, line 2, prompt_time: must be a finite number.* 'fast'"),
        (SPLITWISE + "m,h,512,1,128,inf,50,8\n", "table, line 2, prompt_time: must be a finite number"),
        (SPLITWISE + "m,h,512,1,128,0,50,8\n", "table, line 2, prompt_time: must be above zero"),
        (SPLITWISE + "m,h,512,1,128,,50,8\n", "table, line 2, prompt_time: is missing"),
        (SPLITWISE + "m,h,512\n", "table, line 2: has another number of cells"),
        (SPLITWISE + 'm,"h\n', "table, line 2: not CSV"),
        (b"a,b\n\xff\n", "table, line 2: not UTF-8"),
        ("", "table, line 1: no column"),
    ],
)
def test_tables_that_cannot_be_used(text: str | bytes, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        only("splitwise", text)


def test_infernos_coefficients() -> None:
    entry = {"name": "m", "acc": "A100", "accCount": 2, "maxBatchSize": 64}
    parameters = {"alpha": 20.0, "beta": 0.04, "gamma": 0.001}
    found = only("inferno", json.dumps({"models": [{**entry, "perfParms": parameters}]}))
    assert (found.name, found.accelerators, found.measured) == ("m/A100", 2, False)
    times = {(point.sequences, point.context_tokens): point.seconds for point in found.of(Phase.DECODE)}
    assert times[64, 512] == pytest.approx((20 + 64 * (0.04 + 0.512)) / 1e3)
    assert found.of(Phase.PREFILL)[2].seconds == pytest.approx((20 + 0.041 * 512) / 1e3)
    with pytest.raises(MeasurementError, match=r"table, models\[0\]\.perfParms, gamma: is missing"):
        only("inferno", json.dumps({"models": [{**entry, "perfParms": {"alpha": 1, "beta": 1}}]}))


def test_the_own_table() -> None:
    found = only(
        "csv",
        "seconds,prompt_tokens,cached_tokens,sequences,context_tokens\n0.1,2048,512,,\n0.02,,,16,1024\n0.12,512,,16,1024\n",
    )
    assert [point.phase for point in found.points] == [Phase.PREFILL, Phase.DECODE, Phase.MIXED]
    assert found.points[0].computed_tokens == 1536
    assert (found.max_batched_tokens, found.max_sequences, found.kv_capacity_tokens) == (1536, 16, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt_tokens\n5\n", "table, line 1: no column seconds; it has prompt_tokens"),
        ("seconds,promt_tokens\n1,5\n", "table, line 2: unknown column promt_tokens; known are seconds"),
        ("seconds,prompt_tokens\n0,5\n", "table, line 2, seconds: must be more than zero"),
        ("seconds,prompt_tokens\n1,\n", "table, line 2: neither prompts nor sequences"),
        ("seconds,prompt_tokens,cached_tokens\n1,5,5\n", "table, line 2, prompt_tokens: 5 leave nothing to compute"),
        ("seconds,sequences\n1,-2\n", "table, line 2, sequences: must be a finite number, zero or more, not '-2'"),
        ("seconds,sequences\n", "table: holds no measurement"),
    ],
)
def test_own_tables_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        only("csv", text)


OWN = {
    "format": "swingpool-measurements/v1",
    "source": "our lab",
    "licence": "CC0-1.0",
    "accelerators": 2,
    "kv_capacity_tokens": 400_000,
    "points": [{"seconds": 0.1, "prompt_tokens": 100}, {"seconds": 0.01, "sequences": 4, "context_tokens": 50}],
}


def test_the_own_object() -> None:
    found = only("json", json.dumps(OWN))
    assert (found.source, found.licence, found.accelerators, found.kv_capacity_tokens) == (
        "our lab",
        "CC0-1.0",
        2,
        400_000,
    )
    assert len(found.points) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "v2"}, "table, format: is 'v2'; this version reads 'swingpool-measurements/v1'"),
        ({"sauce": "x"}, "table: unknown field sauce"),
        ({"points": 3}, "table, points: must be a JSON array"),
        ({"points": [{"seconds": True, "sequences": 1}]}, r"table, points\[0\], seconds: must be a finite number"),
        ({"accelerators": 1.5}, "table, accelerators: must be a whole number"),
    ],
)
def test_own_objects_that_cannot_be_used(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        only("json", json.dumps({**OWN, **changes}))


def test_a_set_is_chosen_by_name() -> None:
    sets = formats.FORMATS["splitwise"]({"t": (SPLITWISE + "m,h,1,1,1,1,1,8\nm,g,1,1,1,1,1,8\n").encode()})
    assert formats.choose(sets, "m/h/tp8").name == "m/h/tp8"
    with pytest.raises(MeasurementError, match=r"there are 2 sets .* --set: m/g/tp8, m/h/tp8"):
        formats.choose(sets, None)
    with pytest.raises(MeasurementError, match="there is no set 'x'; there are m/g/tp8, m/h/tp8"):
        formats.choose(sets, "x")


def test_a_measurement_of_nothing_is_refused() -> None:
    with pytest.raises(MeasurementError, match="here, context_tokens: must be a finite number"):
        Measurement(seconds=1, origin="here", sequences=1, context_tokens=float("nan"))
