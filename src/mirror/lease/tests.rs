//! The rows of S13 and its consequences, one by one. The interplay is in `simulation`.

mod bench;

use std::time::Duration;

use bytes::Bytes;

use super::*;
use bench::Bench;

const S: Duration = Duration::from_secs(10);

fn every(step: u8, first: u8) -> SlotSet {
    (0..SLOTS).filter(|slot| slot % step == first).collect()
}

fn is_join(action: &Action, id: &str) -> bool {
    matches!(action, Action::Join { member_id, .. } if member_id == id)
}

#[test]
fn a_first_worker_owns_all_and_then_only_beats() {
    let mut bench = Bench::new();
    assert!(matches!(bench.lease.state(bench.now), LeaseState::Joining { .. }));
    let actions = bench.find(1);
    assert!(is_join(&actions[0], "") && actions.len() == 1);
    assert_eq!(bench.lease.commit_credentials(), None);
    assert!(matches!(bench.answer_join(Bench::joined(1, "m1", true))[..], [Action::Sync { generation: 1, .. }]));
    assert_eq!((bench.lease.proof_until(), bench.lease.commit_credentials()), (None, None));
    let actions = bench.answer_sync(0, None);
    assert!(matches!(&actions[..], [Action::Own(slots), Action::Heartbeat { .. }] if *slots == SlotSet::ALL));
    bench.answer_heartbeat(0);
    let credentials = Credentials { generation: 1, member_id: "m1".to_owned() };
    assert_eq!(bench.lease.commit_credentials(), Some(credentials));
    for _ in 0..100 {
        assert_eq!(bench.beat(0), []);
    }
    assert_eq!(bench.lease.proof_until(), Some(bench.now + S - Duration::from_secs(1)));
    let held = LeaseState::Held { slots: SlotSet::ALL, revoking: SlotSet::EMPTY };
    assert_eq!(bench.lease.state(bench.now), held);
}

#[test]
fn error_82_anywhere_stops_for_good() {
    let by_heartbeat = |bench: &mut Bench| bench.beat(82);
    let by_commit = |bench: &mut Bench| bench.commit(82);
    let by_join = |bench: &mut Bench| {
        bench.beat(27);
        bench.refuse_join(82)
    };
    let by_sync = |bench: &mut Bench| {
        bench.beat(27);
        bench.answer_join(Bench::joined(2, "m1", true));
        bench.answer_sync(82, Some(Bytes::new()))
    };
    type Way = dyn Fn(&mut Bench) -> Vec<Action>;
    let ways: [&Way; 4] = [&by_heartbeat, &by_commit, &by_join, &by_sync];
    for way in ways {
        let mut bench = Bench::settled();
        assert!(matches!(way(&mut bench)[..], [Action::Stop(LeaseLost::TakenOver { .. })]));
        let text = bench.stopped().unwrap().to_string();
        assert!(text.contains("instance id w") && text.contains("state directory"), "{text}");
        // D
        assert_eq!((bench.lease.proof_until(), bench.lease.commit_credentials()), (None, None));
        assert_eq!((bench.lease.slots(), bench.lease.poll_timeout()), (SlotSet::EMPTY, None));
        bench.lease.handle_connection_lost(bench.now, Link::Work);
        bench.lease.handle_revoked(bench.now, SlotSet::ALL);
        bench.lease.handle_nothing_to_commit(bench.now);
        bench.lease.leave(bench.now);
        assert_eq!(bench.pass(S * 10), []);
    }
}

