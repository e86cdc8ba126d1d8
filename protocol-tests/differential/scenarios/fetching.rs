//! S9, S10: versions, fetch sessions, topics that are made again.

use std::time::Instant;

use kafka_protocol::messages::fetch_request::{FetchTopic, ForgottenTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, FetchRequest, InitProducerIdRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};
use kafka_protocol::protocol::Message;
use uuid::Uuid;

use super::super::batches::Batch;
use super::super::run::{Run, Version, fetch, metadata, name_of, produce, text};

/// The APIs of S9's table.
const LISTED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::AddPartitionsToTxn,
    ApiKey::EndTxn,
    ApiKey::WriteTxnMarkers,
    ApiKey::DescribeConfigs,
    ApiKey::CreatePartitions,
    ApiKey::DeleteGroups,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::OffsetDelete,
    ApiKey::DescribeProducers,
];

/// Highest version that the message crate can carry; more than that an embedded broker cannot offer.
fn encodable(key: ApiKey) -> i16 {
    match key {
        // Its table of versions says more than its messages can.
        ApiKey::OffsetCommit => OffsetCommitRequest::VERSIONS.max,
        ApiKey::OffsetFetch => OffsetFetchRequest::VERSIONS.max,
        ApiKey::InitProducerId => InitProducerIdRequest::VERSIONS.max,
        _ => key.valid_versions().max,
    }
}

pub(super) fn versions(run: &mut Run<'_>) {
    run.title("what the broker says it can do");
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("towpath"))
        .with_client_software_version(text("1"));
    let answer = run.quiet(3, &request);
    for key in LISTED {
        match answer.api_keys.iter().find(|one| one.api_key == *key as i16) {
            Some(one) => {
                let max = one.max_version.min(encodable(*key));
                run.say(&format!("{key:?} {}-{max}", one.min_version));
            }
            None => run.say(&format!("{key:?} missing")),
        }
    }
    run.title("a version it cannot do");
    run.raw("ApiVersions v99: answered at version 0", &[0, 18, 0, 99, 0, 0, 0, 9, 0, 1, b'x', 0, 2, b'x', 2, b'x', 0]);
    run.raw("Produce v99", &[0, 0, 0, 99, 0, 0, 0, 9, 0, 1, b'x', 0]);
    run.raw("API key 999", &[3, 231, 0, 0, 0, 0, 0, 9, 0, 1, b'x']);
    if run.version == Version::V4_3_1 {
        // Listed since version 0 for old clients' sake.
        run.raw("Produce v2", &[0, 0, 0, 2, 0, 0, 0, 9, 0, 1, b'x', 0, 1, 0, 0, 0, 9, 0, 0, 0, 0]);
    }
}

/// A request of a session: `topics` with fetch offsets to add or change, by name or by id.
fn session(id: i32, epoch: i32, wait_ms: i32, topics: Vec<FetchTopic>) -> FetchRequest {
    fetch("", 0)
        .with_topics(topics)
        .with_session_id(id)
        .with_session_epoch(epoch)
        .with_min_bytes(1)
        .with_max_wait_ms(wait_ms)
}

fn wanted(topic: &str, offset: i64) -> FetchTopic {
    fetch(topic, offset).topics.remove(0)
}

fn wanted_by_id(id: Uuid, offset: i64) -> FetchTopic {
    wanted("", offset).with_topic_id(id)
}

fn forgotten(topic: &str, id: Uuid) -> ForgottenTopic {
    ForgottenTopic::default().with_topic(name_of(topic)).with_topic_id(id).with_partitions(vec![0])
}

/// Whether the answer came at once or after the wait.
fn timed(run: &mut Run<'_>, label: &str, version: i16, request: &FetchRequest) {
    let began = Instant::now();
    run.fetch_records(label, version, request);
    let waited = began.elapsed().as_millis() >= 450;
    run.say(if waited { "  after the wait" } else { "  at once" });
}

