//! One flow's settings from its keys.

use std::time::Duration;

use super::mm2::Pair;
use super::reader::{Names, Reader, Side};
use super::values;
use crate::mirror::settings::{
    AnchorSettings, CONNECT_TIMEOUT, CONNECTIONS_MAX_IDLE, ClusterAlias, ClusterSettings, FetchSettings, FlowSettings,
    Isolation, LeaseSettings, LogAppendTime, METADATA_MAX_AGE, NOT_MOVING, OPEN_BYTES_MAX, OnSourceRecreated,
    OnTargetNotEmpty, OnTargetRecreated, OnTrouble, ProduceSettings, RECONNECT_BACKOFF, RECONNECT_BACKOFF_MAX,
    REFRESH_TOPICS, REPLICATION_FACTOR, REQUEST_TIMEOUT, StartOffset,
};
use crate::topics::{DEFAULT_TOPICS, DEFAULT_TOPICS_EXCLUDE, JavaPattern, ReplicationPolicy, Separators, TopicFilter};

/// Nothing above this in one buffer (`design.md` section 7).
const BUFFER_BYTES_MAX: u32 = 32 << 20;

/// `None` after a fault that leaves no flow to speak of; other faults are collected and the rest is still read.
pub(super) fn build(reader: &mut Reader, pair: &Pair, memory_bytes: u64) -> Option<FlowSettings> {
    let names = Names { source: pair.source.as_str(), target: pair.target.as_str() };
    // Both sides are read before either may end this, so that both are reported.
    let source = source(reader, names, &pair.source);
    let target = target(reader, names, &pair.target);
    let topics = topics(reader, names);
    let policy = policy(reader, names);
    let group = reader.read(&names.flow("towpath.group.id"), values::text);
    let flow = FlowSettings {
        copy_heartbeats: read_or(reader, &names.flow("heartbeats.replication.enabled"), true, values::boolean),
        replication_factor: read_or(reader, &names.flow("replication.factor"), REPLICATION_FACTOR, replication_factor),
        refresh_topics: refresh(reader, names),
        start: read_or(
            reader,
            &names.consumer("auto.offset.reset"),
            StartOffset::Earliest,
            values::word(&[("earliest", StartOffset::Earliest), ("latest", StartOffset::Latest)]),
        ),
        isolation: read_or(
            reader,
            &names.consumer("isolation.level"),
            Isolation::ReadCommitted,
            values::word(&[
                ("read_committed", Isolation::ReadCommitted),
                ("read_uncommitted", Isolation::ReadUncommitted),
            ]),
        ),
        client_rack: reader
            .read(&names.consumer("client.rack"), |text| Ok(text.trim().to_owned()))
            .filter(|rack| !rack.is_empty()),
        fetch: fetch(reader, names, memory_bytes),
        produce: produce(reader, names),
        lease: lease(reader, names),
        anchor: AnchorSettings {
            interval: read_or(
                reader,
                &names.flow("towpath.anchor.interval.ms"),
                AnchorSettings::INTERVAL,
                values::millis(100),
            ),
            bytes: AnchorSettings::BYTES,
        },
        on_target_recreated: read_or(
            reader,
            &names.flow("towpath.on.target.recreated"),
            OnTargetRecreated::Stop,
            values::word(&[("stop", OnTargetRecreated::Stop), ("begin", OnTargetRecreated::Begin)]),
        ),
        on_target_not_empty: read_or(
            reader,
            &names.flow("towpath.on.target.not.empty"),
            OnTargetNotEmpty::Stop,
            values::word(&[("stop", OnTargetNotEmpty::Stop), ("append", OnTargetNotEmpty::Append)]),
        ),
        on_source_loss: on_trouble(reader, names, "towpath.on.source.loss", OnTrouble::Continue),
        on_source_truncated: on_trouble(reader, names, "towpath.on.source.truncated", OnTrouble::Stop),
        on_source_recreated: read_or(
            reader,
            &names.flow("towpath.on.source.recreated"),
            OnSourceRecreated::Stop,
            values::word(&[
                ("stop", OnSourceRecreated::Stop),
                ("append", OnSourceRecreated::Append),
                ("recreate-target", OnSourceRecreated::RecreateTarget),
            ]),
        ),
        on_foreign_write: on_trouble(reader, names, "towpath.on.foreign.write", OnTrouble::Stop),
        log_append_time: read_or(
            reader,
            &names.flow("towpath.log.append.time"),
            LogAppendTime::Open,
            values::word(&[("open", LogAppendTime::Open), ("sealed", LogAppendTime::Sealed)]),
        ),
        open_bytes_max: read_or(reader, &names.flow("towpath.open.max.bytes"), OPEN_BYTES_MAX, open_bytes_max),
        commit_source_offsets: read_or(reader, &names.flow("towpath.commit.source.offsets"), true, values::boolean),
        source_group_id: group,
        not_moving: read_or(reader, &names.flow("towpath.not.moving.seconds"), NOT_MOVING, values::seconds),
        // Last, so that everything above was read when one of these is missing.
        source: source?,
        target: target?,
        policy: policy?,
        topics: topics?,
    };
    Some(flow)
}