#[test]
fn an_expired_worker_tries_its_id_gives_up_all_and_only_then_joins_anew() {
    let mut bench = Bench::settled();
    let actions = bench.beat(25);
    assert!(is_join(&actions[0], "m1") && actions.len() == 1);
    assert_eq!((bench.lease.proof_until(), bench.lease.commit_credentials()), (None, None));
    let actions = bench.refuse_join(25);
    let lost = Action::Revoke { slots: SlotSet::ALL, why: RevokeReason::Lost };
    assert_eq!(actions, [lost]);
    assert_eq!(bench.pass(S), [], "not before all is given up");
    bench.lease.handle_revoked(bench.now, every(2, 0));
    assert_eq!(bench.poll(), []);
    bench.lease.handle_revoked(bench.now, every(2, 1));
    let actions = bench.poll();
    assert!(is_join(&actions[0], ""));
    assert_eq!(bench.last_join().2, MemberMetadata { owned: SlotSet::EMPTY, generation: -1 });
}

#[test]
fn an_old_commits_82_after_joining_anew_is_our_own_doing() {
    let mut bench = Bench::settled();
    let old = bench.lease.commit_credentials().unwrap();
    bench.beat(25);
    bench.refuse_join(25);
    bench.lease.handle_revoked(bench.now, SlotSet::ALL);
    bench.poll();
    bench.lease.handle_commit(bench.now, bench.now, CommitAnswer { credentials: old, error_code: 82 });
    assert_eq!(bench.stopped(), None);
}

#[test]
fn error_22_is_silence_and_a_rejoin_with_the_known_id() {
    let mut bench = Bench::settled();
    let actions = bench.beat(22);
    assert!(is_join(&actions[0], "m1"));
    assert_eq!(bench.lease.proof_until(), None, "the group went on without us");
    assert!(matches!(bench.lease.state(bench.now), LeaseState::Lapsed { .. }));
    // Its answer alone proves nothing for the slots; the assignment does.
    bench.answer_join(Bench::joined(5, "m1", false));
    assert_eq!(bench.lease.proof_until(), None);
    let actions = bench.answer_sync(0, Some(Assignment::new("m1", every(2, 0)).encode()));
    assert_eq!(actions[0], Action::Revoke { slots: every(2, 1), why: RevokeReason::Lost });
    assert_eq!(bench.lease.proof_until(), None, "somebody else may have started on them");
    bench.lease.handle_revoked(bench.now, every(2, 1));
    assert!(bench.lease.proof_until().is_some());
}

#[test]
fn work_and_commits_go_on_through_a_rebalance() {
    let mut bench = Bench::settled();
    let actions = bench.beat(27);
    assert!(is_join(&actions[0], "m1"));
    assert!(matches!(bench.lease.state(bench.now), LeaseState::Rebalancing { .. }));
    let before = bench.lease.proof_until();
    bench.beat(27);
    assert_eq!(bench.lease.proof_until(), before, "27 renews nothing");
    bench.commit(0);
    assert_eq!(bench.lease.proof_until(), Some(bench.now + S - Duration::from_secs(1)));
    // Without commits of its own accord it asks for one before the proof ends.
    let mut asked = false;
    for _ in 0..6 {
        bench.now += Duration::from_secs(1);
        bench.lease.handle_timeout(bench.now);
        asked |= bench.poll().iter().any(|action| matches!(action, Action::ProveByCommit { .. }));
        bench.answer_heartbeat(27);
    }
    assert!(asked);
    bench.commit(0);
    // Until JoinGroup answers.
    bench.answer_join(Bench::joined(2, "m1", true));
    assert_eq!(bench.lease.commit_credentials(), None, "22 and 27 until the assignment is there");
    assert_eq!(
        bench.lease.proof_until(),
        Some(bench.now + S - Duration::from_secs(1)),
        "the leader knows what we hold"
    );
}

