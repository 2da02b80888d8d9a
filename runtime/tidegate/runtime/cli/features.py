"""`tidegate features`: what is done with each table feature, beside other clients."""

import typer

from tidegate.delta.features.page import features_page


def features() -> None:
    """Print the page about table features and properties, as Markdown."""
    typer.echo(features_page(), nl=False)
