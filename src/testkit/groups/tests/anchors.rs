//! S8: offsets of a group.

use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;

use super::*;

fn nobody() -> Member {
    Member::dynamic()
}

#[test]
fn a_simple_commit_makes_an_empty_group() {
    for version in EVERY {
        let mut kit = Kit::new(version);
        assert_eq!(kit.state(), "Dead");
        assert_eq!(kit.commit(&nobody(), &[("t", 0, 7, "where"), ("t", 1, 8, "")]), [0, 0]);
        assert_eq!(kit.state(), "Empty");
        assert_eq!(kit.offsets(), [7, 8]);
    }
}

#[test]
fn metadata_has_4096_characters_not_bytes() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    let (fits, wide, long) = ("x".repeat(4096), "é".repeat(4096), "x".repeat(4097));
    assert_eq!(kit.commit(&nobody(), &[("t", 0, 1, &fits), ("t", 1, 2, &long)]), [0, 12]);
    assert_eq!(kit.commit(&nobody(), &[("t", 1, 3, &wide)]), [0]);
    assert_eq!(kit.offsets(), [1, 3]);
}

#[test]
fn unknown_topics_and_partitions_fail_alone() {
    let mut kit = Kit::new(BrokerVersion::V3_9_2);
    assert_eq!(
        kit.commit(&nobody(), &[("u", 0, 1, ""), ("t", 2, 1, ""), ("t", -1, 1, ""), ("t", 0, 1, "")]),
        [3, 3, 3, 0]
    );
}

#[test]
fn committed_offsets_are_not_checked() {
    let mut kit = Kit::new(BrokerVersion::V2_8_2);
    assert_eq!(kit.commit(&nobody(), &[("t", 0, 1_000_000_000_000_000, ""), ("t", 1, -5, "")]), [0, 0]);
    assert_eq!(kit.offsets(), [1_000_000_000_000_000, -5]);
}

#[test]
fn a_memberless_group_knows_no_members() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    assert_eq!(kit.commit_as(&nobody()), 0);
    assert_eq!(kit.commit_as(&Member { generation: 4, ..nobody() }), 25);
    assert_eq!(kit.commit_as(&Member { generation: 0, id: text("who"), ..nobody() }), 25);
}

#[test]
fn commits_of_members_are_checked_and_those_of_outsiders_refused() {
    for version in EVERY {
        let mut kit = Kit::prompt(version);
        let mut one = Member::fixed("a");
        kit.form(&mut [&mut one]);
        assert_eq!(kit.commit_as(&one), 0);
        assert_eq!(kit.commit_as(&Member { generation: one.generation + 1, ..one.clone() }), 22);
        assert_eq!(kit.commit_as(&Member { id: text("who"), instance: None, ..one }), 25);
        assert_eq!(kit.commit_as(&nobody()), 25);
    }
}

#[test]
fn many_groups_are_fetched_at_once() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.commit(&nobody(), &[("t", 1, 5, "note")]);
    let wanted = ["nowhere", GROUP].map(|name| OffsetFetchRequestGroup::default().with_group_id(GroupId(text(name))));
    let wanted = wanted.map(|group| group.with_topics(None)).to_vec();
    let ticket = kit.send(8, GroupRequest::OffsetFetch(OffsetFetchRequest::default().with_groups(wanted)));
    let Some(GroupResponse::OffsetFetch(answer)) = kit.answers.get(&ticket) else {
        panic!("not an offset fetch");
    };
    assert_eq!(answer.groups.iter().map(|group| group.topics.len()).collect::<Vec<_>>(), [0, 1]);
    let partition = &answer.groups[1].topics[0].partitions[0];
    assert_eq!((partition.partition_index, partition.committed_offset), (1, 5));
    assert_eq!(partition.metadata.as_ref().map(StrBytes::as_str), Some("note"));
}

#[test]
fn offsets_of_a_deleted_topic_are_gone_at_once() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.commit_as(&nobody());
    kit.coordinator.topic_deleted("t");
    assert_eq!(kit.offsets(), [-1, -1]);
}

#[test]
fn idle_offsets_of_a_memberless_group_expire_alone() {
    let settings = GroupSettings {
        offsets_retention: secs(60.0),
        retention_check_interval: secs(5.0),
        ..GroupSettings::default()
    };
    let mut kit = Kit::with(BrokerVersion::V4_3_1, settings.clone());
    kit.commit(&nobody(), &[("t", 0, 5, "")]);
    for _ in 0..7 {
        kit.commit(&nobody(), &[("t", 1, 6, "")]);
        kit.pass(secs(10.0));
    }
    assert_eq!(kit.offsets(), [-1, 6]);
    // A live member of an own protocol type keeps everything.
    let mut kit = Kit::with(BrokerVersion::V4_3_1, settings);
    let mut one = Member::fixed("a");
    kit.form(&mut [&mut one]);
    assert_eq!(kit.commit_as(&one), 0);
    for _ in 0..30 {
        kit.pass(secs(5.0));
        assert_eq!(kit.heartbeat(&one), 0);
    }
    assert_eq!(kit.offsets(), [5, -1]);
    kit.pass(secs(6.0 + 65.0));
    assert_eq!((kit.state().as_str(), kit.offsets()), ("Dead", [-1, -1]));
}
