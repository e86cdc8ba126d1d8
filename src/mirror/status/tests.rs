//! From what the clusters say to the row a person sees.

use super::*;
use crate::{mirror::anchor::Record, protocol::TopicId};

const NOW: i64 = 1_000_000;

fn id(byte: u8) -> TopicId {
    TopicId::new([byte; 16])
}

/// A record of a partition copied up to source offset 100, confirmed ten seconds ago.
fn record(state: &str, more: &str) -> Record {
    let text = format!(
        "towpath-anchor-1 s=100 i={} t={} e=3 p=4 pe=0 q=1 m=co st={state} at={} sn=5{more}",
        id(1),
        id(2),
        NOW - 10_000
    );
    Record::from_commit(80, &text).unwrap()
}

fn found(record: Option<Record>, end: i64, mirror_runs: bool) -> Found {
    Found {
        topic: "t".into(),
        partition: 3,
        remote_topic: "A.t".into(),
        record: record.map(Ok),
        source: SourceSays::Ends { topic_id: id(1), end, readable: end },
        source_cluster: None,
        target: TargetSays::Exists(id(2)),
        refused: None,
        mirror_runs: Some(mirror_runs),
    }
}

fn said(found: &Found) -> (String, bool, Option<i64>) {
    let row = judge(found, NOW);
    (row.state, row.copying, row.lag_records)
}

#[test]
fn the_sources_end_decides_and_not_what_was_true_when_it_was_recorded() {
    for state in ["copying", "caught-up", "draining", "held-by-transaction"] {
        let of = |end, runs| said(&found(Some(record(state, "")), end, runs));
        assert_eq!(of(100, true), ("caught-up".into(), true, Some(0)));
        assert_eq!(of(100, false), ("caught-up".into(), true, Some(0)));
        assert_eq!(of(107, true), ("copying".into(), true, Some(7)));
        assert_eq!(of(107, false), ("not-running".into(), false, Some(7)));
    }
    let row = judge(&found(Some(record("copying", "")), 107, true), NOW);
    assert_eq!((row.source_offset, row.target_offset, row.source_end), (Some(100), Some(80), Some(107)));
    assert_eq!(row.confirmed_ms, Some(NOW - 10_000));
}

#[test]
fn a_mirror_that_runs_and_confirms_nothing_is_named() {
    let late = |state: &str| {
        let mut found = found(Some(record(state, "")), 107, true);
        if let Some(Ok(Record::Anchor(anchor))) = &mut found.record {
            anchor.notes.at_ms = Some(NOW - 600_000);
        }
        judge(&found, NOW)
    };
    let row = late("copying");
    assert_eq!((row.state.as_str(), row.copying), ("not-moving", false));
    assert!(row.reason.unwrap().contains("for 600 s"));
    assert_eq!(late("caught-up").state, "copying", "what came may have come just now");
}

#[test]
fn what_stands_says_why_and_what_to_do() {
    let stopped = " x=300,0,0 l=10-310 ik=x why=records+lost do=towpath+resume+FILE";
    let row = judge(&found(Some(record("records-lost", stopped)), 107, false), NOW);
    assert_eq!((row.state.as_str(), row.copying, row.awaits_decision), ("records-lost", false, true));
    assert_eq!((row.reason.as_deref(), row.remedy.as_deref()), (Some("records lost"), Some("towpath resume FILE")));
    assert_eq!((row.since_ms, row.lag_records, row.lost_records), (Some(5), Some(7), 300));
    assert_eq!(row.losses, [RangeView { first: 10, last: 309, records: 300 }]);
    let row = judge(&found(Some(record("refused", " ik=x why=x")), 107, true), NOW);
    assert_eq!((row.state.as_str(), row.awaits_decision), ("refused", false));
}

#[test]
fn what_waits_is_told_while_a_mirror_runs_and_is_nothing_without_one() {
    let waits = Some(record("awaiting-target", " w=no+answer+for+5+s"));
    let row = judge(&found(waits.clone(), 107, true), NOW);
    assert_eq!((row.state.as_str(), row.copying), ("awaiting-target", false));
    assert_eq!((row.reason.as_deref(), row.since_ms), (Some("no answer for 5 s"), Some(5)));
    assert_eq!(said(&found(waits, 107, false)), ("not-running".into(), false, Some(7)));
    let never = Record::from_commit(0, &format!("towpath-state-1 t={} st=awaiting-source sn=5 w=x", id(2))).unwrap();
    let row = judge(&found(Some(never), 107, true), NOW);
    assert_eq!((row.state.as_str(), row.reason.as_deref(), row.lag_records), ("awaiting-source", Some("x"), None));
}

