//! What a scenario works with: a broker it can restart, connections, and the transcript.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, BrokerId, CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, FetchResponse, FindCoordinatorRequest,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, MetadataResponse, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};
use regex::Regex;
use uuid::Uuid;

use super::batches::{Batch, describe};
use super::shown::Shown;
use super::wire::{Connection, Gone};

const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// Our own times begin this long ago, so that they are never mistaken for the broker's.
const BASE_AGO_MS: i64 = 600_000;
const OWN_SPAN_MS: i64 = 300_000;
const HOUR_MS: i64 = 3_600_000;

/// A single broker of one version, real or embedded.
pub(super) trait Broker {
    fn address(&self) -> String;
    /// Down and up again at the same address, with its data.
    fn restart(&mut self);
    /// The cleaner looks at this topic now; a real one does so by itself.
    fn clean(&mut self, _topic: &str) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V2_8_2,
    V3_9_2,
    V4_3_1,
}

impl Version {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V4_3_1 => "4.3.1",
            Self::V3_9_2 => "3.9.2",
            Self::V2_8_2 => "2.8.2",
        }
    }
}

pub(super) struct Run<'a> {
    broker: &'a mut dyn Broker,
    pub(super) version: Version,
    /// The first of our own timestamps.
    pub(super) base: i64,
    connections: BTreeMap<&'static str, Connection>,
    names: BTreeMap<String, String>,
    text: String,
}

const MAIN: &str = "";

impl<'a> Run<'a> {
    pub(super) fn new(broker: &'a mut dyn Broker, version: Version) -> Self {
        let base = now_ms() - BASE_AGO_MS;
        Self { broker, version, base, connections: BTreeMap::new(), names: BTreeMap::new(), text: String::new() }
    }

    pub(super) fn transcript(self) -> String {
        self.text
    }

    pub(super) fn title(&mut self, words: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        self.text.push_str(&format!("{gap}== {words}\n"));
    }

    pub(super) fn say(&mut self, words: &str) {
        self.text.push_str(words);
        self.text.push('\n');
    }

    /// From here on `text` reads as `<name>`: a number as a producer's id, everything else wherever it appears.
    pub(super) fn name(&mut self, text: impl ToString, name: &str) {
        self.names.insert(text.to_string(), format!("<{name}>"));
    }

    /// One request on the scenario's own connection, with its answer in the transcript.
    pub(super) fn call<R: Request<Response: Debug>>(&mut self, label: &str, version: i16, request: &R) -> R::Response {
        self.call_on(MAIN, label, version, request)
    }

    pub(super) fn call_on<R: Request<Response: Debug>>(
        &mut self,
        on: &'static str,
        label: &str,
        version: i16,
        request: &R,
    ) -> R::Response {
        self.try_call_on(on, label, version, request).unwrap_or_else(|gone| panic!("{label}: {gone:?}\n{}", self.text))
    }

