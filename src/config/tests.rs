//! Whole files in, settings, notes and faults out.

use super::*;
use crate::mirror::settings::{Isolation, OnTargetNotEmpty, StartOffset};
use crate::topics::ReplicationPolicy;
use std::time::Duration;

fn environment() -> Environment {
    Environment { state_dir: Some(PathBuf::from("/state")) }
}

fn load_text(text: &str) -> Result<Loaded, ConfigErrors> {
    parse(text.as_bytes(), "mm2.properties", &environment())
}

fn good(text: &str) -> Loaded {
    load_text(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn bad(text: &str) -> Vec<String> {
    let errors = load_text(text).expect_err("the file is faulty");
    errors.to_string().lines().map(str::to_owned).collect()
}

fn notes(loaded: &Loaded) -> Vec<String> {
    loaded.notes.iter().map(ToString::to_string).collect()
}

/// The least that runs; what a test adds stands on line 5.
const SMALL: &str =
    "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n";

fn small_with(lines: &str) -> String {
    format!("{SMALL}{lines}\n")
}

/// The note on the only line added to the small file.
fn note_on(line: &str) -> String {
    let loaded = good(&small_with(line));
    let notes = notes(&loaded);
    assert_eq!(notes.len(), 1, "{line}: {notes:?}");
    notes[0].clone()
}

#[test]
fn a_small_file_runs_with_the_defaults() {
    let loaded = good(SMALL);
    assert_eq!(notes(&loaded), [""; 0]);
    let [flow] = loaded.settings.flows.as_slice() else { panic!("{:?}", loaded.settings.flows) };
    assert_eq!(flow.name(), "A->B");
    assert_eq!(flow.source.bootstrap_servers[0].to_string(), "a:9092");
    assert_eq!(flow.target.client_id, "A->B|towpath");
    assert_eq!(flow.source_group_id(), "towpath.A.B");
    assert_eq!(flow.replication_factor, 2);
    assert_eq!(flow.refresh_topics, Some(Duration::from_secs(600)));
    assert_eq!(flow.policy.remote_topic("A", "t"), "A.t");
    assert!(flow.topics.matches("orders") && !flow.topics.matches("x.internal"));
    assert_eq!(loaded.settings.memory_bytes, 67_108_864);
    assert_eq!(loaded.settings.state_dir, PathBuf::from("/state"));
}

/// The worked example of `mirrormaker2.md` 1.9, whose answers were taken from Java's code.
#[test]
fn the_worked_example_means_what_it_means_to_mirrormaker() {
    let loaded = good(
        "clusters = A, B
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
topics = orders.*
A->B.enabled = true
A->B.topics = orders, payments
tasks.max = 4
exactly.once.source.support = enabled
offset.flush.interval.ms = 5000
B.offset.flush.interval.ms = 10000
A.consumer.max.poll.records = 100
A->B.consumer.fetch.min.bytes = 1024
A->B.source.consumer.fetch.min.bytes = 2048
B.producer.linger.ms = 20
producer.acks = 1
A->B.producer.acks = 1
use.defaults.from = source
A->B.sync.group.offsets.enabled = true
",
    );
    let [flow] = loaded.settings.flows.as_slice() else { panic!("one flow") };
    assert!(flow.topics.matches("orders") && flow.topics.matches("payments"));
    assert!(!flow.topics.matches("orders2"));
    assert_eq!(flow.fetch.min_bytes, 2048);
    assert_eq!(flow.start, StartOffset::Earliest);
    let notes = notes(&loaded);
    let lines: Vec<usize> = loaded.notes.iter().filter_map(|note| note.line).collect();
    assert_eq!(lines, [7, 8, 9, 10, 11, 14, 15, 16, 17, 18], "{notes:#?}");
    assert!(notes[7].contains("offset syncs") && notes[7].contains("A->B.producer.override.acks"));
}

#[test]
fn the_precedence_is_mirrormakers() {
    for (lines, expected) in [
        ("A->B.consumer.fetch.min.bytes = 1", 1),
        ("A->B.consumer.fetch.min.bytes = 1\nA.consumer.fetch.min.bytes = 2", 2),
        ("A.consumer.fetch.min.bytes = 2\nA->B.source.consumer.fetch.min.bytes = 3", 3),
        ("B.consumer.fetch.min.bytes = 4", 1),
        ("consumer.fetch.min.bytes = 5", 1),
    ] {
        let loaded = good(&small_with(lines));
        assert_eq!(loaded.settings.flows[0].fetch.min_bytes, expected, "{lines}");
    }
    let loaded = good(&small_with(
        "B.producer.max.request.size = 10\nA->B.producer.override.max.request.size = 20\nA->B.producer.max.request.size = 30",
    ));
    assert_eq!(loaded.settings.flows[0].produce.request_bytes_max, 20);
    let shared = "clusters=A,B\nbootstrap.servers=x:1\nB.bootstrap.servers=b:1\nA->B.enabled=TRUE\nreplication.factor=3\nA->B.replication.factor=-1\n";
    let loaded = good(shared);
    let flow = &loaded.settings.flows[0];
    assert_eq!(flow.source.bootstrap_servers[0].host, "x");
    assert_eq!(flow.target.bootstrap_servers[0].host, "b");
    assert_eq!(flow.replication_factor, -1);
}

#[test]
fn several_flows_take_their_own_settings() {
    let loaded = good(
        "clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->B.enabled = true
A->C.enabled = true
C->A.enabled = false
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
A->C.replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy
A->C.replication.policy.separator = _
A->C.consumer.isolation.level = read_uncommitted
A->B.towpath.on.target.not.empty = append
",
    );
    let [first, second] = loaded.settings.flows.as_slice() else { panic!("two flows") };
    assert_eq!(notes(&loaded), [""; 0]);
    assert!(matches!(&first.policy, ReplicationPolicy::Identity { source_alias, .. } if source_alias == "A"));
    assert_eq!(second.policy.remote_topic("A", "t"), "A_t");
    assert_eq!(first.isolation, Isolation::ReadCommitted);
    assert_eq!(second.isolation, Isolation::ReadUncommitted);
    assert_eq!(first.on_target_not_empty, OnTargetNotEmpty::Append);
}

#[test]
fn all_faults_come_together_with_line_key_and_remedy() {
    let lines = bad("clusters = A, B
A.bootstrap.servers = a
A->B.enabled = true
topics = *
replication.factor = 0
A.consumer.auto.offset.reset = beginning
A.consumer.fetch.min.bytes = 1k
B.producer.acks = 1
B.producer.max.in.flight.requests.per.connection = 6
towpath.memory.bytes = 64MiB
replication.policy.class = com.acme.Names
refresh.topics.enabled = yes
");
    let expected = [
        ("mm2.properties: B.bootstrap.servers: missing;", "host:port"),
        ("mm2.properties:2: A.bootstrap.servers = a: ", "host:port"),
        ("mm2.properties:4: topics = *: ", ".*"),
        ("mm2.properties:5: replication.factor = 0: ", "1 to 32767"),
        ("mm2.properties:6: A.consumer.auto.offset.reset = beginning: ", "earliest, latest"),
        ("mm2.properties:7: A.consumer.fetch.min.bytes = 1k: ", "0 to 2147483647"),
        ("mm2.properties:8: B.producer.acks = 1: ", "all, -1"),
        ("mm2.properties:9: B.producer.max.in.flight.requests.per.connection = 6: ", "1 to 5"),
        ("mm2.properties:10: towpath.memory.bytes = 64MiB: ", "8388608"),
        ("mm2.properties:11: replication.policy.class = com.acme.Names: ", "IdentityReplicationPolicy"),
        ("mm2.properties:12: refresh.topics.enabled = yes: ", "true nor false"),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (start, part)) in lines.iter().zip(expected) {
        assert!(line.starts_with(start) && line.contains(part), "{line}");
    }
}

#[test]
fn a_file_that_enables_nothing_is_refused() {
    let lines = bad("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("no flow is enabled") && lines[0].contains("A->B.enabled = true"));
    let unread = load_text("clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\ntopics = x\n");
    let unread: Vec<String> = unread.expect_err("no flow").notes().iter().map(ToString::to_string).collect();
    let said = unread.iter().any(|note| note.contains(":4: topics: no enabled flow would read it"));
    assert!(said && !unread.iter().any(|note| note.contains("in this place")), "{unread:#?}");
    assert!(bad("clusters = A\nA.bootstrap.servers = a:1\n")[0].contains("two"));
    assert!(bad("")[0].contains("clusters: missing"));
    assert!(bad("clusters =\n")[0].contains("no cluster"));
}

#[test]
fn flows_between_unknown_clusters_are_refused() {
    let lines = bad(&small_with("A->C.enabled = true\nA->A.enabled = true\nB -> A.enabled = true"));
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].contains(":5:") && lines[0].contains("unknown cluster in a flow: C; clusters names A, B"));
    assert!(lines[1].contains(":6:") && lines[1].contains("two different clusters"));
    assert!(lines[2].contains(":7:") && lines[2].contains("first blank"));
    let off = note_on("A->C.enabled = false");
    assert!(off.contains("unknown cluster"), "{off}");
}

#[test]
fn the_trap_of_inline_comments_is_explained() {
    let lines = bad("clusters = A, B   # both sites\nA.bootstrap.servers = a:1\n");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("no inline comments"), "{}", lines[0]);
    let note = note_on("topics = orders # mine");
    assert!(note.contains(":5: topics: the text from # on"), "{note}");
}

#[test]
fn anything_but_plain_text_is_refused_where_it_counts() {
    for line in [
        "security.protocol = SSL",
        "A.security.protocol = sasl_ssl",
        "B.producer.security.protocol = SASL_PLAINTEXT",
        "A->B.source.cluster.security.protocol = SSL",
    ] {
        let lines = bad(&small_with(line));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("not in this version yet"), "{}", lines[0]);
    }
    assert!(bad(&small_with("security.protocol = TLS"))[0].contains("not one of PLAINTEXT"));
    assert_eq!(notes(&good(&small_with("security.protocol = plaintext"))), [""; 0]);
    good(&small_with("security.protocol = SSL\nA.security.protocol = PLAINTEXT\nB.security.protocol = PLAINTEXT"));
    let elsewhere = small_with("C.security.protocol = SSL").replace("A, B", "A, B, C");
    assert!(notes(&good(&elsewhere))[0].contains("takes part in no enabled flow"));
}

