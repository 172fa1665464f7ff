"""`swingpool profile`: make performance profiles, from measurements or from first principles, and show them.

The fit is imported only when it is asked for: scipy takes longer to load than everything else here.
"""

from pathlib import Path

import click

from swingpool.cli import profile_file, profile_import, profile_measure, profile_table
from swingpool_control.engine import facts, roofline
from swingpool_control.engine.assumed import LINK_BYTES_PER_S, LINK_LATENCY_S, STARTUP_S
from swingpool_control.engine.profile import Profile, ProfileError, built_in, built_in_names, name_of, parse

WEIGHT_BYTES = profile_file.WEIGHT_BYTES
FORMATS = ("csv", "json", "dynamo", "distserve", "splitwise", "inferno")

Existing = click.Path(exists=True, dir_okay=False, path_type=Path)
Positive = click.FloatRange(min=0, min_open=True)
NotNegative = click.FloatRange(min=0)
Count = click.IntRange(min=1)


@click.group(help="Make performance profiles, and show them.")
def command() -> None:
    """Make performance profiles, and show them."""


command.add_command(profile_measure.command)
command.add_command(profile_import.command)


@command.command("show")
@click.argument("profile")
def show(profile: str) -> None:
    """Show a profile: a built-in one by NAME, or a FILE."""
    click.echo("\n".join(profile_table.lines(_load(profile))))