#[test]
fn a_slot_is_given_up_before_it_moves_and_the_rejoin_says_so() {
    let mut bench = Bench::settled();
    bench.beat(27);
    bench.answer_join(Bench::joined(2, "m1", false));
    let actions = bench.answer_sync(0, Some(Assignment::new("m1", every(2, 0)).encode()));
    assert_eq!(actions[0], Action::Revoke { slots: every(2, 1), why: RevokeReason::Moved });
    assert_eq!(bench.lease.slots(), SlotSet::ALL, "in flight still");
    bench.answer_heartbeat(0);
    // A rebalance meanwhile tells the truth about it.
    bench.beat(27);
    assert_eq!(bench.last_join().2, MemberMetadata { owned: SlotSet::ALL, generation: 2 });
    bench.answer_join(Bench::joined(3, "m1", false));
    bench.answer_sync(0, Some(Assignment::new("m1", every(2, 0)).encode()));
    bench.lease.handle_revoked(bench.now, every(2, 1));
    let actions = bench.poll();
    assert!(actions.iter().any(|action| is_join(action, "m1")));
    assert_eq!(bench.last_join().2, MemberMetadata { owned: every(2, 0), generation: 3 });
    bench.answer_join(Bench::joined(4, "m1", false));
    let actions = bench.answer_sync(0, Some(Assignment::new("m1", every(2, 0)).encode()));
    assert!(matches!(actions[..], [Action::Heartbeat { .. }]), "at rest: {actions:?}");
}

#[test]
fn a_restart_takes_over_the_old_assignment_and_rejoins_once() {
    // Below v9 the former leader is told that another leads; with v9 to skip the assignment.
    for (leads, skip_assignment) in [(false, false), (true, true)] {
        let mut bench = Bench::new();
        bench.find(1);
        bench.answer_join(JoinAnswer { skip_assignment, ..Bench::joined(7, "m2", leads) });
        let actions = bench.answer_sync(0, Some(Assignment::new("m1", every(3, 0)).encode()));
        assert_eq!(actions[0], Action::Own(every(3, 0)));
        assert!(is_join(&actions[1], "m2"), "{actions:?}");
        assert_eq!(bench.last_join().2, MemberMetadata { owned: every(3, 0), generation: 7 });
        bench.answer_join(Bench::joined(8, "m2", true));
        bench.answer_sync(0, None);
        bench.answer_heartbeat(0);
        assert_eq!(bench.beat(0), []);
        assert_eq!(bench.lease.slots(), SlotSet::ALL);
    }
}

#[test]
fn an_id_the_coordinator_forgot_unwritten_is_no_takeover() {
    let mut bench = Bench::new();
    bench.find(1);
    bench.answer_join(Bench::joined(7, "m2", false));
    bench.lease.handle_connection_lost(bench.now, Link::Join);
    bench.pass(Duration::from_secs(1));
    let actions = bench.find(1);
    assert!(actions.iter().any(|action| is_join(action, "m2")));
    assert!(is_join(bench.refuse_join(82).last().unwrap(), ""));
    // Without a lost coordinator it is one.
    let mut bench = Bench::new();
    bench.find(1);
    bench.answer_join(Bench::joined(7, "m2", false));
    assert_eq!(bench.answer_sync(82, Some(Bytes::new())).len(), 1);
    assert!(matches!(bench.stopped(), Some(LeaseLost::TakenOver { .. })));
}

#[test]
fn after_a_lost_coordinator_a_heartbeat_proves_nothing_until_a_commit() {
    for code in [14, 15, 16] {
        let mut bench = Bench::settled();
        let before = bench.lease.proof_until();
        assert_eq!(bench.beat(code), [], "not at once");
        assert!(matches!(
            bench.lease.state(bench.now),
            LeaseState::CoordinatorUnavailable { error_code: Some(seen), lapsed: false, .. } if seen == code
        ));
        bench.pass(Duration::from_secs(1));
        let actions = bench.find(1);
        assert!(matches!(actions[..], [Action::ProveByCommit { .. }, Action::Heartbeat { .. }]), "{actions:?}");
        bench.answer_heartbeat(0);
        assert_eq!(bench.lease.proof_until(), before);
        bench.commit(0);
        bench.beat(0);
        assert_eq!(bench.lease.proof_until(), Some(bench.now + S - Duration::from_secs(1)));
        assert!(matches!(bench.lease.state(bench.now), LeaseState::Held { .. }));
    }
}