#[test]
fn a_partition_without_a_record_is_shown_as_such() {
    assert_eq!(said(&found(None, 5, true)), ("never-seen".into(), false, None));
    let missing = Found { target: TargetSays::Missing, ..found(None, 5, true) };
    assert_eq!(said(&missing), ("target-missing".into(), false, None));
    let refused = Found { refused: Some("B->C writes it too".into()), ..found(None, 5, true) };
    assert_eq!(judge(&refused, NOW).reason.as_deref(), Some("B->C writes it too"));
    let error = Record::from_commit(1, "another program").unwrap_err();
    let unreadable = Found { record: Some(Err(error)), ..found(None, 5, true) };
    assert_eq!(said(&unreadable), ("position-unknown".into(), false, None));
}

#[test]
fn an_open_transaction_is_ordinary_for_a_quarter_of_an_hour() {
    let held = |since_ms: i64| {
        let mut found = found(Some(record("held-by-transaction", "")), 107, true);
        found.source = SourceSays::Ends { topic_id: id(1), end: 107, readable: 100 };
        if let Some(Ok(Record::Anchor(anchor))) = &mut found.record {
            anchor.notes.since_ms = Some(since_ms);
        }
        said(&found)
    };
    assert_eq!(held(NOW - 60_000), ("held-by-transaction".into(), true, Some(7)));
    assert_eq!(held(NOW - 900_000), ("held-by-transaction".into(), false, Some(7)));
}

#[test]
fn what_is_plain_from_both_clusters_is_told_before_a_mirror_finds_it() {
    let of = |change: &dyn Fn(&mut Found)| {
        let mut found = found(Some(record("copying", "")), 107, false);
        change(&mut found);
        said(&found)
    };
    let gone = of(&|found| found.target = TargetSays::Missing);
    assert_eq!((gone.0.as_str(), gone.1), ("target-gone", false));
    assert_eq!(of(&|found| found.target = TargetSays::Exists(id(9))).0, "target-recreated");
    let other = of(&|found| {
        found.source_cluster = Some("now".into());
        if let Some(Ok(Record::Anchor(anchor))) = &mut found.record {
            anchor.notes.source_cluster = Some("former".into());
        }
    });
    assert_eq!(other.0, "source-cluster");
    let ends = |topic_id, end| SourceSays::Ends { topic_id, end, readable: end };
    assert_eq!(of(&|found| found.source = ends(id(9), 107)), ("source-recreated".into(), false, None));
    assert_eq!(of(&|found| found.source = ends(id(1), 99)).0, "source-truncated");
    assert_eq!(of(&|found| found.source = SourceSays::NotCopied), ("left-out".into(), true, None));
    assert_eq!(of(&|found| found.source = SourceSays::Nothing), ("not-running".into(), false, None));
}

#[test]
fn a_flow_is_fine_when_all_is_copied_and_somebody_copies_what_comes() {
    let verdict = |rows: &[(Option<Record>, i64)], runs: bool, complete: bool| {
        let mut view = FlowView::new("A->B".into());
        view.mirrors = Some(if runs {
            vec![MirrorView { instance_id: None, client_id: "c".into(), host: "h".into() }]
        } else {
            vec![]
        });
        view.partitions = rows.iter().map(|(record, end)| judge(&found(record.clone(), *end, runs), NOW)).collect();
        view.conclude(complete);
        view.verdict
    };
    let copied = || Some(record("copying", ""));
    assert_eq!(verdict(&[(copied(), 107)], true, true), Verdict::Copying);
    assert_eq!(verdict(&[(copied(), 100)], false, true), Verdict::Copying, "made to its end");
    assert_eq!(verdict(&[(copied(), 107)], false, true), Verdict::NotCopying);
    assert_eq!(verdict(&[(copied(), 107), (None, 1)], true, true), Verdict::NotCopying);
    assert_eq!(verdict(&[], true, true), Verdict::NotCopying, "nothing matches");
    assert_eq!(verdict(&[(copied(), 100)], true, false), Verdict::Unknown);
}
