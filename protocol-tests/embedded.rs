//! The real mirror and a client that is not ours, against embedded clusters over TCP.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::runtime;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use towpath::batch::{BatchBuilder, Record, records};
use towpath::config;
use towpath::mirror::resume::{Answered, Resume, resume};
use towpath::mirror::{Outcome, Supervisor};
use towpath::testkit::BrokerVersion;
use towpath::testkit::engine::ClusterSettings;
use towpath::testkit::server::EmbeddedCluster;
use towpath::wall_clock;

/// Far more than any of these tests takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(DEADLINE, test).await.expect("done in time");
    });
}

async fn cluster(name: &str, version: BrokerVersion) -> EmbeddedCluster {
    let settings = ClusterSettings::new(name, wall_clock::now_ms())
        .with_version(version)
        // The first join of a group would otherwise wait three seconds for others.
        .with_config("group.initial.rebalance.delay.ms", "0");
    EmbeddedCluster::start(settings).await.expect("a free port")
}

/// A few batches of records in each partition, as a producer without idempotence leaves them.
fn fill(cluster: &EmbeddedCluster, topic: &str, partitions: usize, batches: usize) {
    cluster.with(|cluster, _| {
        cluster.create_topic(topic, partitions, 1, &[]).expect("the topic is new");
        for partition in 0..partitions {
            for batch in 0..batches {
                let mut builder = BatchBuilder::new();
                for at in 0..20 {
                    let (key, value) = (format!("key {at}"), format!("{topic} {partition} {batch} {at}"));
                    let time = wall_clock::now_ms();
                    let headers = [("h", Some(&b"1"[..])), ("h", None)];
                    builder.push(time, Some(key.as_bytes()), Some(value.as_bytes()), &headers).expect("it is small");
                }
                let bytes = builder.build().expect("there are records");
                let mut bytes = bytes.to_vec();
                bytes[..8].copy_from_slice(&(batch as i64 * 20).to_be_bytes());
                cluster.append_raw(topic, partition as i32, bytes.into());
            }
        }
    });
}

fn contents(cluster: &EmbeddedCluster, topic: &str) -> Vec<Vec<Record>> {
    let view = cluster.with(|cluster, _| cluster.topic(topic)).expect("the topic is there");
    let partition = |entries: Vec<towpath::testkit::log::Stored>| {
        let batches = entries.into_iter().filter_map(|entry| entry.batch());
        batches
            .flat_map(|batch| records(&batch).expect("not compressed").map(Result::unwrap).collect::<Vec<_>>())
            .collect()
    };
    view.partitions.into_iter().map(|view| partition(view.entries)).collect()
}

fn configuration(dir: &Path, source: &EmbeddedCluster, target: &EmbeddedCluster) -> std::path::PathBuf {
    let text = format!(
        "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
         A->B.topics = .*\nreplication.factor = 1\nrefresh.topics.interval.seconds = 1\ntowpath.state.dir = {}\n",
        source.bootstrap_servers(),
        target.bootstrap_servers(),
        dir.join("state").display()
    );
    let path = dir.join("mm2.properties");
    std::fs::write(&path, text).expect("the directory is ours");
    path
}

async fn mirror(dir: &Path, source: &EmbeddedCluster, target: &EmbeddedCluster) {
    let loaded = config::load(&configuration(dir, source, target)).expect("a good file");
    let outcome = Supervisor::new(loaded.settings, true, CancellationToken::new()).run().await.expect("it starts");
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
}

#[test]
fn the_mirror_copies_from_one_embedded_cluster_to_another() {
    for (source, target) in [
        (BrokerVersion::V4_3_1, BrokerVersion::V4_3_1),
        (BrokerVersion::V2_8_2, BrokerVersion::V3_9_2),
        (BrokerVersion::V3_9_2, BrokerVersion::V2_8_2),
    ] {
        run(async move {
            let dir = tempfile::tempdir().expect("room for a directory");
            let (source, target) = (cluster("source", source).await, cluster("target", target).await);
            fill(&source, "orders", 3, 10);
            fill(&source, "events", 1, 3);
            mirror(dir.path(), &source, &target).await;
            for topic in ["orders", "events"] {
                assert_eq!(contents(&source, topic), contents(&target, &format!("A.{topic}")));
            }
            // A second run finds its anchors and copies nothing twice.
            mirror(dir.path(), &source, &target).await;
            assert_eq!(contents(&source, "orders"), contents(&target, "A.orders"));
        });
    }
}

