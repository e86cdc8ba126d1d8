//! Anchors survive their commit, and nothing that is no anchor is taken for one.

use proptest::prelude::*;

use super::*;

fn anchors() -> impl Strategy<Value = Anchor> {
    (
        (0..=i64::MAX, 0..=i64::MAX, 0..=i32::MAX),
        (any::<[u8; 16]>(), any::<[u8; 16]>(), -1..=i32::MAX),
        (0..=i64::MAX, 0..=i16::MAX),
        any::<(bool, bool)>(),
        notes(),
    )
        .prop_map(|(position, topic, identity, shape, notes)| Anchor {
            position: Position { source_next: position.0, target_next: position.1, next_sequence: position.2 },
            source_topic_id: TopicId::new(topic.0),
            target_topic_id: TopicId::new(topic.1),
            leader_epoch: LeaderEpoch(topic.2),
            identity: ProducerIdentity { producer_id: identity.0, producer_epoch: identity.1 },
            shape: Shape { read_committed: shape.0, sealed_append_time: shape.1 },
            state: "held-by-transaction".into(),
            notes,
        })
}

fn notes() -> impl Strategy<Value = Notes> {
    let start = (0..=i32::MAX, 0..=i64::MAX);
    let start = start.prop_map(|(epoch, start)| EpochStart { epoch: LeaderEpoch(epoch), start });
    let mark = (0..=i64::MAX, any::<u32>()).prop_map(|(base_offset, crc)| Mark { base_offset, crc });
    let incident =
        ("[a-z:0-9,-]{1,120}", ".{0,40}").prop_map(|(key, reason)| Incident { key, remedy: reason.clone(), reason });
    (
        prop::collection::vec(start, 0..=HISTORY_MAX),
        prop::option::of(mark),
        prop::option::of("[A-Za-z0-9_-]{1,22}"),
        prop::option::of(any::<u64>().prop_map(DecisionId)),
        prop::option::of(incident),
        seen(),
    )
        .prop_map(|(history, mark, source_cluster, decision, incident, seen)| Notes {
            history,
            mark,
            source_cluster,
            decision,
            incident,
            ..seen
        })
}

/// What is seen from outside, and what was lost.
fn seen() -> impl Strategy<Value = Notes> {
    let lost = (0..=i64::MAX, 0..=i64::MAX).prop_map(|(from, to)| Lost { from, to });
    let time = || prop::option::of(any::<i64>());
    (prop::collection::vec(lost, 0..=2), any::<[u64; 3]>(), prop::option::of(".{0,20}"), time(), time()).prop_map(
        |(losses, [lost, truncated, foreign], waits, at_ms, since_ms)| Notes {
            losses,
            passed: Passed { lost, truncated, foreign },
            waits,
            at_ms,
            since_ms,
            ..Notes::default()
        },
    )
}

proptest! {
    #[test]
    fn an_anchor_survives_its_commit(anchor in anchors()) {
        let metadata = anchor.to_metadata();
        // The broker's default limit is 4096 characters; a commit of many partitions should stay small.
        let most = if anchor.notes.incident.is_some() { 2500 } else { 900 };
        prop_assert!(metadata.len() <= most, "{} characters", metadata.len());
        prop_assert_eq!(Anchor::from_commit(anchor.position.target_next, &metadata), Ok(anchor));
    }

    #[test]
    fn no_metadata_panics(text in ".{0,200}", offset in any::<i64>()) {
        let _ = Anchor::from_commit(offset, &text);
    }

    #[test]
    fn a_damaged_anchor_is_an_error_or_another_anchor_never_a_panic(anchor in anchors(), cut in 0_usize..2000) {
        let metadata = anchor.to_metadata();
        let cut = cut.min(metadata.len());
        let _ = Anchor::from_commit(anchor.position.target_next, metadata.get(..cut).unwrap_or_default());
    }
}

#[test]
fn an_anchor_of_the_first_version_is_read() {
    let text = "towpath-anchor-1 s=1500 i=AAAAAAAAAAAAAAAAAAAAAA t=AAAAAAAAAAAAAAAAAAAAAA e=3 p=4611686018427387911 \
                pe=0 q=1500 m=co st=copying";
    let anchor = Anchor::from_commit(1400, text).unwrap();
    assert_eq!((anchor.position.source_next, anchor.state.as_str()), (1500, "copying"));
    assert_eq!(anchor.notes, Notes::default());
    assert_eq!(anchor.to_metadata(), text);
}

#[test]
fn a_partition_that_stands_without_a_position_is_no_anchor() {
    let reason = "100 % full + über\u{1}".to_owned();
    let incident = Some(Incident { key: "target-not-empty:x".into(), remedy: "resume it".into(), reason });
    let state = "target-not-empty".to_owned();
    let target_topic_id = TopicId::new([7; 16]);
    let standing = Standing { state, target_topic_id, decision: None, incident, waits: None, since_ms: Some(5) };
    let record = Record::Standing(standing);
    let text = record.to_metadata();
    assert_eq!(Record::from_commit(0, &text).as_ref(), Ok(&record));
    assert!(matches!(Anchor::from_commit(0, &text), Err(AnchorError::Version { .. })));
}

#[test]
fn a_long_reason_is_cut_off() {
    let reason = "ü".repeat(5000);
    let incident = Some(Incident { key: "refused:1".into(), remedy: reason.clone(), reason });
    let (state, target_topic_id) = ("refused".to_owned(), TopicId::ZERO);
    let standing = Standing { state, target_topic_id, decision: None, incident, waits: None, since_ms: None };
    assert!(Record::Standing(standing).to_metadata().len() < 2100);
}

#[test]
fn another_programs_commit_is_named_not_ignored() {
    assert_eq!(Anchor::from_commit(5, ""), Err(AnchorError::Version { found: String::new() }));
    assert_eq!(
        Anchor::from_commit(5, "towpath-anchor-2 s=1"),
        Err(AnchorError::Version { found: "towpath-anchor-2".into() })
    );
    assert_eq!(Anchor::from_commit(5, "towpath-anchor-1 s=1 q=1 p=5"), Err(AnchorError::Word { word: "pe" }));
}

#[test]
fn a_stamp_names_what_the_machine_does_not_know_and_never_hides_a_stop() {
    let text =
        "towpath-anchor-1 s=1 i=AAAAAAAAAAAAAAAAAAAAAA t=AAAAAAAAAAAAAAAAAAAAAA e=3 p=4 pe=0 q=1 m=co st=copying";
    let waits = || Some("no answer for 5 s".to_owned());
    let seen = |at_ms| Seen { state: "awaiting-target", waits: waits(), since_ms: 70, at_ms };
    let mut record = Record::from_commit(1, text).unwrap();
    record.stamp(seen(Some(90)));
    record.stamp(seen(None));
    assert_eq!((record.state(), record.waits(), record.since_ms()), ("awaiting-target", waits().as_deref(), Some(70)));
    let Record::Anchor(anchor) = Record::from_commit(1, &record.to_metadata()).unwrap() else { panic!() };
    assert_eq!(anchor.notes.at_ms, Some(90), "the position was not seen again");

    let mut stopped =
        Record::from_commit(1, &format!("{text} ik=x why=gone").replace("copying", "source-gone")).unwrap();
    stopped.stamp(seen(Some(90)));
    assert_eq!((stopped.state(), stopped.waits()), ("source-gone", None));
}
