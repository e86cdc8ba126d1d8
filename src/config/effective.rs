//! Prints settings as a file that would give the same settings.

use std::fmt::Display;
use std::time::Duration;

use super::properties::escape_value;
use crate::mirror::settings::{
    ClusterSettings, FlowSettings, Isolation, LogAppendTime, OnSourceRecreated, OnTargetNotEmpty, OnTargetRecreated,
    OnTrouble, ProcessSettings, StartOffset,
};
use crate::topics::JavaPattern;

/// The effective configuration in the file's own format, every default spelled out. What is adapted while running,
/// because the user left it open, stands in a comment. There are no secrets in it: this version takes none.
pub fn effective(settings: &ProcessSettings) -> String {
    let mut out = Output::default();
    let mut aliases: Vec<&str> = Vec::new();
    for flow in &settings.flows {
        for cluster in [&flow.source, &flow.target] {
            if !aliases.contains(&cluster.alias.as_str()) {
                aliases.push(cluster.alias.as_str());
            }
        }
    }
    out.put("clusters", aliases.join(", "));
    out.put("towpath.memory.bytes", settings.memory_bytes);
    out.put("towpath.worker.threads", settings.worker_threads);
    out.put("towpath.state.dir", settings.state_dir.display());
    out.put("towpath.progress.interval.seconds", settings.progress_interval.as_secs());
    out.put("towpath.http.listen", settings.http_listen.map_or_else(|| "off".to_owned(), |at| at.to_string()));
    for flow in &settings.flows {
        out.flow(flow);
    }
    out.text
}

#[derive(Default)]
struct Output {
    text: String,
    /// The flow's name and a dot, or nothing.
    prefix: String,
}

impl Output {
    fn put(&mut self, key: &str, value: impl Display) {
        let value = escape_value(&value.to_string());
        self.text.push_str(&format!("{}{key} = {value}\n", self.prefix));
    }

    /// A value that is only where the adaption begins.
    fn put_open(&mut self, key: &str, value: impl Display, explicit: bool) {
        if explicit {
            self.put(key, value);
        } else {
            let line = format!("# {}{key} = {value} (adapted while running)\n", self.prefix);
            self.text.push_str(&line);
        }
    }

    fn millis(&mut self, key: &str, value: Duration) {
        self.put(key, value.as_millis());
    }

    fn flow(&mut self, flow: &FlowSettings) {
        self.text.push('\n');
        self.prefix = format!("{}.", flow.name());
        self.put("enabled", true);
        self.cluster("source", "source.consumer", &flow.source);
        self.cluster("target", "producer.override", &flow.target);
        self.millis("source.consumer.request.timeout.ms", flow.source.request_timeout);
        self.millis("target.admin.request.timeout.ms", flow.target.request_timeout);
        self.put("topics", items(flow.topics.include()));
        self.put("topics.exclude", items(flow.topics.exclude()));
        self.put("heartbeats.replication.enabled", flow.copy_heartbeats);
        self.put("replication.policy.class", flow.policy.class_name());
        let separators = flow.policy.separators();
        self.put("replication.policy.separator", &separators.topic);
        self.put("replication.policy.internal.topic.separator.enabled", separators.topic == separators.internal);
        self.put("replication.factor", flow.replication_factor);
        self.put("refresh.topics.enabled", flow.refresh_topics.is_some());
        if let Some(interval) = flow.refresh_topics {
            self.put("refresh.topics.interval.seconds", interval.as_secs());
        }
        self.reading(flow);
        self.writing(flow);
        self.prefix.clear();
    }

