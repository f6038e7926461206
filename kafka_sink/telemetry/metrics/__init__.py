"""Metrics of tasks and micro-batches. Imported only if an option enables them.

figures                       what a task and the driver report of a batch
stream_figures, definitions   the sums of a stream, and what each metric means; store keeps them in files
prometheus_text, push, otlp   what receivers get; breaker skips those that do not answer; trace_ids: their spans
launch, exporter, process     the process that serves an application's metrics, and when it ends
notebook, application         reading them in a program, and the folder where they are
"""
