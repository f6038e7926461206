"""Options whose value gets lost on its way: for each field of the parsed options, the test that notices.

`python -m tests.mistakes.wiring [PART OF A NAME]` plants the mistake for each field, that whoever reads it finds the
default, and runs its test, which must fail. The test must show the effect of the option where it happens; one that only
reads the field back would pass with any mistake behind it. A unit test checks that the table has every field.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.formats.registry.resolution import SchemaQuery
from kafka_sink.options.format_options import FormatOptions, RegistryOptions, SideFormat
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.security_options import SecurityOptions
from kafka_sink.options.sink_options import ChangeOptions, EnvelopeOptions, SinkOptions, TelemetryOptions, TopicPlan

ROOT = Path(__file__).parents[2]
PLANTED = "PYKAFKA_SINK_PLANTED"
KINDS = (SinkOptions, TopicPlan, EnvelopeOptions, ChangeOptions, TelemetryOptions, FormatOptions, SideFormat,
         SchemaQuery, RegistryOptions, ProducerOptions, SecurityOptions)  # fmt: skip


# By the file of the test: field, and the test that fails if the field has its default whatever was given.
SHOWN_BY: Mapping[str, Mapping[str, str]] = {
    "tests/chaos/test_manifests.py": {
        "SinkOptions.manifest_topic":
            "test_a_batch_that_is_found_delivered_has_no_second_manifest",
    },
    "tests/integration/test_aws.py": {
        "SecurityOptions.sasl_aws_region":
            "test_the_region_is_that_of_the_option_the_host_or_the_environment",
        "SecurityOptions.sasl_aws_access_key_id":
            "test_keys_of_the_options_are_used_by_reference_too",
        "SecurityOptions.sasl_aws_secret_access_key":
            "test_a_wrong_secret_is_refused_at_once_with_what_to_check",
        "SecurityOptions.sasl_aws_session_token":
            "test_keys_of_the_options_are_used_by_reference_too",
        "SecurityOptions.sasl_aws_profile":
            "test_a_profile_may_assume_a_role",
        "SecurityOptions.sasl_aws_role_arn":
            "test_a_role_is_assumed_with_the_credentials_at_hand",
    },
    "tests/integration/test_change_feeds.py": {
        "SideFormat.envelope_name":
            "test_a_derived_schema_of_events_has_the_name_by_which_connect_s_transforms_know_them",
        "SinkOptions.changes":
            "test_upserts_are_rows_and_tombstones",
        "ChangeOptions.envelope":
            "test_debezium_s_events_have_both_rows_and_a_tombstone_behind_each_delete",
        "ChangeOptions.operation_column":
            "test_values_that_the_user_has_made_become_tombstones_as_well",
        "ChangeOptions.before_column":
            "test_debezium_s_events_have_both_rows_and_a_tombstone_behind_each_delete",
    },
    "tests/integration/test_check.py": {
        "FormatOptions.registry":
            "test_a_registry_is_asked_again_by_each_check",
        "RegistryOptions.latest_cache_ttl_sec":
            "test_a_registry_is_asked_again_by_each_check",
        "SecurityOptions.security_protocol":
            "test_a_wrong_password_is_tried_once",
    },
    "tests/integration/test_envelope.py": {
        "SinkOptions.formats":
            "test_columns_as_json_are_the_data",
        "SinkOptions.envelope":
            "test_constant_headers_stand_behind_those_of_the_row",
        "EnvelopeOptions.headers":
            "test_constant_headers_stand_behind_those_of_the_row",
        "EnvelopeOptions.mode":
            "test_in_binary_mode_the_value_stays_what_it_is",
        "EnvelopeOptions.attributes":
            "test_columns_as_json_are_the_data",
        "EnvelopeOptions.attribute_columns":
            "test_the_official_package_reads_every_attribute",
        "EnvelopeOptions.content_type":
            "test_a_number_of_any_length_is_json",
        "EnvelopeOptions.traceparent_column":
            "test_a_column_becomes_the_header_traceparent_and_wins_over_the_one_that_a_row_has",
        "EnvelopeOptions.has_traceparent_of_task":
            "test_records_without_a_trace_get_that_of_their_task",
    },
    "tests/integration/test_key_schemas.py": {
        "SchemaQuery.side":
            "test_a_new_id_in_front_of_keys_moves_them_and_the_log_says_so_once",
        "SchemaQuery.identity":
            "test_a_pinned_id_keeps_keys_where_they_are",
        "SchemaQuery.tells_new":
            "test_a_new_id_in_front_of_keys_moves_them_and_the_log_says_so_once",
    },
    "tests/integration/test_metrics.py": {
        "SinkOptions.telemetry":
            "test_lineage_goes_to_an_address_with_the_key_of_a_file",
        "TelemetryOptions.prometheus_port":
            "test_an_exporter_ends_with_its_application",
        "TelemetryOptions.prometheus_address":
            "test_the_port_is_opened_at_the_address_of_the_option_alone",
        "TelemetryOptions.pushgateway_url":
            "test_the_pushgateway_gets_the_figures_of_the_stream_as_one_group",
        "TelemetryOptions.otlp_endpoint":
            "test_a_collector_whose_package_is_missing_fails_no_batch_that_is_committed",
        "TelemetryOptions.lineage_file":
            "test_lineage_tells_begin_and_end_and_exactly_what_a_foreign_reader_finds",
        "TelemetryOptions.lineage_url":
            "test_lineage_goes_to_an_address_with_the_key_of_a_file",
        "TelemetryOptions.lineage_api_key_file":
            "test_lineage_goes_to_an_address_with_the_key_of_a_file",
        "TelemetryOptions.lineage_namespace":
            "test_lineage_tells_begin_and_end_and_exactly_what_a_foreign_reader_finds",
        "TelemetryOptions.lineage_job":
            "test_lineage_tells_begin_and_end_and_exactly_what_a_foreign_reader_finds",
        "TelemetryOptions.lineage_fields":
            "test_lineage_tells_begin_and_end_and_exactly_what_a_foreign_reader_finds",
    },
    "tests/integration/test_network.py": {
        "ProducerOptions.send_buffer_bytes":
            "test_sockets_carry_the_options_a_producer_needs",
        "ProducerOptions.receive_buffer_bytes":
            "test_a_socket_has_the_receive_buffer_of_the_option",
    },
    "tests/integration/test_option_effects.py": {
        "SinkOptions.transaction_timeout_is_chosen":
            "test_a_transaction_timeout_that_brokers_do_not_allow_is_refused_if_it_was_chosen",
        "SinkOptions.topic":
            "test_rows_go_to_the_topic_of_the_option",
        "SinkOptions.delivery_guarantee":
            "test_at_least_once_rows_are_visible_before_any_commit",
        "SinkOptions.sink_id":
            "test_the_ledger_knows_a_stream_by_sink_id",
        "SinkOptions.batch_id":
            "test_an_export_with_a_batch_id_is_delivered_once",
        "SinkOptions.query_id":
            "test_a_number_as_batch_id_is_a_micro_batch_of_the_query_id",
        "SinkOptions.ledger_topic":
            "test_decisions_are_in_the_ledger_topic_of_the_option",
        "SinkOptions.ledger_replication_factor":
            "test_a_ledger_is_created_with_the_replicas_and_the_configuration_of_the_options",
        "SinkOptions.ledger_accept_new_sink":
            "test_an_unknown_stream_goes_on_with_ledger_accept_new_sink",
        "SinkOptions.replay_mismatch":
            "test_replay_mismatch_warn_drops_other_rows_and_goes_on",
        "SinkOptions.commit_visible_timeout_ms":
            "test_a_commit_waits_for_commit_visible_timeout_ms_and_says_what_is_not_visible",
        "SinkOptions.record_errors":
            "test_a_row_that_cannot_be_sent_is_dropped_with_record_errors_drop",
        "SinkOptions.dead_letter_topic":
            "test_a_row_that_cannot_be_sent_goes_to_the_dead_letter_topic",
        "SinkOptions.summary_listener":
            "test_the_summary_listener_hears_of_a_delivered_batch",
        "SinkOptions.partitioner":
            "test_the_partitioner_of_the_user_chooses_partitions",
        "SinkOptions.checkpoint_location":
            "test_the_ledger_knows_a_stream_without_sink_id_by_its_checkpoint_location",
        "SinkOptions.query_name":
            "test_the_ledger_shows_the_name_of_the_query",
        "SinkOptions.preset":
            "test_a_preset_is_named_by_the_check",
        "SinkOptions.topic_create":
            "test_a_topic_is_created_as_the_options_say",
        "SinkOptions.topic_partitions":
            "test_a_topic_is_created_as_the_options_say",
        "SinkOptions.topic_replication_factor":
            "test_a_topic_is_created_as_the_options_say",
        "SinkOptions.topic_config":
            "test_a_topic_is_created_as_the_options_say",
        "SinkOptions.ledger_create":
            "test_without_ledger_create_a_missing_ledger_is_an_error",
        "SinkOptions.ledger_config":
            "test_a_ledger_is_created_with_the_replicas_and_the_configuration_of_the_options",
        "SinkOptions.notices":
            "test_an_option_without_effect_is_said_when_a_write_is_planned",
        "TopicPlan.partitions":
            "test_a_topic_is_created_as_the_options_say",
        "TopicPlan.replication_factor":
            "test_a_topic_is_created_as_the_options_say",
        "TopicPlan.configs":
            "test_a_topic_is_created_as_the_options_say",
    },
    "tests/integration/test_network_attackers.py": {
        "SecurityOptions.allow_plaintext_credentials":
            "test_a_broker_elsewhere_that_a_cluster_names_gets_no_password",
    },
    "tests/integration/test_producer_option_effects.py": {
        "ProducerOptions.notices":
            "test_a_producer_says_which_options_have_another_name",
        "ProducerOptions.compression_type":
            "test_batches_have_the_codec_of_the_option",
        "ProducerOptions.compression_gzip_level":
            "test_the_level_of_compression_is_that_of_the_option",
        "ProducerOptions.compression_lz4_level":
            "test_the_level_of_compression_is_that_of_the_option",
        "ProducerOptions.compression_zstd_level":
            "test_the_level_of_compression_is_that_of_the_option",
        "ProducerOptions.partitioner_ignore_keys":
            "test_with_partitioner_ignore_keys_one_batch_has_rows_of_all_keys",
        "ProducerOptions.key_serializer":
            "test_keys_and_values_go_through_their_serializers_and_interceptors",
        "ProducerOptions.value_serializer":
            "test_keys_and_values_go_through_their_serializers_and_interceptors",
        "ProducerOptions.interceptors":
            "test_keys_and_values_go_through_their_serializers_and_interceptors",
        "ProducerOptions.producer_type":
            "test_with_producer_type_sync_a_record_is_acknowledged_when_send_returns",
        "ProducerOptions.compressed_topics":
            "test_only_the_topics_of_compressed_topics_are_compressed",
    },
    "tests/integration/test_receivers.py": {
        "TelemetryOptions.timeout_ms":
            "test_a_receiver_is_waited_for_as_long_as_the_option_says",
    },
    "tests/integration/test_row_ids.py": {
        "EnvelopeOptions.row_id_header":
            "test_a_row_has_one_id_in_whatever_order_batch_and_task_it_comes",
        "EnvelopeOptions.row_id_column":
            "test_a_column_is_the_id_and_replaces_a_header_of_its_name",
    },
    "tests/integration/test_registry.py": {
        "SideFormat.text":
            "test_nothing_is_asked_when_id_and_text_are_given",
        "SideFormat.strategy":
            "test_what_confluents_client_registered_is_found_and_the_other_way_round",
        "SideFormat.query":
            "test_a_query_goes_on_with_its_version_while_the_subject_gets_a_new_one",
        "SchemaQuery.subject":
            "test_an_id_is_one_of_the_chosen_context",
        "SchemaQuery.version":
            "test_a_query_goes_on_with_its_version_while_the_subject_gets_a_new_one",
        "SchemaQuery.registers":
            "test_what_confluents_client_registered_is_found_and_the_other_way_round",
        "SchemaQuery.normalizes":
            "test_a_registry_normalizes_what_it_is_given_if_the_option_says_so",
        "SchemaQuery.needs_guid":
            "test_a_guid_that_the_framing_needs_is_asked_for_where_a_registration_does_not_tell_it",
        "RegistryOptions.url":
            "test_a_static_token",
        "RegistryOptions.login":
            "test_a_certificate_of_ones_own",
        "RegistryOptions.kafka":
            "test_credentials_of_the_connection_to_kafka",
        "RegistryOptions.context":
            "test_an_id_is_one_of_the_chosen_context",
        "RegistryOptions.credentials":
            "test_a_static_token",
        "RegistryOptions.basic_auth_user_info":
            "test_user_and_password",
        "RegistryOptions.bearer_auth_token":
            "test_a_static_token",
        "RegistryOptions.bearer_auth_logical_cluster":
            "test_headers_of_confluent_cloud",
        "RegistryOptions.bearer_auth_identity_pool_id":
            "test_headers_of_confluent_cloud",
        "RegistryOptions.max_retries":
            "test_a_registry_that_says_nothing_is_given_up",
        "RegistryOptions.retries_wait_ms":
            "test_a_wait_grows_and_has_an_end",
        "RegistryOptions.retries_max_wait_ms":
            "test_a_wait_grows_and_has_an_end",
        "SecurityOptions.sasl_login_connect_timeout_ms":
            "test_a_registry_that_accepts_no_connection_is_given_up_after_the_time_for_connecting",
    },
    "tests/integration/test_schema_command.py": {
        "SideFormat.framing":
            "test_check_says_what_does_not_fit_a_schema_that_is_given",
    },
    "tests/integration/test_schema_rules.py": {
        "SchemaQuery.needs_rules":
            "test_a_registry_that_answers_a_registration_with_the_id_alone_is_asked_for_the_rules",
    },
    "tests/integration/test_services.py": {
        "SinkOptions.delivery_fallback":
            "test_it_falls_back_by_the_users_word_alone_and_says_so",
    },
    "tests/integration/test_spark_task.py": {
        "ProducerOptions.transactional_id":
            "test_an_init_producer_id_without_an_answer_costs_the_attempt_its_transactional_id",
        "SinkOptions.partition_count":
            "test_a_producer_that_lived_on_places_keys_as_new_ones_do_when_partitions_were_added",
    },
    "tests/integration/test_tls.py": {
        "SecurityOptions.ssl_protocol":
            "test_versions_are_those_that_every_option_leaves",
        "SecurityOptions.ssl_enabled_protocols":
            "test_suites_that_no_version_has_are_refused",
        "SecurityOptions.ssl_cipher_suites":
            "test_the_cipher_suite_is_the_chosen_one",
        "SecurityOptions.ssl_endpoint_identification_algorithm":
            "test_checks_that_were_turned_off_are_off",
        "SecurityOptions.ssl_truststore_location":
            "test_trust_may_be_a_folder",
        "SecurityOptions.ssl_truststore_password":
            "test_a_password_for_a_file_that_has_none_is_refused",
        "SecurityOptions.ssl_truststore_certificates":
            "test_trust_and_key_may_be_text",
        "SecurityOptions.ssl_keystore_location":
            "test_key_and_trust_may_be_pkcs12",
        "SecurityOptions.ssl_keystore_password":
            "test_key_and_trust_may_be_pkcs12",
        "SecurityOptions.ssl_keystore_certificate_chain":
            "test_trust_and_key_may_be_text",
        "SecurityOptions.ssl_keystore_key":
            "test_trust_and_key_may_be_text",
        "SecurityOptions.ssl_key_password":
            "test_a_key_that_was_replaced_before_its_password_is_used_once_that_is_there",
        "SecurityOptions.ssl_certificate_location":
            "test_a_key_that_belongs_to_another_certificate_is_named",
        "SecurityOptions.ssl_key_location":
            "test_a_key_that_belongs_to_another_certificate_is_named",
        "SecurityOptions.ssl_crl_location":
            "test_der_where_only_pem_is_taken_is_refused_with_the_command_that_converts_it",
        "SecurityOptions.enable_ssl_certificate_verification":
            "test_checks_that_were_turned_off_are_off",
    },
    "tests/integration/test_tokens.py": {
        "SecurityOptions.sasl_jaas_config":
            "test_a_jaas_configuration_of_java_holds_id_secret_scope_and_extensions",
        "SecurityOptions.sasl_oauthbearer_token_provider":
            "test_a_function_is_called_by_its_name",
        "SecurityOptions.sasl_oauthbearer_token_endpoint_url":
            "test_an_endpoint_that_is_down_is_named",
        "SecurityOptions.sasl_oauthbearer_client_credentials_client_id":
            "test_an_endpoint_that_is_down_is_named",
        "SecurityOptions.sasl_oauthbearer_client_credentials_client_secret":
            "test_id_and_secret_are_exchanged_for_a_token",
        "SecurityOptions.sasl_oauthbearer_assertion_file":
            "test_an_assertion_in_a_file_takes_the_place_of_the_secret",
        "SecurityOptions.sasl_oauthbearer_jwt_retriever_class":
            "test_an_assertion_in_a_file_takes_the_place_of_the_secret",
        "SecurityOptions.sasl_oauthbearer_scope":
            "test_id_and_secret_are_exchanged_for_a_token",
        "SecurityOptions.sasl_oauthbearer_header_urlencode":
            "test_id_and_secret_are_encoded_for_the_header_if_the_option_says_so",
        "SecurityOptions.sasl_login_read_timeout_ms":
            "test_a_slow_endpoint_has_the_time_of_the_options",
        "SecurityOptions.sasl_login_retry_backoff_ms":
            "test_pauses_begin_and_end_as_the_options_say",
        "SecurityOptions.sasl_login_retry_backoff_max_ms":
            "test_pauses_begin_and_end_as_the_options_say",
    },
    "tests/unit/formats/registry/test_resolution.py": {
        "SchemaQuery.schema":
            "test_looking_up_is_one_request",
        "SchemaQuery.reads_back":
            "test_the_registrys_text_is_read_back_where_readers_count_its_messages_and_only_there",
        "SchemaQuery.is_derived":
            "test_a_stream_whose_columns_may_be_null_in_one_batch_and_not_in_the_next_goes_on",
    },
    "tests/unit/kafka/client/test_admin_engine.py": {
        "ProducerOptions.socket_connection_setup_timeout_ms":
            "test_what_was_not_sent_in_time_names_the_broker_in_the_way_though_others_answer_meanwhile",
    },
    "tests/unit/kafka/client/test_metadata.py": {
        "ProducerOptions.retry_backoff_ms":
            "test_the_later_of_age_and_back_off_counts",
        "ProducerOptions.retry_backoff_max_ms":
            "test_the_wait_after_failures_grows_up_to_its_limit",
        "ProducerOptions.metadata_max_age_ms":
            "test_the_later_of_age_and_back_off_counts",
        "ProducerOptions.metadata_recovery_rebootstrap_trigger_ms":
            "test_brokers_that_do_not_answer_for_the_trigger_time_are_given_up",
        "ProducerOptions.allow_auto_create_topics":
            "test_topics_are_created_unless_that_is_forbidden",
    },
    "tests/unit/kafka/client/test_network_histories.py": {
        "ProducerOptions.bootstrap_servers":
            "test_back_to_the_bootstrap_servers",
        "ProducerOptions.max_in_flight_requests_per_connection":
            "test_requests_and_what_ends_a_connection",
        "ProducerOptions.reconnect_backoff_ms":
            "test_back_off",
        "ProducerOptions.reconnect_backoff_max_ms":
            "test_back_off",
        "ProducerOptions.connections_max_idle_ms":
            "test_requests_and_what_ends_a_connection",
        "ProducerOptions.metadata_recovery_strategy":
            "test_back_to_the_bootstrap_servers",
    },
    "tests/unit/kafka/client/test_nodes_negotiation.py": {
        "ProducerOptions.socket_connection_setup_timeout_max_ms":
            "test_the_time_for_connecting_doubles_up_to_its_limit",
    },
    "tests/unit/producer/engine/test_histories.py": {
        "ProducerOptions.acks":
            "test_batches_in_flight",
    },
    "tests/unit/producer/engine/test_send_delivery.py": {
        "ProducerOptions.delivery_timeout_ms":
            "test_retries_do_not_extend_the_time",
        "ProducerOptions.max_request_size":
            "test_requests_are_kept_below_the_limit_of_their_size",
    },
    "tests/unit/producer/engine/test_send_retries.py": {
        "ProducerOptions.enable_idempotence":
            "test_a_producer_without_idempotence_asks_for_no_id",
        "ProducerOptions.retries":
            "test_after_the_given_number_of_retries_the_batch_fails_with_the_last_reason",
    },
    "tests/unit/producer/engine/test_transaction_end.py": {
        "ProducerOptions.request_timeout_ms":
            "test_a_coordinator_that_does_not_answer_the_end_is_given_up_after_the_request_time_out",
        "ProducerOptions.metadata_max_idle_ms":
            "test_closing_leaves_a_transaction_open_also_if_its_topic_was_not_written_to_for_long",
    },
    "tests/unit/producer/engine/test_transaction_init.py": {
        "ProducerOptions.transaction_timeout_ms":
            "test_init_finds_the_coordinator_and_takes_an_identity_from_it",
    },
    "tests/unit/producer/test_appender.py": {
        "ProducerOptions.batch_size":
            "test_enough_rows_for_a_batch_are_due_at_once_whatever_the_linger",
        "ProducerOptions.partitioner":
            "test_a_partitioner_that_raises_fails_its_rows_and_no_others",
        "ProducerOptions.partitioner_adaptive_partitioning_enable":
            "test_rows_without_a_key_avoid_long_queues_unless_told_otherwise",
        "ProducerOptions.partitioner_rack_aware":
            "test_rows_without_a_key_stay_in_the_rack_while_a_partition_is_led_there",
        "ProducerOptions.client_rack":
            "test_rows_without_a_key_stay_in_the_rack_while_a_partition_is_led_there",
        "ProducerOptions.batch_num_messages":
            "test_rows_of_arrow_wake_the_sender_so_that_their_linger_ends",
    },
    "tests/unit/producer/test_buffer.py": {
        "ProducerOptions.max_block_ms":
            "test_the_wait_for_room_and_its_failure_are_measured",
        "ProducerOptions.buffer_memory":
            "test_a_delivery_callback_does_not_wait_for_room",
        "ProducerOptions.queue_buffering_max_messages":
            "test_rows_of_arrow_are_held_and_given_back_like_those_of_send",
    },
    "tests/unit/options/host/test_files.py": {
        "SecurityOptions.sasl_mechanism":
            "test_a_password_that_changes_is_used_by_the_next_session",
        "SecurityOptions.sasl_username":
            "test_a_password_that_changes_is_used_by_the_next_session",
        "SecurityOptions.sasl_password":
            "test_a_password_that_changes_is_used_by_the_next_session",
    },
    "tests/unit/producer/test_metrics.py": {
        "ProducerOptions.metrics_num_samples":
            "test_ratios_are_shares_of_the_window",
        "ProducerOptions.metrics_sample_window_ms":
            "test_what_was_put_aside_counts_for_the_time_at_which_it_was",
    },
    "tests/unit/producer/test_sender.py": {
        "ProducerOptions.linger_ms":
            "test_it_sleeps_until_the_engine_or_a_linger_wants_it",
        "ProducerOptions.partitioner_availability_timeout_ms":
            "test_nodes_that_take_nothing_for_too_long_are_published_as_one_unchanging_set",
        "ProducerOptions.client_id":
            "test_notices_are_logged_with_the_client_s_name",
    },
    "tests/unit/security/test_login.py": {
        "SecurityOptions.sasl_login_refresh_window_factor":
            "test_a_token_is_renewed_in_the_window_of_the_options",
        "SecurityOptions.sasl_login_refresh_window_jitter":
            "test_a_token_is_renewed_in_the_window_of_the_options",
        "SecurityOptions.sasl_login_refresh_min_period_seconds":
            "test_a_token_is_renewed_when_java_would",
        "SecurityOptions.sasl_login_refresh_buffer_seconds":
            "test_a_token_is_renewed_when_java_would",
    },
    "tests/unit/spark/test_spark_formats.py": {
        "FormatOptions.value":
            "test_one_column_can_be_the_value_as_it_is",
        "FormatOptions.key":
            "test_columns_that_a_format_cannot_write_are_told",
        "SideFormat.format":
            "test_one_column_can_be_the_value_as_it_is",
        "SideFormat.columns":
            "test_columns_that_a_format_cannot_write_are_told",
        "SideFormat.record_name":
            "test_a_schema_in_a_file_is_read_on_the_driver",
    },
}  # fmt: skip
# No test can notice, and why.
NOT_SHOWN: Mapping[str, str] = {
    "SinkOptions.producer": "its fields are here",
    "EnvelopeOptions.has_own_json": "it only saves a check of values that are valid",
    "FormatOptions.notices": "they are among those of SinkOptions when options are parsed",
    "SecurityOptions.sasl_kerberos_service_name":
        "it needs a Kerberos realm: tests/integration/test_kerberos_kafka.py",
    "SecurityOptions.sasl_kerberos_principal": "it needs a Kerberos realm: tests/integration/test_kerberos_kafka.py",
    "SecurityOptions.sasl_kerberos_keytab": "it needs a Kerberos realm: tests/integration/test_kerberos_kafka.py",
}  # fmt: skip


def names() -> Iterator[str]:
    """Each field with the class that it belongs to: planted in a subclass, a mistake would spare the other ones."""
    for kind in KINDS:
        inherited = {field.name for base in kind.__bases__ if is_dataclass(base) for field in fields(base)}
        yield from (f"{kind.__name__}.{field.name}" for field in fields(kind) if field.name not in inherited)


@cache
def _defaults() -> Mapping[type, Any]:
    """Of options that are set only as far as a part must exist."""
    told = parse_sink_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:9",
            "topic": "t",
            "topic.create": "true",
            "metrics.enabled": "true",
            "value.format": "avro",
            "schema.registry.url": "http://127.0.0.1:9",
            "header.a": "b",
            "envelope": "upsert",
        }
    )
    assert told.formats is not None and told.formats.value is not None and told.formats.registry is not None
    plain = parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9"})
    found = (plain, told.topic_plan, told.envelope, told.changes, told.telemetry, told.formats, told.formats.value,
             told.formats.value.query, told.formats.registry, plain.producer, plain.producer)  # fmt: skip
    return dict(zip(KINDS, found, strict=True))


def default_of(name: str) -> Any:
    kind_name, _, field_name = name.partition(".")
    kind = next(each for each in KINDS if each.__name__ == kind_name)
    (field,) = [each for each in fields(kind) if each.name == field_name]
    default = field.default
    return getattr(_defaults()[kind], field_name) if default is MISSING else default


def plant(name: str) -> None:
    """For the rest of this process. Pickled options have the default, too."""
    default = default_of(name)
    kind_name, _, field_name = name.partition(".")
    kind = next(each for each in KINDS if each.__name__ == kind_name)
    setattr(kind, field_name, property(lambda _: default, lambda _, __: None))


def pytest_configure(config: pytest.Config) -> None:
    """This module is a plugin of the run that must fail."""
    name = os.environ.get(PLANTED)
    if name:
        plant(name)


# ---- planting each mistake ----


def named_tests(part: str = "") -> Iterator[tuple[str, str]]:
    """Each field and the id of its test."""
    for file, tests in SHOWN_BY.items():
        yield from ((name, f"{file}::{test}") for name, test in tests.items() if part in name)


def is_noticed(name: str, test: str) -> bool:
    """Whether the test fails, and not only because it cannot be run."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "tests.mistakes.wiring", test]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, PLANTED: name}, capture_output=True, text=True, check=False
    )
    return done.returncode == pytest.ExitCode.TESTS_FAILED and f"FAILED {test}" in done.stdout


def main(words: Sequence[str]) -> int:
    lost = []
    for name, test in named_tests(*words[:1]):
        found = is_noticed(name, test)
        print(f"{'noticed' if found else 'NOT NOTICED'}: {name} by {test}", flush=True)
        lost += [] if found else [name]
    print(f"{len(lost)} mistakes that nothing notices")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
