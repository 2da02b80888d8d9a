"""`tidegate features`: what is done with each table feature, beside other clients."""

import typer

from tidegate.delta.features.page import features_page


def features() -> None:
    """Print how each table feature and property is supported, as Markdown."""
    typer.echo(features_page(), nl=False)