#[test]
fn a_lapse_ends_with_a_commit_and_a_heartbeat_in_the_same_generation() {
    let mut bench = Bench::settled();
    let actions = bench.pass(S * 2); // asleep
    assert!(matches!(actions[..], [Action::ProveByCommit { .. }, Action::Heartbeat { .. }]), "{actions:?}");
    assert!(matches!(bench.lease.state(bench.now), LeaseState::Lapsed { .. }));
    bench.answer_heartbeat(0);
    assert!(bench.lease.proof_until().unwrap() < bench.now);
    bench.commit(0);
    let actions = bench.pass(Duration::ZERO);
    assert!(actions.is_empty() || matches!(actions[..], [Action::Heartbeat { .. }]));
    bench.answer_heartbeat(0);
    assert!(bench.lease.proof_until().unwrap() > bench.now);
    assert_eq!(bench.lease.slots(), SlotSet::ALL);
}

#[test]
fn without_an_anchor_to_commit_a_rejoin_proves() {
    let mut bench = Bench::settled();
    bench.lease.handle_connection_lost(bench.now, Link::Work);
    bench.pass(Duration::from_secs(1));
    bench.find(1);
    bench.lease.handle_nothing_to_commit(bench.now);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.last_join().1, "m1");
    bench.answer_join(Bench::joined(2, "m1", true));
    bench.answer_sync(0, None);
    bench.answer_heartbeat(0);
    assert_eq!(bench.lease.proof_until(), Some(bench.now + S - Duration::from_secs(1)));
}

#[test]
fn an_idle_join_connection_may_close() {
    let mut bench = Bench::settled();
    bench.lease.handle_connection_lost(bench.now, Link::Join);
    assert_eq!(bench.poll(), []);
    assert_eq!(bench.beat(0), []);
}

#[test]
fn refusals_stop_or_wait_with_a_remedy() {
    for (code, remedy) in
        [(26, "group.min.session.timeout.ms"), (23, "not towpath"), (24, "error 24"), (35, "Kafka 2.3")]
    {
        let mut bench = Bench::new();
        bench.find(1);
        assert!(matches!(bench.refuse_join(code)[..], [Action::Stop(_)]));
        let text = bench.stopped().unwrap().to_string();
        assert!(text.contains(remedy), "{text}");
    }
    for (code, words) in [(30, "READ"), (81, "group.max.size"), (-1, "protocol guide")] {
        let mut bench = Bench::new();
        bench.find(1);
        assert_eq!(bench.refuse_join(code), []);
        let LeaseState::Refused { error_code, remedy } = bench.lease.state(bench.now) else { panic!("{code}") };
        assert!(error_code == code && remedy.contains(words), "{remedy}");
        let actions = bench.pass(S);
        assert!(is_join(&actions[0], ""), "tried again");
        bench.answer_join(Bench::joined(1, "m1", true));
        assert!(!matches!(bench.lease.state(bench.now), LeaseState::Refused { .. }));
    }
}

#[test]
fn a_demanded_member_id_is_taken() {
    let mut bench = Bench::new();
    bench.find(1);
    let answer = JoinAnswer { error_code: 79, member_id: "given".to_owned(), ..JoinAnswer::default() };
    assert!(is_join(&bench.answer_join(answer)[0], "given"));
}

#[test]
fn strange_members_are_refused_by_name() {
    let newer = Bytes::from_static(&[0, 2, 9]);
    for (metadata, words) in [(newer, "newer: lease metadata has version 2"), (Bytes::new(), "not towpath")] {
        let mut bench = Bench::new();
        bench.find(1);
        let (member_id, instance_id) = ("x".to_owned(), "stranger".to_owned());
        let members = vec![JoinedMember { member_id, instance_id, metadata }];
        bench.answer_join(JoinAnswer { members, ..Bench::joined(1, "m1", true) });
        let text = bench.stopped().unwrap().to_string();
        assert!(text.contains(words) && text.contains("stranger"), "{text}");
    }
    let mut bench = Bench::new();
    bench.find(1);
    bench.answer_join(JoinAnswer { protocol_name: "range".to_owned(), ..Bench::joined(1, "m1", false) });
    assert!(matches!(bench.stopped(), Some(LeaseLost::ForeignMember { .. })));
}

