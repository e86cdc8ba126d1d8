//! Source topics without ids: how another one of the same name is known.

use super::{
    deciding::{decide, goes_on_at, history},
    kit::*,
};
use crate::{
    mirror::{
        anchor::Mark,
        partition::{SourceEnds, StopReason, TargetEnds},
    },
    protocol::{ErrorCode, LeaderEpoch, TopicId},
};

fn nameless(mark: Option<Mark>) -> Bench {
    let mut anchored = anchor(100, 50);
    anchored.source_topic_id = TopicId::ZERO;
    anchored.notes.mark = mark;
    let mut spec = spec(Some(anchored));
    spec.source_topic_id = TopicId::ZERO;
    let mut bench = Bench::new(settings(), spec);
    bench.locate(TargetEnds { start: 0, high_watermark: 50, end: 50 }, known(100));
    assert_eq!(bench.machine.fetch_want(bench.now, 1), None, "not before it is known to be the same topic");
    bench
}

fn mark_of(bytes: &bytes::Bytes) -> Mark {
    let header = header(bytes);
    Mark { base_offset: header.base_offset, crc: header.crc }
}

#[test]
fn a_topic_without_id_is_known_by_a_batch_that_was_copied() {
    let copied = Make::plain(95, 5).bytes();
    let mark = Some(mark_of(&copied));
    let larger = source(0, 500);
    // What may stand there, and whether it is the same topic.
    let whole = header(&copied);
    let other = header(&Make { numbers: vec![1; 5], ..Make::plain(95, 5) }.bytes());
    let straddles = header(&Make::plain(93, 5).bytes());
    let thin = header(&thinned(&copied, |index| index == 4));
    let behind = header(&Make::plain(100, 5).bytes());
    let cases = [
        (Some(whole), true),
        (Some(other), false),
        (Some(straddles), false),
        (Some(thin), true),
        (Some(behind), true),
        (None, true),
    ];
    for (found, same) in cases {
        let mut bench = nameless(mark);
        history(&mut bench, larger, Some((3, 500)), found);
        if same {
            assert!(bench.machine.fetch_want(bench.now, 1).is_some(), "{found:?}");
        } else {
            let reason = StopReason::SourceRecreated { anchored: TopicId::ZERO, found: TopicId::ZERO, position: 100 };
            assert_eq!(bench.reason(), reason, "{found:?}");
        }
    }
}

#[test]
fn a_topic_without_id_whose_leader_epoch_went_back_is_another_one() {
    let mut bench = nameless(None);
    let ends = SourceEnds { leader_epoch: LeaderEpoch(2), ..source(0, 500) };
    history(&mut bench, ends, Some((2, 500)), None);
    assert_eq!(bench.reason().code(), "source-recreated");
}

#[test]
fn a_topic_without_id_that_ends_earlier_is_another_one_unless_there_was_an_election() {
    let mut bench = nameless(None);
    history(&mut bench, source(0, 80), Some((3, 80)), None);
    assert_eq!(bench.reason().code(), "source-recreated");
    decide(&mut bench);
    bench.locate(target(50), known(100));
    goes_on_at(&mut bench, 0, 50, 100, &Make::plain(0, 2));
    let mut bench = nameless(None);
    history(&mut bench, SourceEnds { leader_epoch: LeaderEpoch(4), ..source(0, 80) }, Some((3, 80)), None);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 100, end: 80 });
}

#[test]
fn a_topic_without_id_is_looked_at_again_after_every_trouble_with_its_source() {
    let mut bench = nameless(None);
    history(&mut bench, source(0, 500), Some((3, 500)), None);
    bench.fetch(&[Make::plain(100, 2).bytes()]);
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let (anchor, _) = bench.machine.anchor().unwrap();
    assert_eq!(anchor.notes.mark, Some(mark_of(&Make::plain(100, 2).bytes())));
    bench.machine.handle_fetch_error(bench.now, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let other = header(&Make { numbers: vec![7, 7], ..Make::plain(100, 2) }.bytes());
    history(&mut bench, source(0, 500), Some((3, 500)), Some(other));
    assert_eq!(bench.reason().code(), "source-recreated");
}
