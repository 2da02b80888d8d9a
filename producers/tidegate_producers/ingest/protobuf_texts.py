"""Protobuf records as JSON texts: each is read by the schema, and the message in it, that it names.

Needs the extra `registry`, also where Spark's executors run.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DataType

from tidegate_delta.errors import InvalidRequest
from tidegate_producers.datasource.spark_schema import to_spark
from tidegate_producers.ingest.protobuf_records import (
    READ_TYPE,
    RecordReader,
    message_place,
)
from tidegate_producers.ingest.record_texts import FAULT, KEY_TEXT, MISSING, TEXT, RecordTexts
from tidegate_producers.ingest.settings import OWN_PREFIX
from tidegate_runtime.kafka.protobuf_messages import Files, message_class, message_columns

_READ: Final = f"{OWN_PREFIX}protobuf"


class ProtobufTexts(RecordTexts):
    """Records of Protobuf. `files_of` returns the files of the schema with an id, or None.

    It raises InvalidRequest, for a schema that can't be used; Unavailable, Misconfigured.
    """

    def __init__(self, files_of: Callable[[int], Files | None]) -> None:
        self._files_of = files_of
        self._known: dict[str, tuple[Files, tuple[int, ...]]] = {}
        self._faults: dict[str, str] = {}
        self._types: dict[str, Mapping[str, DataType]] = {}

    def read(self, records: DataFrame) -> DataFrame:
        """Return records with TEXT, KEY_TEXT, FAULT and MISSING."""
        reader = RecordReader(dict(self._known), dict(self._faults))
        read = arrow_udf(reader.read, READ_TYPE)  # type: ignore[call-overload]  # its stubs do not know hints
        # Keys are read where nothing else says which row is meant.
        key = F.when(F.col("value").isNull(), F.col("key"))
        parts = {TEXT: "text", KEY_TEXT: "key_text", FAULT: "fault", MISSING: "missing"}
        return (
            records.withColumn(_READ, read(F.col("value"), key))
            .withColumns({name: F.col(_READ)[part] for name, part in parts.items()})
            .drop(_READ)
        )

    def learn(self, names: Iterable[str]) -> bool:
        """Ask for schemas; return whether any of the messages was not known.

        One that can't be used is the fault of its records, and of no others.
        Raises: Unavailable; Misconfigured, for a registry that refuses to answer.
        """
        new = set(names) - self._known.keys() - self._faults.keys()
        for name in sorted(new, key=message_place):
            schema_id, index = message_place(name)
            try:
                files = self._files_of(schema_id)
                if files is None:
                    self._faults[name] = f"the registry has no schema with the id {schema_id}"
                    continue
                columns = to_spark(message_columns(message_class(files, index).DESCRIPTOR))
            except InvalidRequest as error:
                self._faults[name] = f"the schema {schema_id} can't be used: {error}"
                continue
            self._types[name] = {field.name: field.dataType for field in columns.fields}
            self._known[name] = files, index
        return bool(new)

    def types(self) -> Mapping[str, DataType]:
        """Return the types of the fields of values, by name; newer schemas come behind older."""
        return {
            name: kind
            for message in sorted(self._types, key=message_place)
            for name, kind in self._types[message].items()
        }