fn read_or<T>(reader: &mut Reader, names: &[String], default: T, parse: impl Fn(&str) -> Result<T, String>) -> T {
    reader.read(names, parse).unwrap_or(default)
}

fn on_trouble(reader: &mut Reader, names: Names<'_>, key: &str, default: OnTrouble) -> OnTrouble {
    let words = [("stop", OnTrouble::Stop), ("continue", OnTrouble::Continue)];
    read_or(reader, &names.flow(key), default, values::word(&words))
}

fn source(reader: &mut Reader, names: Names<'_>, alias: &ClusterAlias) -> Option<ClusterSettings> {
    let mut cluster = connection(reader, names, Side::Source, alias)?;
    let keys = with_admin(names, Side::Source, "request.timeout.ms");
    cluster.request_timeout = read_or(reader, &keys, REQUEST_TIMEOUT, values::millis(1));
    Some(cluster)
}

/// The producer's request timeout is for produce requests, so that only the admin's is left for all others.
fn target(reader: &mut Reader, names: Names<'_>, alias: &ClusterAlias) -> Option<ClusterSettings> {
    let mut cluster = connection(reader, names, Side::Target, alias)?;
    let keys = names.admin(Side::Target, "request.timeout.ms");
    cluster.request_timeout = read_or(reader, &keys, REQUEST_TIMEOUT, values::millis(1));
    Some(cluster)
}

/// A side's connections carry records and administration alike; the setting of the record client wins.
fn with_admin(names: Names<'_>, side: Side, name: &str) -> Vec<String> {
    let mut keys = match side {
        Side::Source => names.consumer(name),
        Side::Target => names.producer(name),
    };
    keys.extend(names.admin(side, name));
    keys
}

fn connection(reader: &mut Reader, names: Names<'_>, side: Side, alias: &ClusterAlias) -> Option<ClusterSettings> {
    let keys = names.cluster(side, "bootstrap.servers");
    if reader.find(&keys).is_none() {
        let reason = format!("missing; give the addresses of {alias}: host:port, host:port");
        reader.missing(&format!("{alias}.bootstrap.servers"), reason);
    }
    let servers = reader.read(&keys, values::addresses);
    let time = |reader: &mut Reader, name: &str, default: Duration, low: i64| {
        read_or(reader, &with_admin(names, side, name), default, values::millis(low))
    };
    let client_id = reader.read(&with_admin(names, side, "client.id"), values::text);
    let client_id = client_id.unwrap_or_else(|| format!("{}->{}|towpath", names.source, names.target));
    let connect_timeout = time(reader, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT, 1);
    let connections_max_idle =
        read_or(reader, &with_admin(names, side, "connections.max.idle.ms"), CONNECTIONS_MAX_IDLE, idle);
    let reconnect_backoff = time(reader, "reconnect.backoff.ms", RECONNECT_BACKOFF, 0);
    let longest = time(reader, "reconnect.backoff.max.ms", RECONNECT_BACKOFF_MAX, 0);
    let metadata_max_age = time(reader, "metadata.max.age.ms", METADATA_MAX_AGE, 0);
    Some(ClusterSettings {
        connect_timeout,
        connections_max_idle,
        reconnect_backoff,
        reconnect_backoff_max: longest.max(reconnect_backoff),
        metadata_max_age,
        ..ClusterSettings::new(alias.clone(), servers?, client_id)
    })
}

/// Kafka closes no idle connection for -1; a decade is as good as never.
fn idle(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "-1" => Ok(Duration::from_secs(10 * 365 * 24 * 60 * 60)),
        text => values::millis(1000)(text).map_err(|accepted| format!("{accepted}, nor -1 for never")),
    }
}

