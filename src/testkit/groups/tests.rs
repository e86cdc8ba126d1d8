//! The rows of `broker-experiments.md` S8 and S13, named by what was done. The values are those of real brokers.

mod anchors;
mod lease;

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{GroupId, TopicName};

use super::*;

const GROUP: &str = "towpath.a.b";
const SESSION: Duration = Duration::from_secs(6);
const EVERY: [BrokerVersion; 3] = [BrokerVersion::V4_3_1, BrokerVersion::V3_9_2, BrokerVersion::V2_8_2];

/// Topic `t` has two partitions.
struct Topics;

impl TopicLookup for Topics {
    fn partitions(&self, topic: &str) -> Option<i32> {
        (topic == "t").then_some(2)
    }
}

/// A coordinator and its clock; wall time begins at 1,000,000 ms.
struct Kit {
    coordinator: GroupCoordinator,
    start: Instant,
    now: Instant,
    tickets: u64,
    answers: BTreeMap<Ticket, GroupResponse>,
}

/// A member as its process sees it.
#[derive(Clone, Debug)]
struct Member {
    id: StrBytes,
    instance: Option<StrBytes>,
    generation: i32,
    session: Duration,
    rebalance: Duration,
    metadata: Bytes,
    join_version: i16,
}

fn text(words: &str) -> StrBytes {
    StrBytes::from_string(words.to_owned())
}

fn group() -> GroupId {
    GroupId(text(GROUP))
}

fn secs(count: f64) -> Duration {
    Duration::from_secs_f64(count)
}

impl Member {
    fn fixed(instance: &str) -> Self {
        Self { instance: Some(text(instance)), ..Self::dynamic() }
    }

    fn dynamic() -> Self {
        Self {
            id: StrBytes::default(),
            instance: None,
            generation: -1,
            session: SESSION,
            rebalance: SESSION,
            metadata: Bytes::from_static(b"bytes"),
            join_version: 7,
        }
    }
}

impl Kit {
    fn new(version: BrokerVersion) -> Self {
        Self::with(version, GroupSettings::default())
    }

    /// Hardly a delay before the first rebalance.
    fn prompt(version: BrokerVersion) -> Self {
        Self::with(version, GroupSettings { initial_rebalance_delay: secs(0.01), ..GroupSettings::default() })
    }

    fn with(version: BrokerVersion, settings: GroupSettings) -> Self {
        let now = Instant::now();
        let coordinator = GroupCoordinator::new(settings, version);
        Self { coordinator, start: now, now, tickets: 0, answers: BTreeMap::new() }
    }

    fn wall(&self) -> i64 {
        1_000_000 + i64::try_from((self.now - self.start).as_millis()).expect("tests are short")
    }

