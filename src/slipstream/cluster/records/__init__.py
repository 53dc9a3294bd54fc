"""The records of runs and of the resources that were created for them, in one SQLite database."""

from slipstream.cluster.records.ledger import Resource as Resource
from slipstream.cluster.records.ledger import ResourceLedger as ResourceLedger
from slipstream.cluster.records.runs import RunLog as RunLog
from slipstream.cluster.records.runs import RunRecord as RunRecord
from slipstream.cluster.records.store import Store as Store
