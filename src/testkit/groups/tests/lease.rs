//! S13: leases by membership.

use super::*;

#[test]
fn the_first_member_of_a_group_waits_three_seconds() {
    for version in EVERY {
        let mut kit = Kit::new(version);
        let ticket = kit.ask_join(&Member::fixed("a"));
        kit.pass(secs(2.999));
        assert!(kit.joined(ticket).is_none());
        kit.pass(secs(0.001));
        let answer = kit.joined(ticket).expect("answered after the delay");
        assert_eq!((answer.error_code, answer.generation_id, answer.members.len()), (0, 1, 1), "{version:?}");
    }
}

#[test]
fn a_second_member_after_a_second_and_a_half_makes_it_six() {
    for version in EVERY {
        let mut kit = Kit::new(version);
        let first = kit.ask_join(&Member::fixed("a"));
        kit.pass(secs(1.5));
        let second = kit.ask_join(&Member::fixed("b"));
        kit.pass(secs(4.499));
        assert!(kit.joined(first).is_none() && kit.joined(second).is_none());
        kit.pass(secs(0.001));
        assert_eq!(kit.joined(first).map(|answer| answer.members.len()), Some(2), "{version:?}");
        assert_eq!(kit.joined(second).map(|answer| answer.members.len()), Some(0), "{version:?}");
    }
}

#[test]
fn a_group_that_became_empty_waits_again() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    let mut one = Member::fixed("a");
    kit.form(&mut [&mut one]);
    kit.pass(secs(6.0));
    assert_eq!(kit.state(), "Empty");
    let again = Member { id: StrBytes::default(), ..one };
    let ticket = kit.ask_join(&again);
    kit.pass(secs(2.9));
    assert!(kit.joined(ticket).is_none());
    kit.pass(secs(0.1));
    // One more for the group without members.
    assert_eq!(kit.joined(ticket).map(|answer| answer.generation_id), Some(3));
}

#[test]
fn session_timeouts_have_bounds() {
    for (millis, code) in [(5999, 26), (6000, 0), (1_800_000, 0), (1_800_001, 26)] {
        let mut kit = Kit::prompt(BrokerVersion::V3_9_2);
        let ticket = kit.ask_join(&Member { session: Duration::from_millis(millis), ..Member::fixed("a") });
        kit.wait(ticket);
        assert_eq!(kit.joined(ticket).map(|answer| answer.error_code), Some(code), "{millis} ms");
    }
}

#[test]
fn a_dynamic_member_comes_twice() {
    let mut kit = Kit::prompt(BrokerVersion::V2_8_2);
    let mut one = Member::dynamic();
    let ticket = kit.ask_join(&one);
    assert_eq!(kit.take_join(ticket, &mut one).error_code, 79);
    assert!(!one.id.is_empty());
    let ticket = kit.ask_join(&one);
    kit.wait(ticket);
    assert_eq!(kit.take_join(ticket, &mut one).error_code, 0);
}

#[test]
fn a_new_process_takes_the_instance_over_without_a_rebalance() {
    for version in EVERY {
        let mut kit = Kit::prompt(version);
        let (mut one, mut two) = (Member::fixed("a"), Member::fixed("b"));
        kit.form(&mut [&mut one, &mut two]);
        // Other metadata bytes make no difference.
        let mut new = Member { id: StrBytes::default(), metadata: Bytes::from_static(b"other"), ..two.clone() };
        let ticket = kit.ask_join(&new);
        let answer = kit.take_join(ticket, &mut new);
        assert_eq!((answer.error_code, answer.generation_id), (0, two.generation));
        assert!(new.id != two.id && answer.members.is_empty());
        let ticket = kit.ask_sync(&new, &[]);
        assert_eq!(kit.synced(ticket), Some((0, &b"second"[..])));
        assert_eq!(kit.heartbeat(&one), 0, "the others notice nothing");
        // The old process: 82 with the instance in the request, 25 without; with generation -1 too.
        let bare = Member { instance: None, ..two.clone() };
        assert_eq!((kit.heartbeat(&two), kit.heartbeat(&bare)), (82, 25));
        assert_eq!((kit.commit_as(&two), kit.commit_as(&bare)), (82, 25));
        let (two, bare) = (Member { generation: -1, ..two }, Member { generation: -1, ..bare });
        assert_eq!((kit.commit_as(&two), kit.commit_as(&bare)), (82, 25));
        let ticket = kit.ask_join(&two);
        assert_eq!(kit.joined(ticket).map(|answer| answer.error_code), Some(82));
    }
}

