//! S8, S13: offsets of groups, and leases by membership.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, ListGroupsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::super::run::{Run, Version, name_of, text};

const SESSION_MS: i32 = 6000;

/// A member as its process sees it.
#[derive(Debug, Clone)]
struct Member {
    group: &'static str,
    id: StrBytes,
    instance: Option<StrBytes>,
    generation: i32,
    metadata: &'static str,
    rebalance_ms: i32,
}

impl Member {
    fn nobody(group: &'static str) -> Self {
        Self {
            group,
            id: StrBytes::default(),
            instance: None,
            generation: -1,
            metadata: "bytes",
            rebalance_ms: SESSION_MS,
        }
    }

    fn fixed(group: &'static str, instance: &str) -> Self {
        Self { instance: Some(text(instance)), ..Self::nobody(group) }
    }

    /// As a new process of the same instance sends it.
    fn anew(&self) -> Self {
        Self { id: StrBytes::default(), generation: -1, ..self.clone() }
    }

    fn without_instance(&self) -> Self {
        Self { instance: None, ..self.clone() }
    }

    fn generation(&self, generation: i32) -> Self {
        Self { generation, ..self.clone() }
    }

    fn group(&self) -> GroupId {
        GroupId(text(self.group))
    }

    fn join(&self) -> JoinGroupRequest {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("towpath-1"))
            .with_metadata(Bytes::from_static(self.metadata.as_bytes()));
        JoinGroupRequest::default()
            .with_group_id(self.group())
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_session_timeout_ms(SESSION_MS)
            .with_rebalance_timeout_ms(self.rebalance_ms)
            .with_protocol_type(text("towpath"))
            .with_protocols(vec![protocol])
    }

    fn sync(&self, assignments: &[(&Self, &'static str)]) -> SyncGroupRequest {
        let assignments = assignments.iter().map(|(member, bytes)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member.id.clone())
                .with_assignment(Bytes::from_static(bytes.as_bytes()))
        });
        SyncGroupRequest::default()
            .with_group_id(self.group())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_protocol_type(Some(text("towpath")))
            .with_protocol_name(Some(text("towpath-1")))
            .with_assignments(assignments.collect())
    }

    fn heartbeat(&self) -> HeartbeatRequest {
        HeartbeatRequest::default()
            .with_group_id(self.group())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
    }

    fn commit(&self, offsets: &[(&str, i32, i64, &str)]) -> OffsetCommitRequest {
        let topics = offsets.iter().map(|(topic, partition, offset, metadata)| {
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_leader_epoch(-1)
                .with_committed_metadata(Some(text(metadata)));
            OffsetCommitRequestTopic::default().with_name(name_of(topic)).with_partitions(vec![partition])
        });
        OffsetCommitRequest::default()
            .with_group_id(self.group())
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_topics(topics.collect())
    }

    fn leave(&self) -> LeaveGroupRequest {
        let member =
            MemberIdentity::default().with_member_id(self.id.clone()).with_group_instance_id(self.instance.clone());
        LeaveGroupRequest::default().with_group_id(self.group()).with_members(vec![member])
    }

    /// What a JoinGroup answered becomes the member's own; its id gets a name.
    fn keep(&mut self, run: &mut Run<'_>, name: &str, answer: &JoinGroupResponse) {
        run.name(&*answer.member_id, name);
        (self.id, self.generation) = (answer.member_id.clone(), answer.generation_id);
    }
}

/// Joins on a connection of its own; its id is named before the answer is shown.
fn joined(run: &mut Run<'_>, on: &'static str, label: &str, version: i16, member: &mut Member, name: &str) {
    run.send_on(on, version, &member.join());
    finish(run, on, label, version, member, name);
}

fn finish(run: &mut Run<'_>, on: &'static str, label: &str, version: i16, member: &mut Member, name: &str) {
    let answer = run.connection(on).receive::<JoinGroupRequest>(version).expect("the join is answered");
    if !answer.member_id.is_empty() {
        member.keep(run, name, &answer);
    }
    run.show_answer::<JoinGroupRequest>(label, version, &answer);
}

