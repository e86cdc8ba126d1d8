//! The table of metrics. Names and labels stay; what is added goes here and into `docs/metrics.md`.

use super::Kind;

/// One metric. Labels come from bounded sets: flows, topics, partitions, state codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Without the `_total` of counters.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Unit and meaning.
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

/// See its help.
pub const UP: Metric =
    gauge("towpath_start_time_seconds", &["version"], "When the process started, in seconds since 1970.");
/// See its help.
pub const MEMORY_USED: Metric =
    gauge("towpath_memory_used_bytes", &["flow"], "Fetched data held until it is acknowledged.");
/// See its help.
pub const MEMORY_LIMIT: Metric =
    gauge("towpath_memory_limit_bytes", &["flow"], "The flow's share of `towpath.memory.bytes`.");
/// See its help.
pub const FLOW_RUNNING: Metric =
    gauge("towpath_flow_copying", &["flow"], "1 if the flow has reached its clusters and is not ended, else 0.");
/// See its help.
pub const LEASE_HELD: Metric = gauge(
    "towpath_lease_held",
    &["flow"],
    "1 if this process is a proven member of the flow's group, which alone may write, else 0.",
);
/// See its help.
pub const PARTITIONS: Metric = gauge(
    "towpath_partitions",
    &["flow", "state"],
    "Partitions of this process by state code (states.md). A state without partitions is absent.",
);
/// See its help.
pub const NOT_MOVING: Metric = gauge(
    "towpath_partitions_not_moving",
    &["flow"],
    "Partitions that have something to copy and have not moved for `towpath.not.moving.seconds`, whatever their state.",
);
/// See its help.
pub const RECORDS: Metric = counter("towpath_records", &["flow", "topic"], "Records acknowledged by the target.");
/// See its help.
pub const BYTES_IN: Metric = counter("towpath_bytes_in", &["flow", "topic"], "Bytes of batches fetched.");
/// See its help.
pub const BYTES_OUT: Metric =
    counter("towpath_bytes_out", &["flow", "topic"], "Bytes of batches acknowledged by the target.");
/// See its help.
pub const BYTES_IN_VAIN: Metric =
    counter("towpath_bytes_in_vain", &["flow", "topic"], "Bytes fetched that had to be fetched again.");
/// See its help.
pub const BATCHES: Metric =
    counter("towpath_batches", &["flow", "topic"], "Batches acknowledged, sealed and opened ones.");
/// See its help.
pub const OPENED: Metric = counter(
    "towpath_batches_opened",
    &["flow", "topic", "reason"],
    "Those that were decoded and encoded again, by reason: thinned, cut-at-the-start, old-format, log-append-time, too-large.",
);
/// See its help.
pub const ABORTED: Metric =
    counter("towpath_aborted_records", &["flow", "topic"], "Records of aborted transactions, not copied.");
/// See its help.
pub const LOST: Metric =
    counter("towpath_lost_records", &["flow", "topic"], "Offsets lost at the source before they were copied.");
/// See its help.
pub const TRUNCATED: Metric = counter(
    "towpath_truncated_records",
    &["flow", "topic"],
    "Offsets that the source lost after they were copied, behind which the copy went on.",
);
/// See its help.
pub const FOREIGN: Metric = counter(
    "towpath_foreign_records",
    &["flow", "topic"],
    "Records of other writers on the target, behind which the copy went on.",
);
/// See its help.
pub const INCIDENTS: Metric = counter(
    "towpath_incidents",
    &["flow", "topic", "cause"],
    "How often a partition of the topic came to stand, or to wait, for this cause (a state code).",
);
/// See its help.
pub const TOPIC_LAG: Metric = gauge(
    "towpath_topic_lag_records",
    &["flow", "topic"],
    "Sum of the known lags of its partitions. Absent if none is known.",
);
/// See its help.
pub const TOPIC_LAG_SECONDS: Metric = gauge(
    "towpath_topic_lag_seconds",
    &["flow", "topic"],
    "The largest of its partitions' lags in seconds. Absent if none is known.",
);
/// See its help.
pub const TOPIC_LAG_UNKNOWN: Metric = gauge(
    "towpath_topic_lag_unknown_partitions",
    &["flow", "topic"],
    "Partitions whose lag is not known: not located yet, or the source cannot be asked.",
);
/// See its help.
pub const PARTITION_LAG: Metric = gauge(
    "towpath_partition_lag_records",
    &["flow", "topic", "partition"],
    "Offsets between the copy and the end of the source. Absent while it is not known.",
);
/// See its help.
pub const PARTITION_LAG_SECONDS: Metric = gauge(
    "towpath_partition_lag_seconds",
    &["flow", "topic", "partition"],
    "0 if everything is copied, else the age of the newest record copied. Absent while it is not known, or before the first record.",
);
/// See its help.
pub const REQUESTS: Metric =
    counter("towpath_requests", &["flow", "side"], "Fetch requests to the source, produce requests to the target.");
/// See its help.
pub const UNANSWERED: Metric = counter(
    "towpath_requests_unanswered",
    &["flow", "side"],
    "Those without an answer: the connection broke, or it took too long.",
);
/// See its help.
pub const CONNECTIONS: Metric =
    counter("towpath_connections_opened", &["flow", "side"], "Connections opened to brokers by workers.");
/// See its help.
pub const CONNECTIONS_FAILED: Metric =
    counter("towpath_connections_failed", &["flow", "side"], "Attempts to open one that failed.");
/// See its help.
pub const REFUSED: Metric = counter(
    "towpath_refusals",
    &["flow", "side"],
    "Answers with an error for one partition: to a fetch (source), to a batch (target).",
);
/// See its help.
pub const ANCHORS: Metric = counter("towpath_anchors_committed", &["flow"], "Positions made durable on the target.");
/// See its help.
pub const ANCHORS_FAILED: Metric =
    counter("towpath_anchors_failed", &["flow"], "Positions that could not be committed, and are offered again.");
/// See its help.
pub const ANCHOR_AGE: Metric = gauge(
    "towpath_anchor_age_seconds",
    &["flow"],
    "Seconds since positions were committed last. Grows while nothing is copied. Absent before the first time.",
);

/// In the order of the text.
pub const CATALOGUE: &[Metric] = &[
    UP,
    MEMORY_USED,
    MEMORY_LIMIT,
    FLOW_RUNNING,
    LEASE_HELD,
    PARTITIONS,
    NOT_MOVING,
    RECORDS,
    BYTES_IN,
    BYTES_OUT,
    BYTES_IN_VAIN,
    BATCHES,
    OPENED,
    ABORTED,
    LOST,
    TRUNCATED,
    FOREIGN,
    INCIDENTS,
    TOPIC_LAG,
    TOPIC_LAG_SECONDS,
    TOPIC_LAG_UNKNOWN,
    PARTITION_LAG,
    PARTITION_LAG_SECONDS,
    REQUESTS,
    UNANSWERED,
    CONNECTIONS,
    CONNECTIONS_FAILED,
    REFUSED,
    ANCHORS,
    ANCHORS_FAILED,
    ANCHOR_AGE,
];

/// The table as Markdown.
#[cfg(test)]
pub(super) fn markdown() -> String {
    let mut out = String::from("| name | labels | meaning |\n|---|---|---|\n");
    for metric in CATALOGUE {
        let total = if metric.kind == Kind::Counter { "_total" } else { "" };
        out.push_str(&format!("| `{}{total}` | {} | {} |\n", metric.name, metric.labels.join(", "), metric.help));
    }
    out
}