@command.command("fit")
@click.argument("files", nargs=-1, required=True, type=Existing)
@click.option("--from", "form", required=True, type=click.Choice(FORMATS), help="Form of the files.")
@click.option("--set", "set_name", help="Which set of measurements, if the files hold several.")
@click.option("--model", "models", multiple=True, required=True, help="Model it holds for. May be repeated.")
@click.option("--accelerator", "products", multiple=True, required=True, help="Product label. May be repeated.")
@click.option("--count", type=Count, help="Accelerators of one worker. Default: as the files say, or 1.")
@click.option("--tensor-parallel-size", type=Count, help="Default: as the files say, or 1.")
@click.option("--max-batched-tokens", type=Count, help="Token budget per iteration when it was measured.")
@click.option("--max-sequences", type=Count, help="Sequences per iteration. Default: the most that was measured.")
@click.option("--kv-bytes-per-token", type=Positive, required=True, help="Over all layers and accelerators.")
@click.option("--kv-capacity-tokens", type=Count, help="Tokens of KV cache of one worker, if the files do not say.")
@click.option("--link-bytes-per-s", type=Positive, help="What a worker receives. Default, assumed: 1.25e10.")
@click.option("--link-latency-s", type=NotNegative, help="Fixed time of a transfer. Default, assumed: 0.005.")
@click.option("--startup-s", type=NotNegative, help="From a pod's creation to serving. Default, assumed: 120.")
@click.option("--weights", type=click.Choice(tuple(WEIGHT_BYTES)), default="bf16", show_default=True)
@click.option("--name", help="The profile's name. Default: from model and accelerator.")
@click.option("--summary", help="One line that describes it.")
@click.option("--source", help="Where the measurements come from, if the files do not say.")
@click.option("--licence", help="Their licence, if the files do not say.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the halves by which the error is told.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def fit(
    *,
    files: tuple[Path, ...],
    form: str,
    set_name: str | None,
    models: tuple[str, ...],
    products: tuple[str, ...],
    count: int | None,
    tensor_parallel_size: int | None,
    max_batched_tokens: int | None,
    max_sequences: int | None,
    kv_bytes_per_token: float,
    kv_capacity_tokens: int | None,
    link_bytes_per_s: float | None,
    link_latency_s: float | None,
    startup_s: float | None,
    weights: str,
    name: str | None,
    summary: str | None,
    source: str | None,
    licence: str | None,
    seed: int,
    output: Path,
    force: bool,
) -> None:
    """Fit a profile to FILES of measurements and write it."""
    import numpy as np

    from swingpool_control.engine import fitted
    from swingpool_control.engine.measured import formats
    from swingpool_control.engine.measured.point import MeasurementError

    profile_file.check(output, force=force)
    link = {
        "link_bytes_per_s": (link_bytes_per_s, LINK_BYTES_PER_S),
        "link_latency_s": (link_latency_s, LINK_LATENCY_S),
        "startup_s": (startup_s, STARTUP_S),
    }
    size = tensor_parallel_size or count or 1
    described = fitted.Described(
        power=profile_file.power(products[0], count or 1),
        first_principles=profile_file.first_principles(models[0], products[0], size, WEIGHT_BYTES[weights]),
        name=name or name_of(models[0], products[0]),
        models=models,
        products=products,
        kv_bytes_per_token=kv_bytes_per_token,
        link_bytes_per_s=link_bytes_per_s or LINK_BYTES_PER_S,
        link_latency_s=LINK_LATENCY_S if link_latency_s is None else link_latency_s,
        startup_s=STARTUP_S if startup_s is None else startup_s,
        summary=summary,
        accelerators=count,
        tensor_parallel_size=tensor_parallel_size,
        max_batched_tokens=max_batched_tokens,
        max_sequences=max_sequences,
        kv_capacity_tokens=kv_capacity_tokens,
        source=source,
        licence=licence,
        assumed=tuple(f"{field} {default:g}" for field, (given, default) in link.items() if given is None),
    )
    try:
        contents = {str(path): path.read_bytes() for path in files}
        measured = formats.choose(formats.read(form, contents, accelerators=count), set_name)
        profile = fitted.profile(measured, described, rng=np.random.default_rng(seed))
    except (MeasurementError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    profile_file.save(profile, output, force=force)


@command.command("roofline")
@click.option("--model", required=True, help="Model; its shape must be known, or be in --config.")
@click.option("--accelerator", required=True, help="Accelerator, by product label or name, such as h200.")
@click.option("--config", type=Existing, help="The model's config.json, if its shape is not known.")
@click.option("--parameters", type=Positive, help="How many parameters it has; goes with --config.")
@click.option("--tensor-parallel-size", type=Count, default=1, show_default=True)
@click.option("--weights", type=click.Choice(tuple(WEIGHT_BYTES)), default="bf16", show_default=True)
@click.option("--max-batched-tokens", type=Count, default=8192, show_default=True)
@click.option("--max-sequences", type=Count, default=1024, show_default=True)
@click.option("--name", help="The profile's name. Default: from model and accelerator.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def from_first_principles(
    *,
    model: str,
    accelerator: str,
    config: Path | None,
    parameters: float | None,
    tensor_parallel_size: int,
    weights: str,
    max_batched_tokens: int,
    max_sequences: int,
    name: str | None,
    output: Path,
    force: bool,
) -> None:
    """Write a profile from first principles, for what nobody measured: the least time that the hardware allows."""
    if (config is None) != (parameters is None):
        raise click.UsageError("--config and --parameters go together")
    try:
        if config is None or parameters is None:
            shape = facts.shape(model)
        else:
            shape = facts.shape_of_config(config.read_bytes(), origin=str(config), name=model, parameters=parameters)
        found = facts.accelerator(accelerator)
        profile = roofline.profile(
            shape,
            found,
            name=name or name_of(model, f"{found.name}-tp{tensor_parallel_size}-roofline"),
            models=(model,),
            tensor_parallel_size=tensor_parallel_size,
            weight_bytes=WEIGHT_BYTES[weights],
            max_batched_tokens=max_batched_tokens,
            max_sequences=max_sequences,
        )
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    profile_file.save(profile, output, force=force)


def _load(profile: str) -> Profile:
    try:
        if profile in built_in_names():
            return built_in(profile)
        path = Path(profile)
        if not path.is_file():
            names = ", ".join(built_in_names())
            raise click.ClickException(f"{profile} is neither a file nor a built-in profile; built in are {names}")
        return parse(path.read_bytes(), origin=profile)
    except (ProfileError, OSError) as error:
        raise click.ClickException(str(error)) from error
