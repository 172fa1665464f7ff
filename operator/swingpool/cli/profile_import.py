"""`swingpool profile import`: a profile from AIConfigurator's tables, which needs no GPU.

AIConfigurator is the optional extra `aiconfigurator`, or any interpreter that has it; see `swingpool.aiconfigurator`.
"""

from pathlib import Path

import click

from swingpool.aiconfigurator import client, points
from swingpool.cli import profile_file
from swingpool_control.engine.assumed import LINK_BYTES_PER_S, LINK_LATENCY_S, STARTUP_S
from swingpool_control.engine.profile import name_of

Positive = click.FloatRange(min=0, min_open=True)


@click.command("import")
@click.option("--model", required=True, help="Model, as AIConfigurator names it, such as Qwen/Qwen3-32B-FP8.")
@click.option("--system", required=True, help="Accelerator, as AIConfigurator names it, such as h200_sxm.")
@click.option(
    "--accelerator", "products", multiple=True, required=True, help="Product label of nodes. May be repeated."
)
@click.option("--tensor-parallel-size", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--backend", default="vllm", show_default=True, help="Engine whose tables are used.")
@click.option("--weights", type=click.Choice(tuple(profile_file.WEIGHT_BYTES)), help="Default: by the model's name.")
@click.option(
    "--memory-share", type=click.FloatRange(0, 1, min_open=True), default=points.MEMORY_SHARE, show_default=True
)
@click.option("--max-batched-tokens", type=click.IntRange(min=1), default=8192, show_default=True)
@click.option("--max-sequences", type=click.IntRange(min=1), default=1024, show_default=True)
@click.option("--link-bytes-per-s", type=Positive, help="What a worker receives. Default, assumed: 1.25e10.")
@click.option("--startup-s", type=click.FloatRange(min=0), help="From creation to serving. Default, assumed: 120.")
@click.option("--name", help="The profile's name. Default: from model and accelerator.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the halves by which the error is told.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(
    *,
    model: str,
    system: str,
    products: tuple[str, ...],
    tensor_parallel_size: int,
    backend: str,
    weights: str | None,
    memory_share: float,
    max_batched_tokens: int,
    max_sequences: int,
    link_bytes_per_s: float | None,
    startup_s: float | None,
    name: str | None,
    seed: int,
    output: Path,
    force: bool,
) -> None:
    """Write a profile from AIConfigurator's tables of measured operators; needs no GPU."""
    import numpy as np

    from swingpool_control.engine import fitted

    profile_file.check(output, force=force)
    weight_bytes = profile_file.WEIGHT_BYTES[weights or ("fp8" if "fp8" in model.lower() else "bf16")]
    assumed = [f"link_latency_s {LINK_LATENCY_S:g}"]
    assumed += [f"link_bytes_per_s {LINK_BYTES_PER_S:g}"] if link_bytes_per_s is None else []
    assumed += [f"startup_s {STARTUP_S:g}"] if startup_s is None else []
    try:
        with client.AIConfigurator(client.interpreter()) as peer:
            measured, kv_bytes_per_token = points.measured_set(
                peer.ask,
                model=model,
                system=system,
                tensor_parallel_size=tensor_parallel_size,
                backend=backend,
                memory_share=memory_share,
            )
        described = fitted.Described(
            name=name or name_of(model, products[0]),
            models=(model,),
            products=products,
            summary=f"{model} on {tensor_parallel_size} x {system}, estimated by AIConfigurator",
            kv_bytes_per_token=kv_bytes_per_token,
            link_bytes_per_s=link_bytes_per_s or LINK_BYTES_PER_S,
            link_latency_s=LINK_LATENCY_S,
            startup_s=STARTUP_S if startup_s is None else startup_s,
            assumed=tuple(assumed),
            basis="operator-tables",
            power=profile_file.power(products[0], tensor_parallel_size),
            first_principles=profile_file.first_principles(model, products[0], tensor_parallel_size, weight_bytes),
        )
        profile = fitted.profile(measured, described, rng=np.random.default_rng(seed))
    except (client.AIConfiguratorError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    layout = profile.layout.model_copy(
        update={"max_batched_tokens": max_batched_tokens, "max_sequences": max_sequences}
    )
    profile_file.save(profile.model_copy(update={"layout": layout}), output, force=force)