#[test]
fn references_to_config_providers_are_never_taken_literally() {
    let lines = bad(&small_with("A.consumer.client.rack = ${env:RACK}"));
    assert!(lines[0].contains("${env:RACK} is not resolved"), "{}", lines[0]);
}

#[test]
fn secrets_are_not_repeated() {
    let fault = Fault::of_entry(
        &Entry { line: 1, key: "A.ssl.keystore.password".to_owned(), value: "hunter2".to_owned() },
        "bad",
    );
    assert_eq!(fault.to_string(), "A.ssl.keystore.password = [hidden]: bad");
    let note = note_on("A.ssl.keystore.password = hunter2");
    assert!(!note.contains("hunter2"), "{note}");
}

#[test]
fn every_other_key_is_named() {
    for (line, part) in [
        ("tasks.max = 4", "known to MirrorMaker, not yet used here"),
        ("A->B.sync.topic.acls.enabled = false", "known to MirrorMaker, not yet used here"),
        ("B.exactly.once.source.support = enabled", "known to MirrorMaker"),
        ("A.consumer.max.poll.records = 5", "known to MirrorMaker"),
        ("A->B.producer.override.compression.type = zstd", "forwarded as the source holds them"),
        ("compression.type = zstd", "a setting of Kafka's producer, not used here (batches are forwarded"),
        ("enable.idempotence = true", "a setting of Kafka's producer, not used here (each record is copied once"),
        ("B.max.poll.records = 5", "a setting of Kafka's consumer, not used here"),
        ("offset.storage.cleanup.policy = compact", "known to MirrorMaker"),
        ("A.sasl.jaas.config = x", "SASL is not in this version"),
        ("consumer.poll.timeout.ms = 5", "known to MirrorMaker"),
        ("topic = x", "did you mean topics?"),
        ("A->B.topics.exlude = x", "did you mean A->B.topics.exclude?"),
        ("A->B.topics.whitelist = x", "did you mean A->B.topics?"),
        ("towpath.memory.byte = 1", "did you mean towpath.memory.bytes?"),
        ("A.consumer.fetch.max.byte = 1", "did you mean A.consumer.fetch.max.bytes?"),
        ("something.else.entirely = 1", "unknown, so it has no effect"),
        ("A.topics = x", "write A->B.topics"),
        ("A->B.fetch.max.bytes = 1", "write A.consumer.fetch.max.bytes"),
        ("A->B.towpath.memory.bytes = 1", "write towpath.memory.bytes alone"),
        ("A.client.id = x", "A.consumer.client.id"),
        ("consumer.fetch.max.bytes = 1", "write A.consumer.fetch.max.bytes"),
        ("C.bootstrap.servers = c:1", "C is not in clusters (A, B)"),
        ("B->A.topics = x", "flow B->A is not enabled"),
        ("A->C.topics = x", "not in clusters"),
        ("A.producer.acks = 1", "no enabled flow writes to A"),
        ("B.consumer.fetch.max.bytes = 1", "no enabled flow reads from B"),
        ("topics.blacklist = x", "old name of topics.exclude"),
        ("topics = [[:alpha:]]+", "single characters"),
        ("A.consumer.fetch.max.bytes = 52428800", "lowered to 16777216"),
    ] {
        let note = note_on(line);
        let key = line.split_once(" = ").unwrap().0;
        assert!(note.starts_with(&format!("mm2.properties:5: {key}: ")), "{note}");
        assert!(note.contains(part), "{note}");
    }
}