#[test]
fn leaving_gives_up_all_then_says_goodbye() {
    let mut bench = Bench::settled();
    bench.lease.leave(bench.now);
    let revoke = Action::Revoke { slots: SlotSet::ALL, why: RevokeReason::Moved };
    assert_eq!(bench.poll(), [revoke]);
    assert!(bench.lease.commit_credentials().is_some(), "for the last anchors");
    assert_eq!(bench.beat(27), [], "no rejoin any more");
    bench.lease.handle_revoked(bench.now, SlotSet::ALL);
    let actions = bench.poll();
    assert!(
        matches!(&actions[..], [Action::Leave { member_id, .. }, Action::Stop(LeaseLost::Left { .. })] if member_id == "m1")
    );
    let mut bench = Bench::new();
    bench.lease.leave(bench.now);
    assert!(matches!(bench.poll()[..], [Action::Stop(LeaseLost::Left { .. })]), "nothing to leave");
}

#[test]
fn silence_hangs_up_and_asks_for_the_coordinator() {
    let mut bench = Bench::settled();
    bench.pass(Duration::from_secs(1));
    let actions = bench.pass(Duration::from_secs(4));
    assert_eq!(actions, [Action::Disconnect(Link::Work)]);
    assert!(matches!(bench.pass(Duration::from_secs(1))[..], [Action::FindCoordinator { .. }]));
    let actions = bench.find(2);
    assert_eq!(actions[..2], [Action::Disconnect(Link::Join), Action::Disconnect(Link::Work)], "it moved");
}

#[test]
fn settings_are_checked() {
    let new = |seconds| LeaseConfig::new("g", "w", Duration::from_secs(seconds));
    assert!(matches!(new(1), Err(LeaseConfigError::SessionTimeout(_))));
    assert!(matches!(new(1801), Err(LeaseConfigError::SessionTimeout(_))));
    assert!(matches!(LeaseConfig::new("g", "", S), Err(LeaseConfigError::NoInstanceId)));
    let config = new(10).unwrap();
    let short = config.clone().with_rebalance_timeout(Duration::from_secs(9));
    assert!(matches!(short, Err(LeaseConfigError::RebalanceTimeout { .. })));
    assert!(config.with_rebalance_timeout(Duration::from_secs(10)).is_ok());
    assert_eq!(new(2).unwrap().margin(), Duration::from_millis(500));
    assert_eq!(new(30).unwrap().margin(), Duration::from_secs(3));
    assert_eq!(lease_group("a", "b"), "__towpath.a.b");
}

#[test]
fn only_a_worker_that_is_surely_alone_has_no_company() {
    let mut bench = Bench::new();
    assert!(!bench.lease.has_company(), "not in the group yet");
    bench.find(1);
    bench.answer_join(Bench::joined(1, "m1", true));
    bench.answer_sync(0, None);
    bench.answer_heartbeat(0);
    assert!(!bench.lease.has_company());
    bench.beat(27);
    assert!(bench.lease.has_company(), "somebody joins or leaves");
    bench.answer_join(Bench::joined(2, "m1", false));
    bench.answer_sync(0, Some(Assignment::new("m1", every(2, 0)).encode()));
    assert!(bench.lease.has_company(), "somebody else has the other half");
    bench.lease.handle_revoked(bench.now, every(2, 1));
    bench.lease.leave(bench.now);
    bench.poll();
    bench.lease.handle_revoked(bench.now, every(2, 0));
    assert!(matches!(bench.poll()[..], [Action::Leave { .. }, Action::Stop(LeaseLost::Left { .. })]));
    assert!(!bench.lease.has_company());
}
