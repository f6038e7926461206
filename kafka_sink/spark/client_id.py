"""The name that brokers know the tasks of a sink by: in quotas, logs and metrics.

A quota is set for a whole name in advance, so the name is the same in every run, and no other sink has it. The clients
of the driver keep names of their own: sinks of one application share them, and a throttled job must not be held back in
its commit.
"""

from __future__ import annotations

from kafka_sink.commit.identity import label_of, name_of_stream
from kafka_sink.options.producer_options import SINK_CLIENT_ID
from kafka_sink.options.sink_options import SinkOptions


def client_id_of(options: SinkOptions) -> str:
    chosen = options.producer.client_id or options.sink_id or label_of(options.query_name, None)
    return chosen or name_of_stream(None, options.checkpoint_location) or SINK_CLIENT_ID
