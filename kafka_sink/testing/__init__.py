"""An embedded Kafka for tests and demonstrations: a pure core (`BrokerCluster`) and a thin server (`EmbeddedBroker`)."""

from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.faults import Fault
from kafka_sink.testing.settings import Settings

__all__ = ["BrokerCluster", "Fault", "Settings"]