/// A batch that a producer left at this offset.
fn add(cluster: &EmbeddedCluster, topic: &str, base_offset: i64, values: &[&str]) {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(wall_clock::now_ms(), None, Some(value.as_bytes()), &[]).expect("it is small");
    }
    let mut bytes = builder.build().expect("there are records").to_vec();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    cluster.with(|cluster, _| cluster.append_raw(topic, 0, bytes.into()));
}

fn values(cluster: &EmbeddedCluster, topic: &str) -> Vec<String> {
    let text = |record: &Record| String::from_utf8(record.value.clone().expect("a value").to_vec()).expect("text");
    contents(cluster, topic).concat().iter().map(text).collect()
}

/// Runs until caught up or stopped; the partitions that were not copied, each with its reason.
async fn attempt(dir: &Path, source: &EmbeddedCluster, target: &EmbeddedCluster) -> Vec<(String, String)> {
    let loaded = config::load(&configuration(dir, source, target)).expect("a good file");
    match Supervisor::new(loaded.settings, true, CancellationToken::new()).run().await.expect("it starts") {
        Outcome::Done => Vec::new(),
        Outcome::NotCopied(partitions) => partitions,
        other => panic!("{other:?}"),
    }
}

async fn decide(
    dir: &Path,
    source: &EmbeddedCluster,
    target: &EmbeddedCluster,
    topic: &str,
    recreate_target: bool,
) -> Vec<Answered> {
    let loaded = config::load(&configuration(dir, source, target)).expect("a good file");
    let flow = loaded.settings.flows.into_iter().next().expect("one flow");
    let topic = topic.to_owned();
    let asked = Resume { flow, topic, partitions: Vec::new(), accept: None, recreate_target, dry_run: false };
    resume(&asked).await.expect("the target answers")
}

#[test]
fn what_stops_a_partition_is_read_from_the_target_and_answered_there() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let versions = (BrokerVersion::V4_3_1, BrokerVersion::V4_3_1);
        let (source, target) = (cluster("source", versions.0).await, cluster("target", versions.1).await);
        let create = |cluster: &EmbeddedCluster, topic: &str| {
            cluster.with(|cluster, _| cluster.create_topic(topic, 1, 1, &[]).expect("the topic is new"));
        };
        for topic in ["again", "anew", "behind", "good"] {
            create(&source, topic);
            add(&source, topic, 0, &["1", "2", "3"]);
        }
        assert_eq!(attempt(dir.path(), &source, &target).await, []);
        assert!(decide(dir.path(), &source, &target, "again", false).await.is_empty(), "nothing stands");

        // Another source topic, behind the former one and instead of it; somebody else in a remote topic.
        for topic in ["again", "anew"] {
            source.with(|cluster, _| assert!(cluster.delete_topic(topic)));
            create(&source, topic);
            add(&source, topic, 0, &["a", "b", "c", "d"]);
        }
        add(&target, "A.behind", 3, &["x", "y"]);
        add(&source, "behind", 3, &["4"]);
        add(&source, "good", 3, &["4"]);
        let stopped = attempt(dir.path(), &source, &target).await;
        let names: Vec<_> = stopped.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A->B again-0", "A->B anew-0", "A->B behind-0"], "{stopped:?}");
        assert_eq!(values(&target, "A.good"), ["1", "2", "3", "4"]);
        for (topic, recreate, state) in [
            ("again", false, "source-recreated"),
            ("anew", true, "source-recreated"),
            ("behind", false, "foreign-write"),
        ] {
            let answered = decide(dir.path(), &source, &target, topic, recreate).await;
            let [one] = answered.as_slice() else { panic!("{answered:?}") };
            assert_eq!(one.state, state);
            assert!(one.decided.is_some(), "{one:?}");
        }
        assert_eq!(attempt(dir.path(), &source, &target).await, []);
        assert_eq!(values(&target, "A.again"), ["1", "2", "3", "a", "b", "c", "d"]);
        assert_eq!(values(&target, "A.anew"), ["a", "b", "c", "d"]);
        assert_eq!(values(&target, "A.behind"), ["1", "2", "3", "x", "y", "4"]);
        // Answered for good.
        assert_eq!(attempt(dir.path(), &source, &target).await, []);
        assert!(decide(dir.path(), &source, &target, "behind", false).await.is_empty());
    });
}

