from tidegate_delta.errors import InvalidRequest as InvalidRequest
from tidegate_delta.errors import Misconfigured as Misconfigured
from tidegate_delta.errors import OutcomeUnknown as OutcomeUnknown
from tidegate_delta.errors import TidegateError as TidegateError
from tidegate_delta.errors import Unavailable as Unavailable
from tidegate_messages.outcome import Outcome as Outcome
from tidegate_messages.proposal import AppTxn as AppTxn
from tidegate_messages.proposal import Operation as Operation
from tidegate_messages.proposal import Proposal as Proposal
from tidegate_messages.proposal import ReadSet as ReadSet
from tidegate_producers.client import Client as Client
from tidegate_producers.datasource import TidegateSource as TidegateSource
from tidegate_producers.datasource import use_session as use_session
from tidegate_producers.log_store import LOG_STORE_PACKAGES as LOG_STORE_PACKAGES
from tidegate_producers.log_store import log_store_jar as log_store_jar
from tidegate_producers.log_store import spark_config as spark_config
from tidegate_producers.table import Table as Table
from tidegate_runtime.client.client import Rejected as Rejected
from tidegate_runtime.client.client import result as result
from tidegate_runtime.client.proposal_builders import Stamp as Stamp
from tidegate_runtime.client.proposal_builders import Target as Target
from tidegate_runtime.kafka.settings import KafkaSettings as KafkaSettings

__all__: list[str]
