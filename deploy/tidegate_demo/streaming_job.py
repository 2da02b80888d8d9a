"""The demo's stream, run in its own process: appends files of flights to a table, exactly once.

It is killed and restarted from its checkpoint. A batch that was proposed before is proposed again
under the same (application, version), and is committed once.
"""

from pathlib import Path
from typing import Annotated

import typer

from tidegate_demo.spark_session import open_session

app = typer.Typer(add_completion=False)


@app.command()
def stream(
    source: Annotated[Path, typer.Option(help="the folder of Parquet files to stream")],
    table: Annotated[str, typer.Option(help="the table's root")],
    checkpoint: Annotated[Path, typer.Option(help="the stream's checkpoint folder")],
    bootstrap: Annotated[str, typer.Option(help="Kafka's bootstrap servers")],
    files_per_batch: Annotated[int, typer.Option(help="files in a micro-batch")] = 1,
) -> None:
    """Append every file of the folder to the table, then end."""
    session = open_session("tidegate-demo-stream")
    schema = session.read.parquet(str(source)).schema
    flights = (
        session.readStream.schema(schema)
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(str(source))
    )
    query = (
        flights.writeStream.format("tidegate")
        .option("checkpointLocation", str(checkpoint))
        .option("kafka.bootstrap.servers", bootstrap)
        .option("userMetadata", "stream")
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    app()