#[test]
fn logs_that_were_cut_off_or_are_gone_are_named_and_answered() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) =
            (cluster("source", BrokerVersion::V3_9_2).await, cluster("target", BrokerVersion::V4_3_1).await);
        for topic in ["cut", "full", "gone", "good", "lost", "shorter"] {
            source.with(|cluster, _| cluster.create_topic(topic, 1, 1, &[]).expect("the topic is new"));
            add(&source, topic, 0, &["1", "2", "3"]);
            add(&source, topic, 3, &["4", "5"]);
        }
        target.with(|cluster, _| cluster.create_topic("A.full", 1, 1, &[]).expect("the topic is new"));
        add(&target, "A.full", 0, &["x"]);
        let stopped = attempt(dir.path(), &source, &target).await;
        let [(name, why)] = stopped.as_slice() else { panic!("{stopped:?}") };
        assert!(name == "A->B full-0" && why.contains("target not empty: offsets 0 to 1"), "{stopped:?}");

        source.with(|cluster, _| cluster.truncate("cut", 0, 3));
        target.with(|cluster, _| {
            cluster.truncate("A.shorter", 0, 3);
            assert!(cluster.delete_topic("A.gone"));
        });
        add(&source, "lost", 5, &["6", "7"]);
        add(&source, "lost", 7, &["8"]);
        source.with(|cluster, _| cluster.delete_records("lost", 0, 7));
        add(&source, "good", 5, &["6"]);
        let stopped = attempt(dir.path(), &source, &target).await;
        for (name, words) in [
            ("A->B cut-0", "source truncated: it lost offsets 3 to 4 (2 of them)"),
            ("A->B full-0", "target not empty"),
            ("A->B gone-0", "target topic gone; towpath resume"),
            ("A->B shorter-0", "target truncated: it ends at 3, our records ended at 5"),
        ] {
            let why = stopped.iter().find(|(found, _)| found == name).map(|(_, why)| why.as_str());
            assert!(why.is_some_and(|why| why.contains(words)), "{name}: {words}: {stopped:?}");
        }
        assert_eq!(stopped.len(), 4, "{stopped:?}");
        target.with(|cluster, _| assert_eq!(cluster.topic("A.gone"), None, "not made anew before somebody decides so"));
        assert_eq!(values(&target, "A.lost"), ["1", "2", "3", "4", "5", "8"]);
        assert_eq!(values(&target, "A.good"), ["1", "2", "3", "4", "5", "6"]);
        for topic in ["cut", "full", "gone", "shorter"] {
            let answered = decide(dir.path(), &source, &target, topic, false).await;
            assert!(answered.iter().any(|one| one.decided.is_some()), "{answered:?}");
        }
        add(&source, "cut", 3, &["a"]);
        assert_eq!(attempt(dir.path(), &source, &target).await, []);
        assert_eq!(values(&target, "A.cut"), ["1", "2", "3", "4", "5", "a"]);
        assert_eq!(values(&target, "A.full"), ["x", "1", "2", "3", "4", "5"]);
        assert_eq!(values(&target, "A.gone"), ["1", "2", "3", "4", "5"]);
        assert_eq!(values(&target, "A.shorter"), ["1", "2", "3", "4", "5"]);
        assert_eq!(attempt(dir.path(), &source, &target).await, []);
    });
}

async fn kcat(arguments: &[&str], input: &str) -> String {
    use tokio::io::AsyncWriteExt;
    let mut child = Command::new("kcat")
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("kcat is installed");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).await.expect("kcat reads");
    drop(stdin);
    let output = child.wait_with_output().await.expect("kcat ends");
    assert!(output.status.success(), "kcat {arguments:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
#[ignore = "needs kcat: run dev/test"]
fn real_kcat_lists_writes_and_reads_an_embedded_cluster() {
    for version in BrokerVersion::ALL {
        run(async move {
            let cluster = cluster("kcat", version).await;
            cluster.with(|cluster, _| cluster.create_topic("t", 2, 1, &[])).expect("the topic is new");
            let broker = cluster.bootstrap_servers();
            let listed = kcat(&["-b", &broker, "-L"], "").await;
            assert!(listed.contains("topic \"t\" with 2 partitions"), "{listed}");
            let idempotent = ["-b", &broker, "-P", "-t", "t", "-p", "1", "-X", "enable.idempotence=true"];
            kcat(&idempotent, "one\ntwo\nthree\n").await;
            let read = kcat(&["-b", &broker, "-C", "-t", "t", "-o", "beginning", "-e", "-q"], "").await;
            assert_eq!(read, "one\ntwo\nthree\n");
            let group = ["-b", &broker, "-q", "-e", "-X", "auto.offset.reset=earliest", "-G", "readers", "t"];
            assert_eq!(kcat(&group, "").await, "one\ntwo\nthree\n");
        });
    }
}
