//! The runs topic, `towpath-runs.<source>.internal` on the target: breaks between both logs, and copies of anchors.
//!
//! Compacted, one partition. Keys and values are JSON with a version, so that an operator can read them with any
//! client. A break is written before the anchor that covers it (`design.md` 4); a copy of the last anchor outlives the
//! group's commits, which brokers let expire. Decisions of operators are here too, where a mirror that runs looks for them
//! while partitions stand, and another one at its start.
//!
//! Runs in the order of their targets are in the order of time. Where a copy went on at an earlier source offset than it
//! had reached (another history of the source), the later run is the one that counts from there on, and runs before it
//! whose source offsets are not below its own are void.
//!
//! Breaks also stand inside batches: where compaction took records, the distance between both logs changes at each gap.
//! A source offset in a gap stands for the next record, so it translates to the least of what its run says and where
//! the next run begins on the target.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use kafka_protocol::messages::{FetchRequest, ProduceRequest, produce_request};
use serde::{Deserialize, Serialize};

use super::{
    anchor::{Anchor, DecisionId, Record},
    decision::{Action, Decision},
    partition::Break,
};
use crate::{
    batch::{BatchBuilder, Entry, records, walk},
    client::{
        ClientError, Cluster, NewTopic, OffsetQuery,
        fetch_session::{FIRST_VERSION_WITH_IDS, FetchLimits, FetchSession, Want},
        list_offsets, wire_topic,
    },
    net::{Connection, RequestError},
    protocol::{
        BrokerId, ErrorCode, FetchResponse, LeaderEpoch, PartitionId, ProduceResponse, TopicId, TopicName,
        TopicPartition,
    },
    wall_clock,
};

/// Records of one request; a batch stays well below the default limit of a megabyte.
const RECORDS_PER_BATCH: usize = 2000;
const FETCH_BYTES: i32 = 1 << 20;
const ANSWER_MAX: usize = 160 << 20;