    /// The same where it is open whether there is an answer.
    pub(super) fn try_call_on<R: Request<Response: Debug>>(
        &mut self,
        on: &'static str,
        label: &str,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Gone> {
        let answer = self.quiet_on(on, version, request);
        self.show::<R>(label, version, answer.as_ref());
        if answer.is_err() {
            self.connections.remove(on);
        }
        answer
    }

    pub(super) fn send_on<R: Request<Response: Debug>>(&mut self, on: &'static str, version: i16, request: &R) {
        self.connection(on).send(version, request).expect("the connection is open");
    }

    pub(super) fn receive_on<R: Request<Response: Debug>>(
        &mut self,
        on: &'static str,
        label: &str,
        version: i16,
    ) -> R::Response {
        let answer = self.connection(on).receive::<R>(version);
        self.show::<R>(label, version, answer.as_ref());
        answer.unwrap_or_else(|gone| panic!("{label}: {gone:?}\n{}", self.text))
    }

    /// One request that leaves no trace in the transcript.
    pub(super) fn quiet<R: Request<Response: Debug>>(&mut self, version: i16, request: &R) -> R::Response {
        self.quiet_on(MAIN, version, request).unwrap_or_else(|gone| panic!("{gone:?} after\n{}", self.text))
    }

    fn quiet_on<R: Request<Response: Debug>>(
        &mut self,
        on: &'static str,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Gone> {
        self.connection(on).call(version, request)
    }

    pub(super) fn connection(&mut self, on: &'static str) -> &mut Connection {
        let address = self.broker.address();
        self.connections
            .entry(on)
            .or_insert_with(|| Connection::open(&address).expect("the broker accepts connections"))
    }

    pub(super) fn close(&mut self, on: &'static str) {
        self.connections.remove(on);
    }

    /// An answer that was received elsewhere.
    pub(super) fn show_answer<R: Request<Response: Debug>>(&mut self, label: &str, version: i16, answer: &R::Response) {
        self.show::<R>(label, version, Ok(answer));
    }

    fn show<R: Request<Response: Debug>>(&mut self, label: &str, version: i16, answer: Result<&R::Response, &Gone>) {
        let api = ApiKey::try_from(R::KEY).map_or_else(|()| R::KEY.to_string(), |key| format!("{key:?}"));
        let shown = match answer {
            Ok(answer) => Shown::of(answer).render(&|field, text| self.rename(field, text)),
            Err(gone) => format!("{gone:?}").to_lowercase(),
        };
        self.say(&format!("{label} | {} v{version}\n  {}", api.trim_end_matches("Key"), shown.replace('\n', "\n  ")));
    }

    fn rename(&self, field: &str, text: &str) -> String {
        if let Ok(number) = text.parse::<i64>() {
            return match (field, number) {
                ("producer_id", _) => self.names.get(text).cloned(),
                ("port", 0..) => Some("<port>".to_owned()),
                ("session_id", 1..) => Some("<session>".to_owned()),
                _ => self.time(number),
            }
            .unwrap_or_else(|| text.to_owned());
        }
        let mut text = text.to_owned();
        for (from, to) in self.names.iter().filter(|(from, _)| from.parse::<i64>().is_err()) {
            text = text.replace(from, to);
        }
        // Ids of members that nobody gave a name: random, but of a known shape.
        uuid().replace_all(&text, "<uuid>").into_owned()
    }

    fn time(&self, number: i64) -> Option<String> {
        let since = number - self.base;
        match since {
            0..OWN_SPAN_MS => Some(format!("T+{since}")),
            _ if since.abs() > 24 * HOUR_MS => None,
            // Future times of ours are whole hours ahead, the broker's are minutes ahead.
            _ if since >= HOUR_MS => Some(format!("T+{since}")),
            _ => Some("<now>".to_owned()),
        }
    }

    pub(super) fn restart(&mut self) {
        self.connections.clear();
        self.broker.restart();
        self.say("-- the broker was restarted");
    }

    pub(super) fn clean(&mut self, topic: &str) {
        self.broker.clean(topic);
    }

    /// Asks again until the answer will do, which comes back; leaves no trace.
    pub(super) fn wait_until<R: Request<Response: Debug>>(
        &mut self,
        what: &str,
        version: i16,
        request: &R,
        enough: impl Fn(&R::Response) -> bool,
    ) -> R::Response {
        let end = Instant::now() + DEADLINE;
        loop {
            let answer = self.quiet(version, request);
            if enough(&answer) {
                return answer;
            }
            assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
            std::thread::sleep(PAUSE);
        }
    }

    /// For what only the passing of time brings about.
    pub(super) fn pause(&mut self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// A topic that is ready for use. Returns its id, zeros where there are none; the id is named `id of <topic>`.
    pub(super) fn topic(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
        let end = Instant::now() + DEADLINE;
        // A topic that was just deleted may still be there for a while (36).
        let code = loop {
            let code = self.try_topic(topic, partitions, configs);
            if code != 36 || Instant::now() > end {
                break code;
            }
            std::thread::sleep(PAUSE);
        };
        assert_eq!(code, 0, "topic {topic} with {configs:?}");
        self.await_topic(topic)
    }

    pub(super) fn try_topic(&mut self, topic: &str, partitions: i32, configs: &[(&str, &str)]) -> i16 {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value))));
        let wanted = CreatableTopic::default()
            .with_name(name_of(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(configs.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![wanted]).with_timeout_ms(20_000);
        self.quiet(5, &request).topics[0].error_code
    }

    fn await_topic(&mut self, topic: &str) -> Uuid {
        let ready = |answer: &MetadataResponse| {
            answer.topics.iter().all(|one| {
                one.error_code == 0
                    && !one.partitions.is_empty()
                    && one.partitions.iter().all(|partition| partition.error_code == 0 && partition.leader_id.0 >= 0)
            })
        };
        let request = metadata(topic);
        self.wait_until("topic is there", 10, &request, ready);
        // A broker answers Metadata a little before it leads.
        let ends = |answer: &kafka_protocol::messages::ListOffsetsResponse| {
            answer.topics.iter().all(|topic| topic.partitions.iter().all(|one| one.error_code == 0))
        };
        let answer = self.quiet(10, &request);
        let count = i32::try_from(answer.topics[0].partitions.len()).expect("small");
        self.wait_until("topic is led", 5, &list_offsets(topic, 0..count, -1), ends);
        let id = answer.topics[0].topic_id;
        self.name(id, &format!("id of {topic}"));
        id
    }

    pub(super) fn id_of(&mut self, topic: &str) -> Uuid {
        self.quiet(10, &metadata(topic)).topics[0].topic_id
    }

    /// What a name stands for.
    pub(super) fn named(&self, name: &str) -> String {
        let wanted = format!("<{name}>");
        let found = self.names.iter().find(|(_, known)| **known == wanted);
        found.map(|(text, _)| text.clone()).expect("the name was given")
    }

    /// After a restart the partition has its leader again.
    pub(super) fn await_leader(&mut self, topic: &str) {
        // ZooKeeper's broker leads before it knows that the topic exists.
        self.wait_until("topic is known", 10, &metadata(topic), |answer| {
            answer.topics.iter().all(|one| one.error_code == 0 && one.partitions.iter().all(|one| one.error_code == 0))
        });
        self.wait_until("topic is led", 5, &list_offsets(topic, 0..1, -1), |answer| {
            answer.topics[0].partitions[0].error_code == 0
        });
    }

    /// A frame as it is, on a connection of its own; only how long the answer is and how it begins is shown.
    pub(super) fn raw(&mut self, label: &str, body: &[u8]) {
        let mut connection = Connection::open(&self.broker.address()).expect("the broker accepts connections");
        let answer = connection.send_frame(body).and_then(|()| connection.receive_frame());
        let shown = match answer {
            Ok(answer) => format!("answered: {:?}", answer.get(..6).unwrap_or_default()),
            Err(gone) => format!("{gone:?}").to_lowercase(),
        };
        self.say(&format!("{label}\n  {shown}"));
    }

    pub(super) fn delete_topic(&mut self, topic: &str) {
        let request = DeleteTopicsRequest::default().with_topic_names(vec![name_of(topic)]).with_timeout_ms(20_000);
        let code = self.quiet(5, &request).responses[0].error_code;
        assert_eq!(code, 0, "topic {topic} is deleted");
        self.wait_until("topic is gone", 10, &metadata(topic), |answer| answer.topics[0].error_code == 3);
        self.wait_until("partition is gone", 5, &list_offsets(topic, 0..1, -1), |answer| {
            answer.topics[0].partitions[0].error_code == 3
        });
    }

    /// The coordinator of a group (0) or a transaction (1) is ready.
    pub(super) fn await_coordinator(&mut self, key: &str, kind: i8) {
        let request = FindCoordinatorRequest::default().with_key(text(key)).with_key_type(kind);
        self.wait_until("there is a coordinator", 3, &request, |answer| answer.error_code == 0);
    }

    /// A producer id of the broker's own, called `<name>` from now on.
    pub(super) fn producer_id(&mut self, name: &str) -> i64 {
        let request = InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
        // A broker that has no block of ids yet says 14.
        let answer = self.wait_until("producer ids are there", 1, &request, |answer| answer.error_code != 14);
        assert_eq!(answer.error_code, 0, "a producer id for anybody");
        self.name(answer.producer_id.0, name);
        answer.producer_id.0
    }

    /// Produce at version 8 to partition 0; base offset and error come back too.
    pub(super) fn produce(&mut self, label: &str, topic: &str, batch: &Batch) -> (i16, i64) {
        self.produce_at(8, label, topic, None, &batch.encode())
    }

    pub(super) fn produce_at(
        &mut self,
        version: i16,
        label: &str,
        topic: &str,
        transactional_id: Option<&str>,
        records: &Bytes,
    ) -> (i16, i64) {
        let answer = self.call(label, version, &produce(topic, transactional_id, records));
        let partition = &answer.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    }

    /// Everything from `offset` on of partition 0, one line for each batch, by Fetch v11.
    pub(super) fn log(&mut self, label: &str, topic: &str, offset: i64) {
        self.fetch_records(label, 11, &fetch(topic, offset));
    }

    /// The same without what begins at `below` or later: whether a fetch goes on past a segment's end is not what we ask.
    pub(super) fn log_below(&mut self, label: &str, topic: &str, offset: i64, below: i64) {
        let records = self.quiet(11, &fetch(topic, offset)).responses[0].partitions[0].records.clone();
        let lines = describe(&records.unwrap_or_default(), &|field, text| self.rename(field, text));
        self.say(&format!("{label} | Fetch v11, offsets below {below}"));
        for line in lines {
            let base = line.trim_start_matches("offsets ").split('+').next().and_then(|base| base.parse().ok());
            if base.is_none_or(|base: i64| base < below) {
                self.say(&format!("    {line}"));
            }
        }
    }

    /// Shows the answer with its records as lines.
    pub(super) fn fetch_records(&mut self, label: &str, version: i16, request: &FetchRequest) -> FetchResponse {
        let answer = self.quiet(version, request);
        let mut shown = answer.clone();
        let mut lines = Vec::new();
        for topic in &mut shown.responses {
            for partition in &mut topic.partitions {
                if let Some(records) = partition.records.take() {
                    lines.extend(describe(&records, &|field, text| self.rename(field, text)));
                }
            }
        }
        self.show::<FetchRequest>(label, version, Ok(&shown));
        for line in lines {
            self.say(&format!("    {line}"));
        }
        answer
    }

    pub(super) fn ends(&mut self, label: &str, topic: &str) {
        for (words, time) in [("earliest", -2), ("latest", -1)] {
            self.call(&format!("{label}, {words}"), 5, &list_offsets(topic, 0..1, time));
        }
    }
}

