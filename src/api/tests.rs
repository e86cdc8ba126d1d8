//! What the server makes of what it was told.

use super::{exposition, health::REASONS_MAX, is_healthy, reasons};
use crate::mirror::{
    Anchored, FlowObserved, FlowReport, Observed, PartitionReport, PartitionState, Progress, StopReason, Totals, Work,
};

const NOW: i64 = 1_000_000;

fn row(state: PartitionState, lag: i64, located: bool) -> PartitionReport {
    PartitionReport {
        state,
        since_ms: 0,
        not_moving_since_ms: None,
        located,
        source_next: 10,
        lag,
        newest_timestamp: NOW - 5_000,
        progress: Progress { records: 4, ..Progress::default() },
        losses: Vec::new(),
        reached_goal: false,
    }
}

fn flow(rows: Vec<(&str, i32, PartitionReport)>) -> FlowObserved {
    FlowObserved {
        report: FlowReport {
            name: "A->B".into(),
            state: "copying".into(),
            totals: Totals::default(),
            notable: Vec::new(),
            furthest: Vec::new(),
        },
        runs: true,
        lease_held: true,
        matches_nothing: false,
        partitions: rows.into_iter().map(|(topic, number, row)| (topic.to_owned(), number, row)).collect(),
        missing: Vec::new(),
        gone: [("t".to_owned(), Progress { records: 6, ..Progress::default() })].into(),
        incidents: [(("u".to_owned(), "source-refused"), 2)].into(),
        work: Work::default(),
        anchors: Anchored { last_ms: NOW - 1_500, ..Anchored::default() },
        alive_ms: vec![999_900],
    }
}

fn observed(flow: FlowObserved) -> Observed {
    Observed { at_ms: NOW, flows: vec![flow] }
}

fn refused() -> PartitionState {
    PartitionState::Stopped(StopReason::SourceRefused { code: crate::protocol::ErrorCode::TOPIC_AUTHORIZATION_FAILED })
}

#[test]
fn a_topic_that_cannot_be_read_has_no_lag_rather_than_none() {
    let rows = vec![("t", 0, row(PartitionState::Copying, 7, true)), ("u", 1, row(refused(), 0, true))];
    let text = exposition(&observed(flow(rows)), 0, true).expose().unwrap();
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    has(r#"towpath_partition_lag_records{flow="A->B",topic="t",partition="0"} 7.0"#);
    has(r#"towpath_partition_lag_seconds{flow="A->B",topic="t",partition="0"} 5.0"#);
    has(r#"towpath_topic_lag_seconds{flow="A->B",topic="t"} 5.0"#);
    has(r#"towpath_records_total{flow="A->B",topic="t"} 10.0"#);
    has(r#"towpath_incidents_total{flow="A->B",topic="u",cause="source-refused"} 2.0"#);
    has(r#"towpath_topic_lag_unknown_partitions{flow="A->B",topic="u"} 1.0"#);
    has(r#"towpath_anchor_age_seconds{flow="A->B"} 1.5"#);
    assert!(!text.contains(r#"lag_records{flow="A->B",topic="u""#), "{text}");
}

#[test]
fn ten_thousand_partitions_are_two_megabytes_and_little_without_them() {
    let name = "orders-of-the-north";
    let rows: Vec<_> = (0..10_000).map(|number| (name, number, row(PartitionState::Copying, 7, true))).collect();
    let bytes = |partitions| exposition(&observed(flow(rows.clone())), 0, partitions).expose().unwrap().len();
    assert!((1_500_000..2_500_000).contains(&bytes(true)), "{}", bytes(true));
    assert!(bytes(false) < 20_000, "{}", bytes(false));
}

#[test]
fn ready_means_that_everything_is_copied() {
    let of = |flow: FlowObserved| reasons(&observed(flow)).0.into_iter().map(|one| one.reason).collect::<Vec<_>>();
    assert_eq!(of(flow(vec![("t", 0, row(PartitionState::CaughtUp, 0, true))])), [""; 0]);
    assert_eq!(of(flow(vec![("t", 0, row(PartitionState::Settling, 0, true))])), [""; 0], "it looks where it stands");
    assert_eq!(of(flow(vec![("t", 0, row(PartitionState::Locating, 0, false))])), ["not located yet: locating"]);
    let stopped = of(flow(vec![("t", 0, row(refused(), 0, true))]));
    assert!(stopped[0].starts_with("source refuses to be read: "), "{stopped:?}");
    assert!(stopped[0].contains("; allow READ and DESCRIBE"), "{stopped:?}");
    let mut lapsed = flow(vec![("t", 0, row(PartitionState::CaughtUp, 0, true))]);
    (lapsed.lease_held, lapsed.report.state) = (false, "lease lapsed".into());
    assert_eq!(of(lapsed), ["lease lapsed"]);
    let mut nothing = flow(Vec::new());
    nothing.matches_nothing = true;
    assert_eq!(of(nothing), ["no topic of the source matches topics"]);
    assert_eq!(of(flow(Vec::new())), [""; 0], "a second process that owns nothing");
    let many = (0..10_000).map(|number| ("t", number, row(refused(), 0, true))).collect();
    let (named, more) = reasons(&observed(flow(many)));
    assert_eq!((named.len(), more), (REASONS_MAX, 10_000 - REASONS_MAX));
}

#[test]
fn healthy_means_that_all_threads_work() {
    assert!(is_healthy(Some(&observed(flow(Vec::new())))).is_ok());
    let mut hangs = flow(Vec::new());
    hangs.alive_ms = vec![999_900, 980_000];
    assert_eq!(is_healthy(Some(&observed(hangs))).unwrap_err(), "worker 1 of A->B has shown no sign of life for 20 s");
    assert!(is_healthy(None).is_err());
}