fn fetch_v7(group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequest {
    let topics = topics.map(|topics| {
        let one = |(topic, partitions): &(&str, &[i32])| {
            OffsetFetchRequestTopic::default().with_name(name_of(topic)).with_partition_indexes(partitions.to_vec())
        };
        topics.iter().map(one).collect()
    });
    OffsetFetchRequest::default().with_group_id(GroupId(text(group))).with_topics(topics)
}

fn fetch_v8(groups: &[(&str, Option<&str>)]) -> OffsetFetchRequest {
    let groups = groups.iter().map(|(group, topic)| {
        let topics = topic.map(|topic| {
            vec![OffsetFetchRequestTopics::default().with_name(name_of(topic)).with_partition_indexes(vec![0, 1])]
        });
        OffsetFetchRequestGroup::default().with_group_id(GroupId(text(group))).with_topics(topics)
    });
    OffsetFetchRequest::default().with_groups(groups.collect())
}

fn describe(group: &str) -> DescribeGroupsRequest {
    DescribeGroupsRequest::default().with_groups(vec![GroupId(text(group))])
}

/// Its coordinator, and no other, answers.
fn ready(run: &mut Run<'_>, group: &str) {
    run.await_coordinator(group, 0);
    run.wait_until("the coordinator loaded", 7, &fetch_v7(group, None), |answer| answer.error_code == 0);
}

pub(super) fn anchors(run: &mut Run<'_>) {
    let (group, topic) = ("s8-simple", "s8");
    run.topic(topic, 2, &[]);
    run.topic("s8-other", 1, &[]);
    ready(run, group);
    let nobody = Member::nobody(group);
    run.title("commits to a group without members");
    run.call("a group that does not exist, with a generation", 8, &nobody.generation(1).commit(&[(topic, 0, 1, "")]));
    run.call("described", 5, &describe(group));
    run.call("only unknown topics: no group comes of it", 8, &nobody.commit(&[("s8-nowhere", 0, 1, "")]));
    run.call("described", 5, &describe(group));
    run.call("a simple commit", 8, &nobody.commit(&[(topic, 0, 5, "note"), ("s8-other", 0, 6, "")]));
    run.call("described", 5, &describe(group));
    let (fits, wide, long) = ("x".repeat(4096), "\u{e9}".repeat(4096), "x".repeat(4097));
    run.call(
        "metadata of 4096 and of 4097 characters",
        8,
        &nobody.commit(&[(topic, 0, 7, &fits), ("s8-other", 0, 8, &long)]),
    );
    run.call("4096 of two bytes", 8, &nobody.commit(&[("s8-other", 0, 9, &wide)]));
    run.call("back to short ones", 8, &nobody.commit(&[(topic, 0, 7, "short"), ("s8-other", 0, 9, "")]));
    let mixed = [("s8-nowhere", 0, 1, ""), (topic, 2, 1, ""), (topic, 1, 10, "m")];
    run.call("unknown topic and partition beside a good one", 8, &nobody.commit(&mixed));
    run.call("past the end", 8, &nobody.commit(&[(topic, 0, 1_000_000_000_000_000, "")]));
    run.call("-1", 8, &nobody.commit(&[(topic, 0, -1, "")]));
    run.call("-5", 8, &nobody.commit(&[("s8-other", 0, -5, "")]));
    run.call("a generation", 8, &nobody.generation(4).commit(&[(topic, 0, 1, "")]));
    run.call("a member", 8, &Member { id: text("who"), ..nobody.generation(0) }.commit(&[(topic, 0, 1, "")]));
    run.call("an instance, no generation", 8, &Member::fixed(group, "who").commit(&[(topic, 0, 3, "")]));
    run.title("fetched");
    run.call("all topics", 7, &fetch_v7(group, None));
    run.call("some, and what does not exist", 7, &fetch_v7(group, Some(&[("s8-nowhere", &[0]), (topic, &[1, 0, 9])])));
    run.call("version 1", 1, &fetch_v7(group, Some(&[(topic, &[0])])));
    run.call("a group that does not exist", 7, &fetch_v7("s8-nobody", Some(&[(topic, &[0])])));
    run.call("the same, all topics", 7, &fetch_v7("s8-nobody", None));
    if run.version > Version::V2_8_2 {
        run.call("two groups", 8, &fetch_v8(&[(group, None), ("s8-nobody", None)]));
        run.call("of one topic", 9, &fetch_v8(&[(group, Some(topic)), ("s8-nobody", Some(topic))]));
    }
    run.title("a group with a member");
    let group = "s8-lease";
    ready(run, group);
    let mut one = Member::fixed(group, "a");
    joined(run, "one", "joins", 7, &mut one, "a1");
    run.call_on("one", "syncs", 5, &one.sync(&[(&one, "all")]));
    run.call("with its generation", 8, &one.commit(&[(topic, 0, 5, "anchor")]));
    run.call("generation + 1", 8, &one.generation(one.generation + 1).commit(&[(topic, 0, 6, "")]));
    run.call("another member", 8, &Member { id: text("who"), ..one.without_instance() }.commit(&[(topic, 0, 6, "")]));
    run.call("nobody", 8, &Member::nobody(group).commit(&[(topic, 0, 6, "")]));
    run.call("described", 5, &describe(group));
    run.call("stored", 7, &fetch_v7(group, None));
    run.title("offsets and groups deleted");
    let delete = |group: &str, topic: &str| {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
        let topic = OffsetDeleteRequestTopic::default().with_name(name_of(topic)).with_partitions(vec![partition]);
        OffsetDeleteRequest::default().with_group_id(GroupId(text(group))).with_topics(vec![topic])
    };
    run.call("of a group with members", 0, &delete(group, topic));
    run.call("of a group without", 0, &delete("s8-simple", topic));
    run.call("of an unknown topic", 0, &delete("s8-simple", "s8-nowhere"));
    run.call("of a group that does not exist", 0, &delete("s8-nobody", topic));
    let groups = [group, "s8-simple", "s8-nobody"].map(|group| GroupId(text(group))).to_vec();
    run.call(
        "one with members, one without, one that does not exist",
        2,
        &DeleteGroupsRequest::default().with_groups_names(groups),
    );
    run.call("described", 5, &describe("s8-simple"));
    if run.version == Version::V4_3_1 {
        run.call("described, version 6", 6, &describe("s8-simple"));
        run.call(
            "a group that does not exist, version 9",
            9,
            &Member::nobody("s8-nobody").generation(3).commit(&[(topic, 0, 6, "")]),
        );
    }
    run.title("a topic that is deleted takes its offsets along");
    let doomed = Member::nobody("s8-doomed");
    run.topic("s8-doomed", 1, &[]);
    run.call("committed", 8, &doomed.commit(&[("s8-doomed", 0, 5, ""), (topic, 0, 6, "")]));
    run.delete_topic("s8-doomed");
    run.wait_until("they are gone", 7, &fetch_v7("s8-doomed", None), |answer| answer.topics.len() == 1);
    run.call("what is left", 7, &fetch_v7("s8-doomed", None));
    run.call_on("one", "leaves", 3, &one.leave());
    run.title("listed");
    let listed = run.quiet(4, &ListGroupsRequest::default());
    let listed = listed.groups.iter().filter(|one| one.group_id.starts_with("s8-"));
    let mut lines: Vec<String> =
        listed.map(|one| format!("{} {:?} {}", one.group_id.0, one.protocol_type, one.group_state)).collect();
    lines.sort();
    run.say(&lines.join("\n"));
}

pub(super) fn lease(run: &mut Run<'_>) {
    let (group, topic) = ("s13-lease", "s13");
    run.topic(topic, 1, &[]);
    ready(run, group);
    run.title("what JoinGroup refuses");
    let mut bad = Member::fixed(group, "x").join();
    for session_ms in [5999, 1_800_001] {
        bad.session_timeout_ms = session_ms;
        run.call(&format!("session of {session_ms} ms"), 7, &bad);
    }
    run.call("no group", 7, &Member::fixed("", "x").join());
    run.call("an id that nobody has", 7, &Member { id: text("who"), ..Member::nobody(group) }.join());
    run.call("no protocols", 7, &Member::fixed(group, "x").join().with_protocols(vec![]));
    run.call("no protocol type", 7, &Member::fixed(group, "x").join().with_protocol_type(text("")));
    run.call(
        "heartbeat to a group that does not exist",
        4,
        &Member { id: text("who"), ..Member::nobody("s13-nobody") }.heartbeat(),
    );
    run.call("sync of it", 5, &Member { id: text("who"), ..Member::nobody("s13-nobody") }.sync(&[]));
    run.call("leave it", 3, &Member { id: text("who"), ..Member::nobody("s13-nobody") }.leave());

    run.title("two static members");
    let (mut one, mut two) = (Member::fixed(group, "a"), Member::fixed(group, "b"));
    joined(run, "one", "the first", 7, &mut one, "a1");
    run.call_on("one", "it syncs", 5, &one.sync(&[(&one, "all")]));
    run.send_on("two", 7, &two.join());
    run.wait_until("the rebalance began", 5, &describe(group), |answer| {
        &*answer.groups[0].group_state == "PreparingRebalance"
    });
    run.call("heartbeat meanwhile", 4, &one.heartbeat());
    run.call("commit meanwhile", 8, &one.commit(&[(topic, 0, 5, "")]));
    run.call("sync meanwhile", 5, &one.sync(&[]));
    run.call("described", 5, &describe(group));
    let old = one.clone();
    run.send_on("one", 7, &one.join());
    // Named in this order, because the leader's list has both.
    let answer = run.connection("two").receive::<JoinGroupRequest>(7).expect("the join is answered");
    two.keep(run, "b1", &answer);
    finish(run, "one", "the first again", 7, &mut one, "a1");
    run.show_answer::<JoinGroupRequest>("the second", 7, &answer);
    run.title("before the leader's sync");
    run.call("described", 5, &describe(group));
    run.call("heartbeat", 4, &one.heartbeat());
    run.call("commit, new generation", 8, &one.commit(&[(topic, 0, 6, "")]));
    run.call("commit, old generation", 8, &old.commit(&[(topic, 0, 6, "")]));
    run.call("follower asks again", 7, &two.join());
    run.call("leader asks again", 7, &one.join());
    run.call("sync with another protocol", 5, &one.sync(&[]).with_protocol_name(Some(text("other"))));
    run.call("sync with the old generation", 5, &old.sync(&[]));
    run.call_on("one", "leader syncs", 5, &one.sync(&[(&one, "first"), (&two, "second")]));
    run.call("commit of one that has not synced", 8, &two.commit(&[(topic, 0, 7, "")]));
    run.call_on("two", "follower syncs", 5, &two.sync(&[]));
    run.call("described", 5, &describe(group));

    run.title("a new process takes the follower's instance");
    let mut new = Member { metadata: "other", ..two.anew() };
    joined(run, "new", "joins", 7, &mut new, "b2");
    run.call_on("new", "syncs", 5, &new.sync(&[]));
    run.call("the leader notices nothing", 4, &one.heartbeat());
    for (label, old) in [("with instance", two.clone()), ("without instance", two.without_instance())] {
        run.call(&format!("old heartbeat, {label}"), 4, &old.heartbeat());
        run.call(&format!("old commit, {label}"), 8, &old.commit(&[(topic, 0, 1, "")]));
        run.call(
            &format!("old commit without generation, {label}"),
            8,
            &old.generation(-1).commit(&[(topic, 0, 1, "")]),
        );
        run.call(&format!("old sync, {label}"), 5, &old.sync(&[]));
        run.call(&format!("old leave, {label}"), 3, &old.leave());
        run.call(&format!("old join, {label}"), 7, &old.join());
    }
    run.call("a wrong generation", 4, &new.generation(new.generation + 1).heartbeat());
    run.title("a new process takes the leader's");
    let mut leader = one.anew();
    joined(run, "leader", "version 7", 7, &mut leader, "a2");
    if run.version > Version::V2_8_2 {
        leader = leader.anew();
        joined(run, "leader", "version 9", 9, &mut leader, "a3");
    }
    run.call_on("leader", "syncs", 5, &leader.sync(&[]));
    let leads = if run.version > Version::V2_8_2 { "a3" } else { "a2" };
    run.title("rejoining with the known id");
    run.call_on("new", "follower, same bytes", 7, &new.join());
    run.call("the group is as it was", 4, &leader.heartbeat());
    let mut changed = Member { metadata: "changed", ..new.clone() };
    run.send_on("new", 7, &changed.join());
    run.wait_until("the rebalance began", 5, &describe(group), |answer| {
        &*answer.groups[0].group_state == "PreparingRebalance"
    });
    run.call("follower with other bytes: heartbeat while its join is pending", 4, &new.heartbeat());
    joined(run, "leader", "the leader follows", 7, &mut leader, leads);
    finish(run, "new", "the follower's answer", 7, &mut changed, "b2");
    run.title("taken over between JoinGroup and SyncGroup: a new generation");
    run.send_on("new", 5, &changed.sync(&[]));
    run.pause(Duration::from_millis(200));
    let mut third = changed.anew();
    run.send_on("third", 7, &third.join());
    run.receive_on::<SyncGroupRequest>("new", "the waiting sync of the old one", 5);
    run.send_on("leader", 7, &leader.join());
    let answer = run.connection("third").receive::<JoinGroupRequest>(7).expect("the join is answered");
    third.keep(run, "b3", &answer);
    finish(run, "leader", "the leader joins again", 7, &mut leader, leads);
    run.show_answer::<JoinGroupRequest>("the new process", 7, &answer);
    run.call_on("leader", "leader syncs", 5, &leader.sync(&[(&leader, "l"), (&third, "f")]));
    run.call_on("third", "follower syncs", 5, &third.sync(&[]));
    run.title("taken over while it waits in JoinGroup");
    run.send_on("leader", 7, &leader.join());
    run.wait_until("the rebalance began", 5, &describe(group), |answer| {
        &*answer.groups[0].group_state == "PreparingRebalance"
    });
    let mut last = leader.anew();
    run.send_on("last", 7, &last.join());
    run.receive_on::<JoinGroupRequest>("leader", "the waiting join of the old one", 7);
    run.send_on("third", 7, &third.join());
    let answer = run.connection("third").receive::<JoinGroupRequest>(7).expect("the join is answered");
    finish(run, "last", "the new process", 7, &mut last, "a4");
    third.generation = answer.generation_id;
    run.show_answer::<JoinGroupRequest>("the other", 7, &answer);
    let (leads, follows) = if answer.leader == third.id { (&third, &last) } else { (&last, &third) };
    run.call("leader syncs", 5, &leads.sync(&[]));
    run.call("follower syncs", 5, &follows.sync(&[]));
    run.title("leaving");
    run.call("one, by instance alone", 3, &Member { id: StrBytes::default(), ..third.clone() }.leave());
    run.call("an instance that nobody has", 3, &Member::fixed(group, "nobody").leave());
    run.call("the other learns", 4, &last.heartbeat());
    run.call("version 2", 2, &LeaveGroupRequest::default().with_group_id(last.group()).with_member_id(last.id.clone()));
    run.call("described", 5, &describe(group));
    run.call("commit of nobody", 8, &Member::nobody(group).commit(&[(topic, 0, 9, "")]));
    run.call("commit of the old member", 8, &last.commit(&[(topic, 0, 9, "")]));
    run.call("without generation", 8, &last.generation(-1).commit(&[(topic, 0, 10, "")]));

    run.title("dynamic members come twice");
    let group = "s13-dynamic";
    ready(run, group);
    let mut dynamic = Member { rebalance_ms: 1000, ..Member::nobody(group) };
    joined(run, "dynamic", "first", 7, &mut dynamic, "d1");
    run.call("heartbeat before it is a member", 4, &dynamic.heartbeat());
    joined(run, "dynamic", "with its id", 7, &mut dynamic, "d1");
    run.call_on("dynamic", "syncs", 5, &dynamic.sync(&[]));
    let mut early = Member { rebalance_ms: 1000, ..Member::nobody(group) };
    joined(run, "early", "version 3 need not; the group waits for the other", 3, &mut early, "d2");
    run.call("the other is thrown out", 4, &dynamic.heartbeat());
}

const Z_GROUP: &str = "z-lease";

pub(super) fn before_restart(run: &mut Run<'_>) {
    run.title("a group with a member, and one without");
    run.topic("z-group", 1, &[]);
    ready(run, Z_GROUP);
    let mut one = Member::fixed(Z_GROUP, "a");
    joined(run, "one", "static", 7, &mut one, "a1");
    run.call_on("one", "syncs", 5, &one.sync(&[(&one, "all")]));
    run.call("anchor", 8, &one.commit(&[("z-group", 0, 5, "anchor")]));
    run.call("simple", 8, &Member::nobody("z-simple").commit(&[("z-group", 0, 6, "note")]));
}

pub(super) fn after_restart(run: &mut Run<'_>) {
    run.title("the groups after the restart");
    run.await_leader("z-group");
    ready(run, Z_GROUP);
    let mut one = Member::fixed(Z_GROUP, "a");
    one.generation = 1;
    one.id = text(&run.named("a1"));
    run.call("commit, same member, same generation", 8, &one.commit(&[("z-group", 0, 7, "later")]));
    run.call("heartbeat", 4, &one.heartbeat());
    run.call("sync: the same assignment", 5, &one.sync(&[]));
    run.call("described", 5, &describe(Z_GROUP));
    run.call("offsets", 7, &fetch_v7(Z_GROUP, None));
    run.call("offsets of the group without members", 7, &fetch_v7("z-simple", None));
    run.call("described", 5, &describe("z-simple"));
}