    fn cluster(&mut self, side: &str, client: &str, cluster: &ClusterSettings) {
        let servers: Vec<String> = cluster.bootstrap_servers.iter().map(ToString::to_string).collect();
        self.put(&format!("{side}.cluster.bootstrap.servers"), servers.join(", "));
        self.put(&format!("{client}.client.id"), &cluster.client_id);
        for (key, value) in [
            ("socket.connection.setup.timeout.ms", cluster.connect_timeout),
            ("reconnect.backoff.ms", cluster.reconnect_backoff),
            ("reconnect.backoff.max.ms", cluster.reconnect_backoff_max),
            ("metadata.max.age.ms", cluster.metadata_max_age),
        ] {
            self.millis(&format!("{client}.{key}"), value);
        }
        let idle = cluster.connections_max_idle.as_millis();
        let idle = if idle > u128::from(i32::MAX.unsigned_abs()) { "-1".to_owned() } else { idle.to_string() };
        self.put(&format!("{client}.connections.max.idle.ms"), idle);
    }

    fn reading(&mut self, flow: &FlowSettings) {
        let fetch = &flow.fetch;
        self.put(
            "source.consumer.auto.offset.reset",
            match flow.start {
                StartOffset::Earliest => "earliest",
                StartOffset::Latest => "latest",
            },
        );
        self.put(
            "source.consumer.isolation.level",
            match flow.isolation {
                Isolation::ReadCommitted => "read_committed",
                Isolation::ReadUncommitted => "read_uncommitted",
            },
        );
        if let Some(rack) = &flow.client_rack {
            self.put("source.consumer.client.rack", rack);
        }
        self.put_open("source.consumer.fetch.max.bytes", fetch.response_bytes_max, fetch.response_bytes_explicit);
        self.put_open(
            "source.consumer.max.partition.fetch.bytes",
            fetch.partition_bytes_max,
            fetch.partition_bytes_explicit,
        );
        self.put("source.consumer.fetch.min.bytes", fetch.min_bytes);
        self.millis("source.consumer.fetch.max.wait.ms", fetch.max_wait);
    }

    fn writing(&mut self, flow: &FlowSettings) {
        let produce = &flow.produce;
        self.put("producer.override.acks", "all");
        self.put("producer.override.max.request.size", produce.request_bytes_max);
        self.millis("producer.override.request.timeout.ms", produce.request_timeout);
        self.put("producer.override.max.in.flight.requests.per.connection", produce.in_flight_per_partition_max);
        self.put("towpath.lanes.per.broker", produce.lanes_per_broker);
        self.put(
            "towpath.on.target.not.empty",
            match flow.on_target_not_empty {
                OnTargetNotEmpty::Stop => "stop",
                OnTargetNotEmpty::Append => "append",
            },
        );
        self.put(
            "towpath.on.target.recreated",
            match flow.on_target_recreated {
                OnTargetRecreated::Stop => "stop",
                OnTargetRecreated::Begin => "begin",
            },
        );
        self.put("towpath.on.source.loss", trouble(flow.on_source_loss));
        self.put("towpath.on.source.truncated", trouble(flow.on_source_truncated));
        self.put(
            "towpath.on.source.recreated",
            match flow.on_source_recreated {
                OnSourceRecreated::Stop => "stop",
                OnSourceRecreated::Append => "append",
                OnSourceRecreated::RecreateTarget => "recreate-target",
            },
        );
        self.put("towpath.on.foreign.write", trouble(flow.on_foreign_write));
        self.put(
            "towpath.log.append.time",
            match flow.log_append_time {
                LogAppendTime::Open => "open",
                LogAppendTime::Sealed => "sealed",
            },
        );
        self.put("towpath.open.max.bytes", flow.open_bytes_max);
        self.put("towpath.commit.source.offsets", flow.commit_source_offsets);
        self.put("towpath.group.id", flow.source_group_id());
        self.millis("towpath.session.timeout.ms", flow.lease.session_timeout);
        self.millis("towpath.heartbeat.interval.ms", flow.lease.heartbeat_interval);
        self.millis("towpath.anchor.interval.ms", flow.anchor.interval);
        self.put("towpath.not.moving.seconds", flow.not_moving.as_secs());
    }
}

fn trouble(what: OnTrouble) -> &'static str {
    match what {
        OnTrouble::Stop => "stop",
        OnTrouble::Continue => "continue",
    }
}

fn items(patterns: &JavaPattern) -> String {
    patterns.items().join(", ")
}