/// Below a megabyte an ordinary batch would be refused; no batch can have more than 2 GiB.
fn open_bytes_max(text: &str) -> Result<usize, String> {
    values::number(1_i32 << 20, i32::MAX)(text).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn replication_factor(text: &str) -> Result<i16, String> {
    let fault = "not a whole number from 1 to 32767, nor -1 for the broker's default";
    match values::number(-1i16, i16::MAX)(text) {
        Ok(0) | Err(_) => Err(fault.to_owned()),
        Ok(factor) => Ok(factor),
    }
}

fn refresh(reader: &mut Reader, names: Names<'_>) -> Option<Duration> {
    let interval = read_or(reader, &names.flow("refresh.topics.interval.seconds"), REFRESH_TOPICS, values::seconds);
    let enabled = names.flow("refresh.topics.enabled");
    read_or(reader, &enabled, true, values::boolean).then_some(interval)
}

fn topics(reader: &mut Reader, names: Names<'_>) -> Option<TopicFilter> {
    let compile = |text: &str| {
        let items = values::list(text);
        values::every(items.iter().map(|item| JavaPattern::any_of(&[item]).map_err(|error| error.to_string())))?;
        JavaPattern::any_of(&items).map_err(|error| error.to_string())
    };
    let include = patterns(reader, &names.flow("topics"), compile, DEFAULT_TOPICS);
    // Up to Kafka 3.9 the new name wins wherever it stands, even over the flow's own old one.
    let mut keys = names.flow("topics.exclude");
    keys.extend(names.flow("topics.blacklist"));
    let old = reader.find(&names.flow("topics.blacklist"));
    if let Some(old) = old {
        let counts = reader.find(&keys).is_some_and(|entry| entry.key == old.key);
        let text = if counts {
            "the old name of topics.exclude, which Kafka 4.0 and later pass over; it is used here, but rename it"
        } else {
            "the old name of topics.exclude; not used, since that is set too"
        };
        reader.note_entry(&old, text);
    }
    let exclude = patterns(reader, &keys, compile, DEFAULT_TOPICS_EXCLUDE);
    Some(TopicFilter::from_patterns(include?, exclude?))
}

fn patterns(
    reader: &mut Reader,
    keys: &[String],
    compile: impl Fn(&str) -> Result<JavaPattern, String>,
    default: &[&str],
) -> Option<JavaPattern> {
    let Some(entry) = reader.find(keys) else {
        return JavaPattern::any_of(default).ok();
    };
    let patterns = reader.read(keys, compile)?;
    for warning in patterns.warnings() {
        reader.note_entry(&entry, warning.meaning.clone());
    }
    Some(patterns)
}

fn policy(reader: &mut Reader, names: Names<'_>) -> Option<ReplicationPolicy> {
    let separator =
        reader.read(&names.flow("replication.policy.separator"), separator).unwrap_or_else(|| ".".to_owned());
    let shared =
        read_or(reader, &names.flow("replication.policy.internal.topic.separator.enabled"), true, values::boolean);
    let separators = Separators { internal: if shared { separator.clone() } else { ".".to_owned() }, topic: separator };
    let class = names.flow("replication.policy.class");
    if reader.find(&class).is_none() {
        return Some(ReplicationPolicy::Default { separators });
    }
    reader.read(&class, |text| {
        ReplicationPolicy::from_class(text.trim(), separators.clone(), names.source).map_err(|error| error.to_string())
    })
}

/// An empty separator makes the origin of a topic unreadable; people use it to keep names.
fn separator(text: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() {
        Err("empty; to keep topic names use replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy".to_owned())
    } else if text.chars().all(legal) {
        Ok(text.to_owned())
    } else {
        Err("cannot be part of a topic name; use letters, digits, '.', '_' and '-'".to_owned())
    }
}

fn fetch(reader: &mut Reader, names: Names<'_>, memory_bytes: u64) -> FetchSettings {
    let bytes = |reader: &mut Reader, name: &str, low: i64| {
        let parse = values::integer(low..=i64::from(i32::MAX));
        let value = reader.read(&names.consumer(name), parse)?;
        u32::try_from(value).ok()
    };
    let response = bytes(reader, "fetch.max.bytes", 1);
    let partition = bytes(reader, "max.partition.fetch.bytes", 1);
    let min_bytes = bytes(reader, "fetch.min.bytes", 0);
    // A response above the budget could never be taken in.
    let quarter = u32::try_from(memory_bytes / 4).unwrap_or(u32::MAX);
    let ceiling = BUFFER_BYTES_MAX.min(quarter);
    let keys = names.consumer("fetch.max.bytes");
    let capped = cap(reader, &keys, response, ceiling, "32 MiB and a quarter of towpath.memory.bytes");
    let response_bytes_max = capped.unwrap_or(FetchSettings::RESPONSE_BYTES_MAX);
    FetchSettings {
        response_bytes_max,
        response_bytes_explicit: response.is_some(),
        partition_bytes_max: partition.unwrap_or(FetchSettings::PARTITION_BYTES_MAX).min(response_bytes_max),
        partition_bytes_explicit: partition.is_some(),
        max_wait: read_or(reader, &names.consumer("fetch.max.wait.ms"), FetchSettings::MAX_WAIT, values::millis(0)),
        min_bytes: min_bytes.unwrap_or(FetchSettings::MIN_BYTES),
    }
}

/// Values made for Java's clients are often larger than what pays here; they are lowered, and that is said.
fn cap(reader: &mut Reader, keys: &[String], value: Option<u32>, ceiling: u32, what: &str) -> Option<u32> {
    let value = value?;
    if value > ceiling
        && let Some(entry) = reader.find(keys)
    {
        reader.note_entry(&entry, format!("lowered to {ceiling} bytes, the smaller of {what}"));
    }
    Some(value.min(ceiling))
}

fn produce(reader: &mut Reader, names: Names<'_>) -> ProduceSettings {
    reader.read(&names.producer("acks"), |text| match text.trim() {
        "all" | "-1" => Ok(()),
        _ => Err("not one of all, -1: a copy acknowledged by the leader alone can be lost".to_owned()),
    });
    let keys = names.producer("max.request.size");
    let bytes = reader.read(&keys, values::integer(1..=i64::from(i32::MAX)));
    let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
    if bytes.is_some_and(|bytes| bytes > BUFFER_BYTES_MAX)
        && let Some(entry) = reader.find(&keys)
    {
        reader.note_entry(&entry, format!("lowered to {BUFFER_BYTES_MAX} bytes"));
    }
    ProduceSettings {
        request_bytes_max: bytes.map_or(ProduceSettings::REQUEST_BYTES_MAX, |bytes| bytes.min(BUFFER_BYTES_MAX)),
        request_timeout: read_or(reader, &names.producer("request.timeout.ms"), REQUEST_TIMEOUT, values::millis(1)),
        in_flight_per_partition_max: read_or(
            reader,
            &names.producer("max.in.flight.requests.per.connection"),
            ProduceSettings::IN_FLIGHT_PER_PARTITION_MAX,
            values::number(1, ProduceSettings::IN_FLIGHT_PER_PARTITION_MAX),
        ),
        lanes_per_broker: read_or(
            reader,
            &names.flow("towpath.lanes.per.broker"),
            ProduceSettings::LANES_PER_BROKER,
            values::number(1, 16),
        ),
    }
}

fn lease(reader: &mut Reader, names: Names<'_>) -> LeaseSettings {
    let (session, heartbeat) = (names.flow("towpath.session.timeout.ms"), names.flow("towpath.heartbeat.interval.ms"));
    // The broker's own lower bound by default (group.min.session.timeout.ms).
    let session_timeout = read_or(reader, &session, LeaseSettings::SESSION_TIMEOUT, values::millis(6000));
    let usual = LeaseSettings::HEARTBEAT_INTERVAL.min(session_timeout / 10);
    let heartbeat_interval = read_or(reader, &heartbeat, usual, values::millis(1));
    let lease = LeaseSettings { session_timeout, heartbeat_interval };
    if let Some(entry) = reader.find(&heartbeat).filter(|_| lease.heartbeat_interval * 3 > lease.session_timeout) {
        let reason = format!(
            "a heartbeat every {} ms is more than a third of the session timeout of {} ms; lower towpath.heartbeat.interval.ms or raise towpath.session.timeout.ms",
            lease.heartbeat_interval.as_millis(),
            lease.session_timeout.as_millis()
        );
        reader.fault(&entry, reason);
    }
    lease
}