#[test]
fn a_leader_taken_over_learns_of_it_only_by_version_nine() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let mut one = Member::fixed("a");
    kit.form(&mut [&mut one]);
    let mut new = Member { id: StrBytes::default(), ..one.clone() };
    let ticket = kit.ask_join(&new);
    let answer = kit.take_join(ticket, &mut new);
    assert!(answer.leader != new.id && answer.members.is_empty() && !answer.skip_assignment);
    let mut newest = Member { id: StrBytes::default(), join_version: 9, ..new };
    let ticket = kit.ask_join(&newest);
    let answer = kit.take_join(ticket, &mut newest);
    assert!(answer.leader == newest.id && answer.members.len() == 1 && answer.skip_assignment);
}

#[test]
fn a_takeover_before_the_sync_makes_a_new_generation() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let mut one = Member::fixed("a");
    let ticket = kit.ask_join(&one);
    kit.wait(ticket);
    assert_eq!(kit.take_join(ticket, &mut one).generation_id, 1);
    let mut new = Member { id: StrBytes::default(), ..one };
    let ticket = kit.ask_join(&new);
    assert_eq!(kit.take_join(ticket, &mut new).generation_id, 2);
}

#[test]
fn a_takeover_answers_the_join_that_waits_with_82() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    let waiting = kit.ask_join(&Member::fixed("a"));
    let ticket = kit.ask_join(&Member::fixed("a"));
    assert_eq!(kit.joined(waiting).map(|answer| answer.error_code), Some(82));
    kit.pass(secs(3.0));
    assert_eq!(kit.joined(ticket).map(|answer| answer.error_code), Some(0));
}

#[test]
fn a_leader_that_rejoins_rebalances_and_a_follower_only_with_other_bytes() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let (mut one, mut two) = (Member::fixed("a"), Member::fixed("b"));
    kit.form(&mut [&mut one, &mut two]);
    let ticket = kit.ask_join(&two);
    assert_eq!(kit.joined(ticket).map(|answer| answer.generation_id), Some(two.generation));
    two.metadata = Bytes::from_static(b"other");
    let changed = kit.ask_join(&two);
    assert!(kit.joined(changed).is_none());
    assert_eq!((kit.heartbeat(&one), kit.commit_as(&one)), (27, 0), "work goes on until the others join");
    // Also while the own JoinGroup is pending, on another connection.
    assert_eq!((kit.heartbeat(&two), kit.commit_as(&two)), (27, 0));
    let ticket = kit.ask_join(&one);
    let old = one.clone();
    assert_eq!(kit.take_join(ticket, &mut one).generation_id, old.generation + 1);
    assert_eq!((kit.commit_as(&one), kit.commit_as(&old)), (27, 22), "between JoinGroup and the leader's SyncGroup");
    let ticket = kit.ask_sync(&one, &[]);
    assert_eq!(kit.synced(ticket).map(|answer| answer.0), Some(0));
    kit.take_join(changed, &mut two);
    assert_eq!(kit.commit_as(&two), 0, "even for one that has not synced yet");
    let leader = kit.ask_join(&one);
    assert!(kit.joined(leader).is_none());
}

#[test]
fn a_dead_member_is_noticed_after_its_session() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let (mut one, mut two) = (Member::fixed("a"), Member::fixed("b"));
    kit.form(&mut [&mut one, &mut two]);
    kit.pass(secs(5.9));
    assert_eq!(kit.heartbeat(&one), 0);
    kit.pass(secs(0.1));
    assert_eq!(kit.heartbeat(&one), 27);
    assert_eq!(kit.heartbeat(&two), 25);
}

#[test]
fn a_member_that_never_rejoins_is_passed_over_after_the_rebalance_timeout() {
    for version in EVERY {
        for dynamic in [false, true] {
            let mut kit = Kit::prompt(version);
            let times = Member { session: secs(10.0), rebalance: secs(3.0), ..Member::fixed("a") };
            let mut one = times.clone();
            let mut two = Member { instance: (!dynamic).then(|| text("b")), ..times };
            if dynamic {
                let ticket = kit.ask_join(&two);
                two.id = kit.joined(ticket).expect("79").member_id.clone();
            }
            kit.form(&mut [&mut one, &mut two]);
            let ticket = kit.ask_join(&one);
            kit.pass(secs(2.999));
            assert!(kit.joined(ticket).is_none());
            kit.pass(secs(0.001));
            let answer = kit.take_join(ticket, &mut one);
            assert_eq!(answer.error_code, 0);
            let ticket = kit.ask_sync(&one, &[(&one, "all")]);
            assert_eq!(kit.synced(ticket), Some((0, &b"all"[..])));
            if dynamic {
                assert_eq!((answer.members.len(), kit.heartbeat(&two)), (1, 25));
            } else {
                assert_eq!((answer.members.len(), kit.heartbeat(&two)), (2, 22), "still listed");
                let ticket = kit.ask_join(&two);
                assert_eq!(kit.joined(ticket).map(|answer| answer.generation_id), Some(one.generation));
                assert_eq!(kit.heartbeat(&one), 0, "no rebalance");
            }
        }
    }
}

