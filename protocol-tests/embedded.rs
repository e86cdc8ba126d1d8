//! The real mirror and a client that is not ours, against embedded clusters over TCP.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;
use tokio::runtime;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use towpath::batch::{BatchBuilder, Record, records};
use towpath::config;
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