/// The name of the topic for copies from `source`.
#[must_use]
pub(crate) fn runs_topic(source_alias: &str) -> TopicName {
    TopicName::new(format!("towpath-runs.{source_alias}.internal"))
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", tag = "kind")]
enum Key {
    #[serde(rename = "run", rename_all = "camelCase")]
    Run {
        version: u8,
        topic: String,
        partition: i32,
        source_topic_id: String,
        target_topic_id: String,
        source_start: i64,
    },
    #[serde(rename = "anchor", rename_all = "camelCase")]
    Anchor { version: u8, topic: String, partition: i32 },
    #[serde(rename = "decision", rename_all = "camelCase")]
    Decision { version: u8, topic: String, partition: i32 },
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct RunValue {
    target_start: i64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct AnchorValue {
    target_next: i64,
    metadata: String,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct DecisionValue {
    id: String,
    action: Action,
    answers: String,
    decided_ms: i64,
}

const VERSION: u8 = 1;

/// What is to be written, by remote partition.
pub(crate) enum Row<'a> {
    /// A new run of the copy that the anchor belongs to.
    Break(&'a TopicPartition, &'a Anchor, Break),
    /// A copy of an anchor, or of the record of a partition that stands without one.
    Record(&'a TopicPartition, &'a Record),
    /// What an operator decided.
    Decision(&'a TopicPartition, &'a Decision),
}

impl Row<'_> {
    fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let (key, value) = match self {
            Row::Break(target, anchor, run) => (
                serde_json::to_vec(&Key::Run {
                    version: VERSION,
                    topic: target.topic.as_str().to_owned(),
                    partition: target.partition.0,
                    source_topic_id: anchor.source_topic_id.to_string(),
                    target_topic_id: anchor.target_topic_id.to_string(),
                    source_start: run.source_start,
                }),
                serde_json::to_vec(&RunValue { target_start: run.target_start }),
            ),
            Row::Record(target, record) => (
                serde_json::to_vec(&Key::Anchor {
                    version: VERSION,
                    topic: target.topic.as_str().to_owned(),
                    partition: target.partition.0,
                }),
                serde_json::to_vec(&AnchorValue { target_next: record.offset(), metadata: record.to_metadata() }),
            ),
            Row::Decision(target, decision) => (
                serde_json::to_vec(&Key::Decision {
                    version: VERSION,
                    topic: target.topic.as_str().to_owned(),
                    partition: target.partition.0,
                }),
                serde_json::to_vec(&DecisionValue {
                    id: format!("{:016x}", decision.id.0),
                    action: decision.action,
                    answers: decision.answers.clone(),
                    decided_ms: decision.decided_ms,
                }),
            ),
        };
        (
            key.expect("maps of strings and numbers always serialise"),
            value.expect("maps of strings and numbers always serialise"),
        )
    }
}

/// The runs topic of one flow.
#[derive(Clone)]
pub(crate) struct RunsTopic {
    cluster: Cluster,
    partition: TopicPartition,
    /// Writes have a connection of their own: the wait for replicas holds up everything behind it, and the cluster's
    /// shared connections must answer at once. Taken out while in use, so that a write given up takes it along.
    connection: Rc<RefCell<Option<(BrokerId, Connection)>>>,
}

impl RunsTopic {
    pub(crate) fn new(cluster: Cluster, source_alias: &str) -> Self {
        let partition = TopicPartition { topic: runs_topic(source_alias), partition: PartitionId(0) };
        Self { cluster, partition, connection: Rc::default() }
    }

    pub(crate) fn topic(&self) -> &TopicName {
        &self.partition.topic
    }

    /// What to create if it is missing.
    pub(crate) fn new_topic(&self, replication_factor: i16) -> NewTopic {
        NewTopic {
            name: self.partition.topic.clone(),
            partitions: 1,
            replication_factor,
            configs: BTreeMap::from([
                ("cleanup.policy".to_owned(), "compact".to_owned()),
                ("compression.type".to_owned(), "producer".to_owned()),
                // A clock of ours that runs ahead must not have brokers refuse what is written here.
                ("message.timestamp.type".to_owned(), "LogAppendTime".to_owned()),
            ]),
        }
    }

    /// Writes rows, in order, and returns once they are replicated. Writing a row twice is harmless.
    pub(crate) async fn write(&self, rows: &[Row<'_>]) -> Result<(), ClientError> {
        for chunk in rows.chunks(RECORDS_PER_BATCH) {
            let mut builder = BatchBuilder::new();
            let now = wall_clock::now_ms();
            for row in chunk {
                let (key, value) = row.encode();
                builder
                    .push(now, Some(&key), Some(&value), &[])
                    .expect("a few thousand rows of a few hundred bytes fit a batch");
            }
            let Some(batch) = builder.build() else {
                continue;
            };
            self.or_refresh(self.produce(batch).await).await?;
        }
        Ok(())
    }

    /// Whatever went wrong, the leader may be another one: the next try must not meet the same broker.
    async fn or_refresh<T>(&self, result: Result<T, ClientError>) -> Result<T, ClientError> {
        if result.is_err() {
            let _ = self.cluster.refresh(&[self.partition.topic.clone()].into()).await;
        }
        result
    }

    async fn produce(&self, batch: Bytes) -> Result<(), ClientError> {
        let failed = |error| ClientError::Request { cluster: self.cluster.alias().clone(), error };
        let leader = self.leader().await?;
        let kept = self.connection.take().filter(|(broker, open)| *broker == leader && !open.is_ended());
        let connection = match kept {
            Some((_, connection)) => connection,
            None => self.cluster.dial(leader).await?,
        };
        let mut request = ProduceRequest::default();
        request.acks = -1;
        request.timeout_ms = i32::try_from(self.cluster.request_timeout().as_millis()).unwrap_or(i32::MAX);
        request.topic_data = vec![
            produce_request::TopicProduceData::default()
                .with_name(wire_topic(&self.partition.topic))
                .with_partition_data(vec![
                    produce_request::PartitionProduceData::default().with_index(0).with_records(Some(batch)),
                ]),
        ];
        let version =
            connection.negotiate::<ProduceRequest>(crate::protocol::ProduceWriter::VERSION_MAX).map_err(failed)?;
        let timeout = self.cluster.request_timeout() * 2;
        let reply = connection.begin(version, &request, 1 << 20, timeout).map_err(failed)?.await.map_err(failed)?;
        let answer = ProduceResponse::decode(reply.body, version).map_err(|error| {
            failed(RequestError::Decode { peer: connection.peer().into(), error: std::sync::Arc::new(error) })
        })?;
        let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let (code, message) = partition.map_or((ErrorCode::UNKNOWN_SERVER_ERROR, None), |partition| {
            (partition.error_code, partition.error_message)
        });
        if code.is_none() {
            self.connection.replace(Some((leader, connection)));
            return Ok(());
        }
        Err(ClientError::Code {
            cluster: self.cluster.alias().clone(),
            what: format!("a write to {}", self.partition).into(),
            code,
            message,
        })
    }

    async fn leader(&self) -> Result<BrokerId, ClientError> {
        let nobody = || ClientError::Nobody {
            cluster: self.cluster.alias().clone(),
            what: format!("leader of {}", self.partition).into(),
        };
        let leader = self.cluster.snapshot().leader(&self.partition).and_then(|leader| leader.leader);
        match leader {
            Some(leader) => Ok(leader),
            None => self
                .cluster
                .refresh(&[self.partition.topic.clone()].into())
                .await?
                .leader(&self.partition)
                .and_then(|leader| leader.leader)
                .ok_or_else(nobody),
        }
    }

    /// What the topic holds from an offset on, the last row of each kind and partition; from its beginning if the topic
    /// ends before that offset.
    pub(crate) async fn read(&self, from: i64) -> Result<Rows, ClientError> {
        self.or_refresh(self.try_read(from).await).await
    }

    async fn try_read(&self, from: i64) -> Result<Rows, ClientError> {
        let failed = |error| ClientError::Request { cluster: self.cluster.alias().clone(), error };
        let connection = self.cluster.dial(self.leader().await?).await?;
        let only = [self.partition.clone()];
        let timeout = self.cluster.request_timeout();
        let mut offsets = Vec::new();
        for query in [OffsetQuery::Start, OffsetQuery::HighWatermark] {
            let found = list_offsets(&connection, query, &only, timeout).await.map_err(failed)?;
            let listed = found.get(&self.partition).copied();
            match listed {
                Some(listed) if listed.error_code.is_none() => offsets.push(listed.offset),
                other => {
                    let code = other.map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |listed| listed.error_code);
                    return Err(ClientError::Code {
                        cluster: self.cluster.alias().clone(),
                        what: format!("to list the offsets of {}", self.partition).into(),
                        code,
                        message: None,
                    });
                }
            }
        }
        let (start, end) = match offsets.as_slice() {
            &[start, end] => (start, end),
            _ => (0, 0),
        };
        // Another topic of this name, if it ends before what was read.
        let mut next = if from > end { start } else { from.max(start) };
        let mut rows = Rows { next: end, ..Rows::default() };
        let version = connection.negotiate::<FetchRequest>(FIRST_VERSION_WITH_IDS - 1).map_err(failed)?;
        let mut without_progress = 0;
        while next < end {
            let records = self.fetch(&connection, version, next, timeout).await?;
            let before = next;
            for entry in walk(records) {
                let Ok(Entry::Batch(batch)) = entry else {
                    break;
                };
                if batch.header.next_offset() <= next {
                    continue;
                }
                next = batch.header.next_offset();
                rows.note(&batch);
            }
            if next == before {
                without_progress += 1;
                if without_progress > 20 {
                    // Half of the anchors must not be taken for all: an anchored partition would look fresh.
                    return Err(ClientError::Nobody {
                        cluster: self.cluster.alias().clone(),
                        what: format!("readable records at offset {next} of {}", self.partition).into(),
                    });
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(rows)
    }

    async fn fetch(
        &self,
        connection: &Connection,
        version: i16,
        offset: i64,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let failed = |error| ClientError::Request { cluster: self.cluster.alias().clone(), error };
        let mut session = FetchSession::default();
        let want = Want {
            fetch_offset: offset,
            partition_bytes_max: FETCH_BYTES,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
        };
        session.want(&self.partition, TopicId::ZERO, Some(want));
        let limits = FetchLimits {
            wait_ms: 500,
            bytes_min: 1,
            bytes_max: FETCH_BYTES,
            read_committed: false,
            rack: String::new(),
        };
        let mut request = session.next_request(version, &limits);
        request.session_epoch = -1;
        let reply = connection.begin(version, &request, ANSWER_MAX, timeout).map_err(failed)?.await.map_err(failed)?;
        let answer = FetchResponse::decode(reply.body, version).map_err(|error| {
            failed(RequestError::Decode { peer: connection.peer().into(), error: std::sync::Arc::new(error) })
        })?;
        let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
        match partition {
            Some(partition) if partition.error_code.is_none() => Ok(partition.records),
            other => Err(ClientError::Code {
                cluster: self.cluster.alias().clone(),
                what: format!("to read {}", self.partition).into(),
                code: other.map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |partition| partition.error_code),
                message: None,
            }),
        }
    }
}

/// What was read of the runs topic.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Committed offset and metadata of the last copy of each record.
    pub(crate) anchors: BTreeMap<TopicPartition, (i64, String)>,
    /// The last decision about each partition.
    pub(crate) decisions: BTreeMap<TopicPartition, Decision>,
    /// Where to read on.
    pub(crate) next: i64,
}

impl Rows {
    /// Those of these topics, none of which exists, that held a copy which nobody has decided to leave.
    pub(crate) fn missed(&self, topics: &BTreeSet<TopicName>) -> BTreeSet<TopicName> {
        let is_missed = |partition: &TopicPartition, (offset, metadata): &(i64, String)| {
            let decision = self.decisions.get(partition);
            match Record::from_commit(*offset, metadata) {
                Ok(Record::Anchor(anchor)) => {
                    Some(!decision.is_some_and(|decision| decision.leaves(anchor.target_topic_id)))
                }
                // It never held a copy.
                Ok(Record::Standing(_)) => None,
                Err(_) => Some(!decision.is_some_and(|decision| decision.action == Action::CopyAnew)),
            }
        };
        // What was decided about one partition of a topic is decided about its name.
        let missed = |topic: &&TopicName| {
            let rows = self.anchors.iter().filter(|(partition, _)| partition.topic == **topic);
            let known: Vec<bool> = rows.filter_map(|(partition, row)| is_missed(partition, row)).collect();
            !known.is_empty() && !known.contains(&false)
        };
        topics.iter().filter(missed).cloned().collect()
    }

    fn note(&mut self, batch: &crate::batch::Batch) {
        // The topic is created with compression.type=producer and we write uncompressed: anything else is not ours.
        let Ok(rows) = records(batch) else { return };
        for row in rows.flatten() {
            let (Some(key), Some(value)) = (row.key, row.value) else {
                continue;
            };
            let partition =
                |topic, partition| TopicPartition { topic: TopicName::new(topic), partition: PartitionId(partition) };
            match serde_json::from_slice(&key) {
                Ok(Key::Anchor { version: VERSION, topic, partition: number }) => {
                    if let Ok(value) = serde_json::from_slice::<AnchorValue>(&value) {
                        self.anchors.insert(partition(topic, number), (value.target_next, value.metadata));
                    }
                }
                Ok(Key::Decision { version: VERSION, topic, partition: number }) => {
                    if let Ok(value) = serde_json::from_slice::<DecisionValue>(&value)
                        && let Ok(id) = u64::from_str_radix(&value.id, 16)
                    {
                        let DecisionValue { action, answers, decided_ms, .. } = value;
                        let decision = Decision { id: DecisionId(id), action, answers, decided_ms };
                        self.decisions.insert(partition(topic, number), decision);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        batch::ProducerIdentity,
        mirror::{
            anchor::{Incident, Notes, Position, Shape, Standing},
            decision::copy_anew_key,
        },
    };

    fn id(byte: u8) -> TopicId {
        TopicId::new([byte; 16])
    }

    fn anchor(target_topic_id: TopicId) -> Record {
        Record::Anchor(Anchor {
            position: Position { source_next: 5, target_next: 5, next_sequence: 5 },
            source_topic_id: id(9),
            target_topic_id,
            leader_epoch: LeaderEpoch::NONE,
            identity: ProducerIdentity { producer_id: 7, producer_epoch: 0 },
            shape: Shape { read_committed: true, sealed_append_time: false },
            state: "copying".to_owned(),
            notes: Notes::default(),
        })
    }

    fn decided(action: Action, answers: String) -> Decision {
        Decision { id: DecisionId(1), action, answers, decided_ms: 0 }
    }

    #[test]
    fn a_topic_that_held_a_copy_is_missed_until_somebody_decides_to_leave_it() {
        let topic = TopicName::new("A.t");
        let at = |partition| TopicPartition::new(topic.clone(), partition);
        let missed = |rows: &Rows| !rows.missed(&[topic.clone()].into()).is_empty();
        let mut rows = Rows::default();
        assert!(!missed(&rows), "never copied");
        let row = |record: &Record| (record.offset(), record.to_metadata());
        let (key, reason) = ("target-not-empty:1".to_owned(), "target not empty".to_owned());
        let state = "target-not-empty".to_owned();
        let incident = Some(Incident { key, reason, remedy: String::new() });
        let standing =
            Standing { target_topic_id: id(1), decision: None, incident, waits: None, since_ms: None, state };
        rows.anchors.insert(at(2), row(&Record::Standing(standing)));
        assert!(!missed(&rows), "it stood, and never held a copy");
        rows.anchors.insert(at(0), row(&anchor(id(1))));
        rows.anchors.insert(at(1), row(&anchor(id(1))));
        assert!(missed(&rows));
        rows.decisions.insert(at(0), decided(Action::CopyAnew, copy_anew_key(&[id(3)])));
        rows.decisions.insert(at(1), decided(Action::GoOn, "target-truncated:1".to_owned()));
        assert!(missed(&rows), "what was decided is about other incidents");
        rows.decisions.insert(at(1), decided(Action::CopyAnew, copy_anew_key(&[id(1)])));
        assert!(!missed(&rows));
        // A later version wrote what it said.
        rows.anchors = [(at(0), (5, "towpath-anchor-9 x=1".to_owned()))].into();
        rows.decisions.clear();
        assert!(missed(&rows));
        rows.decisions.insert(at(0), decided(Action::CopyAnew, copy_anew_key(&[id(1)])));
        assert!(!missed(&rows));
    }
}