    fn send(&mut self, api_version: i16, request: GroupRequest) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.coordinator.handle(self.now, self.wall(), &Topics, ticket, api_version, request);
        self.collect();
        ticket
    }

    fn collect(&mut self) {
        self.coordinator.handle_timeout(self.now, self.wall());
        while let Some((ticket, answer)) = self.coordinator.poll_answer() {
            assert!(self.answers.insert(ticket, answer).is_none(), "{ticket:?} was answered twice");
        }
    }

    /// Time passes, timer by timer.
    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.coordinator.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.collect();
        }
        self.now = end;
        self.collect();
    }

    /// Time passes until a request is answered.
    fn wait(&mut self, ticket: Ticket) {
        while !self.answers.contains_key(&ticket) {
            let at = self.coordinator.poll_timeout().expect("something is to happen");
            self.pass(at.saturating_duration_since(self.now));
        }
    }

    fn ask_join(&mut self, member: &Member) -> Ticket {
        let protocol =
            JoinGroupRequestProtocol::default().with_name(text("towpath-1")).with_metadata(member.metadata.clone());
        let request = JoinGroupRequest::default()
            .with_group_id(group())
            .with_member_id(member.id.clone())
            .with_group_instance_id(member.instance.clone())
            .with_session_timeout_ms(i32::try_from(member.session.as_millis()).expect("short"))
            .with_rebalance_timeout_ms(i32::try_from(member.rebalance.as_millis()).expect("short"))
            .with_protocol_type(text("towpath"))
            .with_protocols(vec![protocol]);
        self.send(member.join_version, GroupRequest::JoinGroup(request))
    }

    fn joined(&self, ticket: Ticket) -> Option<&JoinGroupResponse> {
        self.answers.get(&ticket).map(|answer| match answer {
            GroupResponse::JoinGroup(answer) => answer,
            other => panic!("not a join: {other:?}"),
        })
    }

    /// The answer is there; the member keeps what it says.
    fn take_join(&self, ticket: Ticket, member: &mut Member) -> JoinGroupResponse {
        let answer = self.joined(ticket).expect("the join is answered").clone();
        (member.id, member.generation) = (answer.member_id.clone(), answer.generation_id);
        answer
    }

    fn ask_sync(&mut self, member: &Member, assignments: &[(&Member, &'static str)]) -> Ticket {
        let assignments = assignments.iter().map(|(member, bytes)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(member.id.clone())
                .with_assignment(Bytes::from_static(bytes.as_bytes()))
        });
        let request = SyncGroupRequest::default()
            .with_group_id(group())
            .with_generation_id(member.generation)
            .with_member_id(member.id.clone())
            .with_group_instance_id(member.instance.clone())
            .with_assignments(assignments.collect());
        self.send(4, GroupRequest::SyncGroup(request))
    }

    fn synced(&self, ticket: Ticket) -> Option<(i16, &[u8])> {
        self.answers.get(&ticket).map(|answer| match answer {
            GroupResponse::SyncGroup(answer) => (answer.error_code, &answer.assignment[..]),
            other => panic!("not a sync: {other:?}"),
        })
    }

    fn heartbeat(&mut self, member: &Member) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group())
            .with_generation_id(member.generation)
            .with_member_id(member.id.clone())
            .with_group_instance_id(member.instance.clone());
        let ticket = self.send(4, GroupRequest::Heartbeat(request));
        match self.answers.get(&ticket) {
            Some(GroupResponse::Heartbeat(answer)) => answer.error_code,
            other => panic!("not a heartbeat: {other:?}"),
        }
    }

    fn commit_as(&mut self, member: &Member) -> i16 {
        self.commit(member, &[("t", 0, 5, "")])[0]
    }

    fn commit(&mut self, member: &Member, offsets: &[(&str, i32, i64, &str)]) -> Vec<i16> {
        let topics = offsets.iter().map(|(topic, partition, offset, metadata)| {
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_metadata(Some(text(metadata)));
            OffsetCommitRequestTopic::default().with_name(TopicName(text(topic))).with_partitions(vec![partition])
        });
        let request = OffsetCommitRequest::default()
            .with_group_id(group())
            .with_generation_id_or_member_epoch(member.generation)
            .with_member_id(member.id.clone())
            .with_group_instance_id(member.instance.clone())
            .with_topics(topics.collect());
        let ticket = self.send(8, GroupRequest::OffsetCommit(request));
        match self.answers.get(&ticket) {
            Some(GroupResponse::OffsetCommit(answer)) => {
                answer.topics.iter().flat_map(|topic| &topic.partitions).map(|one| one.error_code).collect()
            }
            other => panic!("not a commit: {other:?}"),
        }
    }

    /// Committed offsets of the two partitions.
    fn offsets(&mut self) -> [i64; 2] {
        let request = OffsetFetchRequest::default().with_group_id(group()).with_topics(None);
        let ticket = self.send(7, GroupRequest::OffsetFetch(request));
        let Some(GroupResponse::OffsetFetch(answer)) = self.answers.get(&ticket) else {
            panic!("not an offset fetch");
        };
        let mut offsets = [-1, -1];
        for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            offsets[usize::try_from(one.partition_index).expect("small")] = one.committed_offset;
        }
        offsets
    }

    fn state(&mut self) -> String {
        let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
        let ticket = self.send(5, GroupRequest::DescribeGroups(request));
        match self.answers.get(&ticket) {
            Some(GroupResponse::DescribeGroups(answer)) => answer.groups[0].group_state.to_string(),
            other => panic!("not a description: {other:?}"),
        }
    }

    /// Brings members into a stable group; the first one leads and gives each its name as assignment.
    fn form(&mut self, members: &mut [&mut Member]) {
        let tickets: Vec<Ticket> = members.iter().map(|member| self.ask_join(member)).collect();
        for (member, ticket) in members.iter_mut().zip(&tickets) {
            self.wait(*ticket);
            let answer = self.take_join(*ticket, member);
            assert_eq!(answer.error_code, 0, "{answer:?}");
        }
        let names = ["first", "second", "third"];
        let given: Vec<(Member, &'static str)> =
            members.iter().zip(names).map(|(member, name)| ((**member).clone(), name)).collect();
        let given: Vec<(&Member, &'static str)> = given.iter().map(|(member, name)| (member, *name)).collect();
        for (at, member) in members.iter().enumerate() {
            let ticket = self.ask_sync(member, if at == 0 { &given } else { &[] });
            assert_eq!(self.synced(ticket), Some((0, names[at].as_bytes())));
        }
    }
}