pub(super) fn text(words: &str) -> StrBytes {
    StrBytes::from_string(words.to_owned())
}

pub(super) fn name_of(topic: &str) -> TopicName {
    TopicName(text(topic))
}

pub(super) fn metadata(topic: &str) -> MetadataRequest {
    let topics = vec![MetadataRequestTopic::default().with_name(Some(name_of(topic)))];
    MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false)
}

pub(super) fn list_offsets(topic: &str, partitions: std::ops::Range<i32>, time: i64) -> ListOffsetsRequest {
    let partitions = partitions.map(|index| {
        ListOffsetsPartition::default().with_partition_index(index).with_timestamp(time).with_current_leader_epoch(-1)
    });
    let topic = ListOffsetsTopic::default().with_name(name_of(topic)).with_partitions(partitions.collect());
    ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
}

pub(super) fn produce(topic: &str, transactional_id: Option<&str>, records: &Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records.clone()));
    let topic = TopicProduceData::default().with_name(name_of(topic)).with_partition_data(vec![partition]);
    ProduceRequest::default()
        .with_transactional_id(transactional_id.map(|id| text(id).into()))
        .with_acks(-1)
        .with_timeout_ms(20_000)
        .with_topic_data(vec![topic])
}

/// Partition 0 outside of any session, without waiting.
pub(super) fn fetch(topic: &str, offset: i64) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_current_leader_epoch(-1)
        .with_fetch_offset(offset)
        .with_last_fetched_epoch(-1)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name_of(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(0)
        .with_min_bytes(0)
        .with_max_bytes(8 << 20)
        .with_session_id(0)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

fn uuid() -> &'static Regex {
    static UUID: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        Regex::new(pattern).expect("constant pattern")
    });
    &UUID
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    i64::try_from(since.as_millis()).expect("64 bits")
}