#[test]
fn a_commit_counts_as_a_heartbeat_and_so_does_waiting() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let mut one = Member::fixed("a");
    kit.form(&mut [&mut one]);
    for _ in 0..3 {
        kit.pass(secs(3.0));
        assert_eq!(kit.commit_as(&one), 0);
    }
    assert_eq!(kit.heartbeat(&one), 0);
    let mut two = Member { rebalance: secs(60.0), ..Member::fixed("b") };
    let ticket = kit.ask_join(&two);
    for _ in 0..7 {
        kit.pass(secs(3.0));
        assert_eq!(kit.heartbeat(&one), 27);
    }
    kit.ask_join(&one);
    assert_eq!(kit.take_join(ticket, &mut two).error_code, 0, "it waited for 21 s, longer than its session");
}

#[test]
fn members_generation_and_assignment_survive_a_restart_of_the_coordinator() {
    for version in EVERY {
        let settings =
            GroupSettings { initial_rebalance_delay: secs(0.01), load_time: secs(0.2), ..GroupSettings::default() };
        let mut kit = Kit::with(version, settings);
        let (mut one, mut two) = (Member::fixed("a"), Member::fixed("b"));
        kit.form(&mut [&mut one, &mut two]);
        // A rebalance that was not over is as if it had not begun.
        let waiting = kit.ask_join(&one);
        kit.pass(secs(3.0));
        kit.coordinator.handle_restart(kit.now);
        let nobody = Member { id: text("nobody"), generation: 99, instance: None, ..one.clone() };
        assert_eq!((kit.heartbeat(&nobody), kit.commit_as(&one)), (0, 14), "zero for anybody while it loads");
        let ticket = kit.ask_join(&one);
        assert_eq!(kit.joined(ticket).map(|answer| answer.error_code), Some(14));
        kit.pass(secs(0.2));
        assert_eq!((kit.heartbeat(&one), kit.heartbeat(&two), kit.heartbeat(&nobody)), (0, 0, 25));
        let ticket = kit.ask_sync(&two, &[]);
        assert_eq!(kit.synced(ticket), Some((0, &b"second"[..])));
        kit.pass(secs(5.9));
        assert_eq!(kit.heartbeat(&one), 0, "session time starts anew");
        assert!(kit.joined(waiting).is_none());
    }
}

#[test]
fn an_empty_group_takes_a_simple_commit_from_a_member_that_expired() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let mut one = Member::fixed("a");
    kit.form(&mut [&mut one]);
    kit.pass(secs(7.5));
    assert_eq!((kit.heartbeat(&one), kit.commit_as(&one)), (25, 25));
    assert_eq!(kit.commit_as(&Member { generation: -1, ..one.clone() }), 0, "with instance id too");
    assert_eq!(kit.commit_as(&Member { generation: -1, instance: None, ..one }), 0);
}

#[test]
fn a_forgotten_join_leaves_its_member_waiting() {
    let mut kit = Kit::prompt(BrokerVersion::V4_3_1);
    let (mut one, mut two) = (Member::fixed("a"), Member::fixed("b"));
    kit.form(&mut [&mut one, &mut two]);
    let gone = kit.ask_join(&one);
    kit.coordinator.forget(gone);
    let ticket = kit.ask_join(&two);
    assert_eq!(kit.take_join(ticket, &mut two).error_code, 0);
    assert!(kit.joined(gone).is_none());
}

/// Not a row of S13: members that never ask for their assignment, which Kafka 3.x and later do not wait for.
#[test]
fn a_leader_that_never_syncs_is_expelled_since_3() {
    for version in EVERY {
        let mut kit = Kit::prompt(version);
        let times = Member { session: secs(60.0), rebalance: secs(10.0), ..Member::fixed("a") };
        let (mut one, mut two) = (times.clone(), Member { instance: Some(text("b")), ..times });
        let tickets = [kit.ask_join(&one), kit.ask_join(&two)];
        kit.wait(tickets[1]);
        kit.take_join(tickets[0], &mut one);
        kit.take_join(tickets[1], &mut two);
        let ticket = kit.ask_sync(&two, &[]);
        kit.pass(secs(10.0));
        let expected = (version != BrokerVersion::V2_8_2).then_some((27, &b""[..]));
        assert_eq!(kit.synced(ticket), expected, "{version:?}");
    }
}
