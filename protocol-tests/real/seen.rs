//! `towpath status` against real Kafka, from a directory that knows nothing of the mirror.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pair::Pair;
use super::program::{Outcome, run, towpath_binary};

/// A copy of a few thousand records and a session of six seconds, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const LINES: [&str; 2] = ["A->B.topics = orders, stands, short", "towpath.session.timeout.ms = 6000"];

/// With nothing around it but the file.
fn status(pair: &Pair, arguments: &[&str]) -> Outcome {
    let empty = tempfile::tempdir().expect("room for a directory");
    let file = pair.file(&[LINES.as_slice(), &["towpath.state.dir = /nowhere/at/all"]].concat());
    let mut command = Command::new(towpath_binary());
    command.arg("status").arg(file).args(arguments).current_dir(empty.path()).env_clear();
    let outcome = run(command, SOON);
    assert_eq!(std::fs::read_dir(empty.path()).expect("it is there").count(), 0, "it leaves nothing behind");
    outcome
}

fn status_until(pair: &Pair, what: &str, wanted: impl Fn(&Value) -> bool) -> (Value, Option<i32>) {
    let end = Instant::now() + SOON;
    loop {
        let outcome = status(pair, &["--json"]);
        let json: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
        let flow = json["flows"][0].clone();
        if wanted(&flow) {
            return (flow, outcome.code);
        }
        assert!(Instant::now() < end, "not {what}: {outcome}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn rows<'a>(flow: &'a Value, topic: &str) -> Vec<&'a Value> {
    let all = flow["partitions"].as_array().expect("a list");
    all.iter().filter(|row| row["topic"] == topic).collect()
}

fn numbers(flow: &Value, topic: &str, name: &str) -> Vec<u64> {
    rows(flow, topic).iter().map(|row| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"))).collect()
}

fn all_are(flow: &Value, topic: &str, state: &str) -> bool {
    let rows = rows(flow, topic);
    !rows.is_empty() && rows.iter().all(|row| row["state"] == state)
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_status_after_a_kill_is_what_kafkas_own_tools_see() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    source.load("orders", 3_000, &["--partitions", "3"]);
    source.load("short", 1_000, &["--partitions", "1"]);
    source.load("stands", 10, &["--partitions", "1"]);
    target.load("A.stands", 5, &["--partitions", "1"]);
    // Lost before anybody copied them; the copy goes on behind.
    pair.copy(&["A->B.topics = short"]).expect_success();
    source.load("short", 400, &["--partitions", "1", "--first", "1000"]);
    source.delete_records("short", 1_300);

    let running = pair.follow(&LINES);
    let (flow, code) = status_until(&pair, "copied", |flow| {
        ["orders", "short"].iter().all(|topic| all_are(flow, topic, "caught-up"))
            && all_are(flow, "stands", "target-not-empty")
    });
    assert_eq!((code, &flow["verdict"]), (Some(4), &"not-copying".into()), "{flow:#}");
    assert_eq!(flow["mirrors"].as_array().map(Vec::len), Some(1), "{flow:#}");
    let table = status(&pair, &[]);
    assert!(table.stdout.contains("  stands-0  target-not-empty; "), "{table}");
    assert!(table.stdout.contains("--flow 'A->B' --topic stands"), "{table}");
    assert!(!table.stdout.contains("orders-0"), "what is copied is only counted: {table}");
    // The mirror shows its position on the source as well, every few seconds.
    let end = Instant::now() + SOON;
    let shown = || source.committed("towpath.A.B", "orders").iter().map(|(committed, _)| committed).sum::<u64>();
    while shown() < 3_000 {
        assert!(Instant::now() < end, "nothing is shown on the source");
        std::thread::sleep(Duration::from_millis(500));
    }
    running.kill();

    source.load("orders", 701, &["--partitions", "3", "--first", "3000"]);
    let (flow, code) = status_until(&pair, "without a mirror", |flow| all_are(flow, "orders", "not-running"));
    assert_eq!(code, Some(4), "{flow:#}");
    // What Java's consumer and admin client say of the same.
    let of_group = target.committed("__towpath.A.B", "A.orders");
    let (committed, _): (Vec<u64>, Vec<u64>) = of_group.into_iter().unzip();
    assert_eq!(numbers(&flow, "orders", "targetOffset"), committed, "{flow:#}");
    let shown_on_source = source.committed("towpath.A.B", "orders");
    let (copied, ends): (Vec<u64>, Vec<u64>) = shown_on_source.into_iter().unzip();
    assert_eq!(numbers(&flow, "orders", "sourceEnd"), ends, "{flow:#}");
    assert_eq!(numbers(&flow, "orders", "sourceOffset"), copied, "{flow:#}");
    assert_eq!(numbers(&flow, "orders", "lagRecords").iter().sum::<u64>(), 701, "{flow:#}");
    let short = rows(&flow, "short")[0];
    let loss = serde_json::json!([{ "first": 1_000, "last": 1_299, "records": 300 }]);
    assert_eq!((&short["losses"], &short["lostRecords"]), (&loss, &300.into()), "{short:#}");
    assert_eq!((&short["targetOffset"], &flow["lostRecords"]), (&1_100.into(), &300.into()), "{flow:#}");
    let stands = rows(&flow, "stands")[0];
    assert_eq!((&stands["awaitsDecision"], &stands["copying"]), (&true.into(), &false.into()), "{stands:#}");
    let reason = "target not empty: offsets 0 to 5 exist there, and nothing says that Towpath wrote them";
    assert_eq!(stands["reason"], reason, "{stands:#}");
}