pub(super) fn sessions(run: &mut Run<'_>) {
    let time = run.base;
    let topics = ["s10-a", "s10-b", "s10-c"];
    for topic in topics {
        run.topic(topic, 1, &[]);
    }
    run.title("a session by names");
    let all = || topics.map(|topic| wanted(topic, 0)).to_vec();
    let answer = run.quiet(12, &session(0, 0, 0, all()).with_min_bytes(0));
    run.say(if answer.session_id == 0 { "no session" } else { "a session is given" });
    let id = answer.session_id;
    run.say(&format!("{} topics in the first answer", answer.responses.len()));
    timed(run, "idle", 12, &session(id, 1, 500, vec![]));
    run.send_on("waits", 12, &session(id, 2, 5000, vec![]));
    run.produce("a record while it waits", "s10-b", &Batch::of(1, time));
    let answer = run.connection("waits").receive::<FetchRequest>(12).expect("an answer");
    run.say(&format!("the waiting one: {} topic, {}", answer.responses.len(), answer.responses[0].topic.0));
    timed(run, "not listed with a new offset: sent again", 12, &session(id, 3, 500, vec![]));
    timed(run, "listed with the next offset: quiet", 12, &session(id, 4, 500, vec![wanted("s10-b", 1)]));
    run.title("a partition in error");
    timed(run, "offset out of range", 12, &session(id, 5, 500, vec![wanted("s10-c", 77)]));
    timed(run, "again", 12, &session(id, 6, 500, vec![]));
    let forget = session(id, 7, 500, vec![]).with_forgotten_topics_data(vec![forgotten("s10-c", Uuid::nil())]);
    timed(run, "forgotten", 12, &forget);
    timed(run, "unknown topic", 12, &session(id, 8, 500, vec![wanted("s10-nowhere", 0)]));
    timed(run, "again", 12, &session(id, 9, 500, vec![]));
    run.title("wrong ids and epochs");
    timed(run, "wrong epoch", 12, &session(id, 3, 500, vec![]));
    timed(run, "unknown session", 12, &session(123_456, 1, 500, vec![]));
    timed(run, "the session is closed", 12, &session(id, -1, 0, vec![]).with_min_bytes(0));
    timed(run, "and is gone", 12, &session(id, 10, 500, vec![]));
    if run.version > Version::V2_8_2 {
        run.title("a session by ids");
        let by_id = run.id_of("s10-a");
        let answer = run.quiet(13, &session(0, 0, 0, vec![wanted_by_id(by_id, 0)]).with_min_bytes(0));
        run.say(&format!("{} topics in the first answer", answer.responses.len()));
        timed(run, "idle", 13, &session(answer.session_id, 1, 500, vec![]));
        timed(run, "by name in a session by ids", 12, &session(answer.session_id, 2, 500, vec![wanted("s10-b", 0)]));
    }
}

pub(super) fn recreated(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "s10-again";
    let by_ids = run.version > Version::V2_8_2;
    let old = run.topic(topic, 1, &[]);
    run.name(old, "old id");
    run.produce("three records", topic, &Batch::of(3, time));
    let named = run.quiet(12, &session(0, 0, 0, vec![wanted(topic, 3)]).with_min_bytes(0)).session_id;
    let mut by_id = 0;
    if by_ids {
        by_id = run.quiet(13, &session(0, 0, 0, vec![wanted_by_id(old, 3)]).with_min_bytes(0)).session_id;
    }
    run.title("deleted");
    run.delete_topic(topic);
    timed(run, "by name", 12, &session(named, 1, 500, vec![]));
    if by_ids {
        timed(run, "by id, in the session", 13, &session(by_id, 1, 500, vec![]));
    }
    run.title("made again");
    let new = run.topic(topic, 1, &[]);
    run.name(new, "new id");
    timed(run, "by name, the offset is not there", 12, &session(named, 2, 500, vec![]));
    run.produce("five other records", topic, &Batch::of(5, time));
    timed(run, "by name, the offset is there", 12, &session(named, 3, 500, vec![]));
    if by_ids {
        timed(run, "by the old id, in the session", 13, &session(by_id, 2, 500, vec![]));
        timed(run, "and again", 13, &session(by_id, 3, 500, vec![]));
        timed(run, "by the old id, no session", 13, &session(0, -1, 500, vec![wanted_by_id(old, 3)]));
        let change =
            session(by_id, 4, 500, vec![wanted_by_id(new, 0)]).with_forgotten_topics_data(vec![forgotten("", old)]);
        timed(run, "old id forgotten, new id added", 13, &change);
        run.title("ids that nobody has");
        timed(run, "never existed", 13, &session(0, -1, 500, vec![wanted_by_id(Uuid::from_u128(77), 0)]));
        let mut by_old_id: MetadataRequest = metadata(topic);
        for wanted in by_old_id.topics.iter_mut().flatten() {
            (wanted.name, wanted.topic_id) = (None, old);
        }
        let answer = run.quiet(12, &by_old_id);
        run.say(&format!("Metadata v12 by the old id: {}", answer.topics[0].error_code));
    }
    if run.version == Version::V4_3_1 {
        let mut request: ProduceRequest = produce("", None, &Batch::of(1, time).encode());
        request.topic_data[0].topic_id = old;
        run.call("produce by the old id", 13, &request);
        request.topic_data[0].topic_id = new;
        run.call("produce by the new id", 13, &request);
    }
    run.title("leader epochs");
    let ask = |epoch: i32, current: i32| {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic = OffsetForLeaderTopic::default().with_topic(name_of(topic)).with_partitions(vec![partition]);
        OffsetForLeaderEpochRequest::default().with_replica_id((-1).into()).with_topics(vec![topic])
    };
    run.call("epoch 0", 3, &ask(0, -1));
    run.call("epoch 5, which is to come", 3, &ask(5, -1));
    run.call("current epoch 5, which is to come", 3, &ask(0, 5));
    for (label, epoch) in [("the epoch of the offset", 0), ("an epoch to come", 5)] {
        let mut request = fetch(topic, 1);
        request.topics[0].partitions[0].last_fetched_epoch = epoch;
        run.fetch_records(&format!("fetch with {label}"), 12, &request);
    }
    let mut request = fetch(topic, 1);
    request.topics[0].partitions[0].current_leader_epoch = 5;
    run.fetch_records("fetch with a current epoch to come", 12, &request);
}
