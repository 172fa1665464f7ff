"""`swingpool crd`: print the CustomResourceDefinition, for those who apply it by themselves."""

import click
import yaml

from swingpool_control.api import crd


def text() -> str:
    """Return the CustomResourceDefinition as YAML."""
    dumped: str = yaml.safe_dump(crd.definition(), sort_keys=False, width=120, allow_unicode=True)
    return dumped


@click.command(help="Print the CustomResourceDefinition, ready for `kubectl apply --server-side -f -`.")
def command() -> None:
    """Print the CustomResourceDefinition."""
    click.echo(text(), nl=False)