#[test]
fn quirks_of_mirrormaker_are_noted() {
    let blank = good(&SMALL.replace("enabled = true", "enabled = true  "));
    assert!(notes(&blank)[0].contains("blanks around the value"), "{:?}", notes(&blank));
    let captured = SMALL.replace("A, B", "A, B, A.x");
    assert!(notes(&good(&captured))[0].contains("longer alias"));
    let twice = good(&small_with("topics = a\ntopics = b"));
    assert!(twice.settings.flows[0].topics.matches("b"));
    assert!(notes(&twice)[0].contains(":5: topics: set again on line 6"));
    let both = good(&small_with("topics.exclude = a\nA->B.topics.blacklist = b"));
    assert!(both.settings.flows[0].topics.matches("b"));
    assert!(notes(&both)[0].contains("not used"));
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let lines = bad(&small_with("towpath.session.timeout.ms = 6000\ntowpath.heartbeat.interval.ms = 3000"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("third of the session timeout"));
    let group =
        bad("clusters=A,B,C\nbootstrap.servers=x:1\nA->B.enabled=true\nA->C.enabled=true\ntowpath.group.id=g\n");
    assert_eq!(group.len(), 1, "{group:?}");
    assert!(group[0].contains("same group g on A"), "{}", group[0]);
}

/// The table of keys is what is documented: each entry has a reader, which this shows by the absence of notes.
#[test]
fn every_key_of_the_table_has_an_effect() {
    use keys::Place;
    let mut lines = String::new();
    for key in keys::USED {
        let name = key.name;
        let value = match name {
            "clusters" | "enabled" | "bootstrap.servers" | "topics.blacklist" => continue,
            "auto.offset.reset" => "latest",
            "isolation.level" => "read_uncommitted",
            "client.rack" | "client.id" | "towpath.group.id" | "topics" | "topics.exclude" => "x",
            "towpath.state.dir" => "/x",
            "towpath.http.listen" => "off",
            "replication.policy.class" => "IdentityReplicationPolicy",
            "replication.policy.separator" => "-",
            "acks" => "-1",
            "security.protocol" => "PLAINTEXT",
            "towpath.on.target.not.empty" => "append",
            "towpath.on.target.recreated" => "begin",
            "towpath.on.source.loss" => "stop",
            "towpath.on.source.truncated" | "towpath.on.foreign.write" => "continue",
            "towpath.on.source.recreated" => "recreate-target",
            "towpath.log.append.time" => "sealed",
            "towpath.memory.bytes" | "towpath.open.max.bytes" => "33554432",
            "max.in.flight.requests.per.connection" | "towpath.lanes.per.broker" => "1",
            "towpath.session.timeout.ms" => "9000",
            "towpath.worker.threads" => "3",
            _ if name.ends_with(".enabled") || name == "towpath.commit.source.offsets" => "false",
            _ => "2000",
        };
        let places: &[&str] = match key.place {
            Place::Top => &[""],
            Place::Cluster => &["", "A.", "B."],
            Place::FlowOnly => &["A->B."],
            Place::Flow => &["", "A->B."],
            Place::Consumer => &["A->B.source.consumer.", "A.consumer.", "A->B.consumer."],
            Place::Producer => &["A->B.producer.override.", "B.producer."],
            Place::Connection => &["A.consumer.", "B.producer.", "A.admin.", "A->B.target.admin."],
        };
        for place in places {
            lines.push_str(&format!("{place}{name} = {value}\n"));
        }
    }
    let loaded = good(&small_with(&lines));
    assert_eq!(notes(&loaded), [""; 0]);
    let defaults = effective(&good(SMALL).settings);
    let changed = effective(&loaded.settings);
    // Every printed setting differs from its default, except what cannot (acks, clusters, addresses, the switch).
    let same: Vec<&str> =
        changed.lines().filter(|line| !line.is_empty() && defaults.lines().any(|other| other == *line)).collect();
    let fixed = ["clusters", "enabled", "cluster.bootstrap.servers", "override.acks"];
    assert!(same.iter().all(|line| fixed.iter().any(|key| line.contains(&format!("{key} =")))), "{same:#?}");
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    for lines in [
        "",
        "A->B.towpath.group.id = g\nA.consumer.client.rack = r1\nA.consumer.fetch.max.bytes = 2000000",
        "replication.policy.class = IdentityReplicationPolicy\nB.producer.connections.max.idle.ms = -1",
        "topics = a\\\\.b, (?!x).*\nrefresh.topics.enabled = false\nreplication.policy.separator = _\nreplication.policy.internal.topic.separator.enabled = false",
    ] {
        let printed = effective(&good(&small_with(lines)).settings);
        let again = good(&printed);
        assert_eq!(effective(&again.settings), printed);
        assert_eq!(notes(&again), [""; 0], "{printed}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = load(Path::new("/nowhere/mm2.properties")).expect_err("there is none");
    let text = error.to_string();
    assert!(text.starts_with("/nowhere/mm2.properties: cannot be read: "), "{text}");
    assert!(text.contains("give the path"), "{text}");
}

#[test]
fn the_state_has_a_home() {
    let vars = |pairs: &'static [(&str, &str)]| {
        move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
    };
    let dir = |root, pairs| Environment::new(root, vars(pairs)).state_dir;
    assert_eq!(dir(true, &[("HOME", "/root")]), Some("/var/lib/towpath".into()));
    assert_eq!(dir(false, &[("HOME", "/h")]), Some("/h/.local/state/towpath".into()));
    assert_eq!(dir(false, &[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]), Some("/s/towpath".into()));
    assert_eq!(dir(false, &[("HOME", "/h"), ("XDG_STATE_HOME", "s")]), Some("/h/.local/state/towpath".into()));
    assert_eq!(dir(false, &[]), None);
    let errors = parse(SMALL.as_bytes(), "f", &Environment::default()).expect_err("no home");
    assert!(errors.to_string().contains("towpath.state.dir: missing"));
}

#[test]
fn the_documentation_lists_the_keys_in_use() {
    let document = include_str!("../../docs/configuration.md");
    assert!(
        document.contains(&key_table()),
        "docs/configuration.md has another table of keys than src/config/keys.rs; it should be:\n{}",
        key_table()
    );
}

proptest::proptest! {
    // Each case compiles patterns, which is slow without optimisation.
    #![proptest_config(proptest::test_runner::Config::with_cases(32))]

    #[test]
    fn no_file_panics(text: String) {
        let _ = load_text(&text);
        let _ = load_text(&small_with(&text));
    }

    #[test]
    fn no_value_panics(index in 0..keys::USED.len(), value: String, alone: bool) {
        let key = keys::USED[index].name;
        let prefix = if alone { "" } else { "A->B." };
        let _ = load_text(&small_with(&format!("{prefix}{key}={}", properties::escape_value(&value))));
    }
}
