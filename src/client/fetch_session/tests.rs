//! Sessions against a small model of the broker's side (`batch-forwarding.md` 5.2, `broker-experiments.md` S10).

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::RngAlgorithm};

use super::*;
use crate::protocol::PartitionId;

type Key = (String, TopicId, i32);
/// Fetch offset, and the limit that stands for everything else of a want.
type View = BTreeMap<Key, (i64, i32)>;

struct BrokerSession {
    id: i32,
    epoch: i32,
    by_id: bool,
    view: View,
}

/// One broker that keeps one session of ours.
#[derive(Default)]
struct Broker {
    session: Option<BrokerSession>,
    last_id: i32,
    /// No slot is free: full answers without a session.
    full_house: bool,
}

impl Broker {
    /// The code, the session's id, and what the broker believes is asked for.
    fn handle(&mut self, version: i16, request: &FetchRequest) -> (ErrorCode, i32, View) {
        let by_id = version >= FIRST_VERSION_WITH_IDS;
        let listed = request.topics.iter().flat_map(|topic| {
            let (name, id) = (topic.topic.to_string(), TopicId::from(topic.topic_id));
            topic.partitions.iter().map(move |partition| {
                ((name.clone(), id, partition.partition), (partition.fetch_offset, partition.partition_max_bytes))
            })
        });
        let listed: View = listed.collect();
        if request.session_id == 0 {
            assert_eq!(request.session_epoch, 0);
            assert!(request.forgotten_topics_data.is_empty(), "a full request forgets by leaving out");
            if self.full_house {
                return (ErrorCode::NONE, 0, listed);
            }
            self.last_id += 1;
            self.session = Some(BrokerSession { id: self.last_id, epoch: 1, by_id, view: listed.clone() });
            return (ErrorCode::NONE, self.last_id, listed);
        }
        let Some(session) = self.session.as_mut().filter(|session| session.id == request.session_id) else {
            return (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0, View::new());
        };
        assert_eq!(session.by_id, by_id, "(c) names and ids mixed in a session");
        assert_eq!(session.epoch, request.session_epoch, "the session's epoch");
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                let key = (topic.topic.to_string(), TopicId::from(topic.topic_id), *partition);
                assert!(session.view.remove(&key).is_some(), "{key:?} is forgotten and was not there");
            }
        }
        session.view.extend(listed);
        let answer = (ErrorCode::NONE, session.id, session.view.clone());
        if session.view.is_empty() {
            self.session = None;
            return (ErrorCode::NONE, 0, View::new());
        }
        answer
    }
}

#[derive(Debug, Clone, Copy)]
struct Wish {
    slot: u8,
    offset: Option<i64>,
    /// Which topic of that name; 0 has no id.
    generation: u8,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Answered,
    /// The connection breaks before the broker saw the request, or after.
    LostBefore,
    LostAfter,
}

#[derive(Debug, Clone)]
enum Op {
    Wish(Wish),
    /// A request; wishes that come while it is on its way; a bit for each partition that has data.
    Request {
        during: Vec<Wish>,
        data: u8,
        outcome: Outcome,
    },
    Evict,
    FullHouse(bool),
    /// Both sides count on from the largest epoch.
    LargestEpoch,
}

#[derive(Default)]
struct Client {
    session: FetchSession,
    wishes: BTreeMap<u8, (TopicId, i64)>,
    /// Slots whose topic became another one while a request was on its way.
    other_topic: BTreeSet<u8>,
    /// The topic each slot was last wanted of, and not yet forgotten.
    ids: BTreeMap<u8, TopicId>,
}

fn partition_of(slot: u8) -> TopicPartition {
    TopicPartition { topic: TopicName::new(format!("t{}", slot / 2)), partition: PartitionId(i32::from(slot % 2)) }
}

fn limits() -> FetchLimits {
    FetchLimits { wait_ms: 1, bytes_min: 1, bytes_max: 1, read_committed: true, rack: String::new() }
}

impl Client {
    fn wish(&mut self, wish: Wish) {
        let id = match wish.generation {
            0 => TopicId::ZERO,
            generation => TopicId::new([10 * (wish.slot / 2 + 1) + generation; 16]),
        };
        let want = wish.offset.map(|fetch_offset| Want {
            fetch_offset,
            partition_bytes_max: 7,
            current_leader_epoch: LeaderEpoch::NONE,
            last_fetched_epoch: LeaderEpoch::NONE,
        });
        self.session.want(&partition_of(wish.slot), id, want);
        match wish.offset {
            Some(offset) => {
                self.wishes.insert(wish.slot, (id, offset));
            }
            None => {
                self.wishes.remove(&wish.slot);
            }
        }
        if let Some(before) = self.ids.get(&wish.slot).copied()
            && before != id
        {
            self.other_topic.insert(wish.slot);
        }
        if wish.offset.is_some() || self.ids.contains_key(&wish.slot) {
            self.ids.insert(wish.slot, id);
        }
    }

    fn expected(&self, by_id: bool) -> View {
        let key = |slot: u8, id: TopicId| {
            let partition = partition_of(slot);
            let (name, id) =
                if by_id { (String::new(), id) } else { (partition.topic.as_str().to_owned(), TopicId::ZERO) };
            (name, id, partition.partition.0)
        };
        self.wishes.iter().map(|(slot, (id, offset))| (key(*slot, *id), (*offset, 7))).collect()
    }
}

fn converse(ops: &[Op]) {
    let mut client = Client::default();
    let mut broker = Broker::default();
    let mut full_next = true;
    for op in ops {
        match op {
            Op::Wish(wish) => client.wish(*wish),
            Op::Evict => broker.session = None,
            Op::FullHouse(full) => broker.full_house = *full,
            Op::LargestEpoch => {
                if let Some(session) = &mut broker.session
                    && session.id == client.session.id
                {
                    session.epoch = i32::MAX;
                    client.session.epoch = i32::MAX;
                }
            }
            Op::Request { during, data, outcome } => {
                if client.session.wanted() == 0 {
                    continue;
                }
                assert_eq!(client.session.wanted(), client.wishes.len());
                assert_eq!(client.session.ids_known(), client.wishes.values().all(|(id, _)| !id.is_zero()));
                let version = if client.session.ids_known() { 17 } else { 12 };
                let request = client.session.next_request(version, &limits());
                assert!(!full_next || request.session_id == 0, "(b) not a full request after a loss");
                let expected = client.expected(version >= FIRST_VERSION_WITH_IDS);
                let asked = client.wishes.clone();
                client.other_topic.clear();
                // A request without the partition makes both sides forget it.
                client.ids.retain(|slot, _| asked.contains_key(slot));
                let answer = (*outcome != Outcome::LostBefore).then(|| broker.handle(version, &request));
                during.iter().for_each(|wish| client.wish(*wish));
                let Some((code, session_id, view)) = answer.filter(|_| *outcome == Outcome::Answered) else {
                    client.session.reset();
                    full_next = true;
                    continue;
                };
                let good = client.session.handle_answer(code, session_id);
                assert_eq!(good, code.is_none());
                full_next = !good || session_id == 0;
                if !good {
                    continue;
                }
                assert_eq!(view, expected, "(a) what the broker believes is not what is wanted");
                for (slot, (id, offset)) in asked.iter().filter(|(slot, _)| data & (1 << **slot) != 0) {
                    if version >= FIRST_VERSION_WITH_IDS {
                        assert_eq!(client.session.topic_of(*id), Some(partition_of(*slot).topic));
                    }
                    let told = client.session.handle_partition(&partition_of(*slot));
                    let same = !client.other_topic.contains(slot);
                    assert_eq!(told, same.then_some(*offset), "the offset that slot {slot} was asked for");
                }
                // What sent data or an error is listed anew, even with the same offset.
                let again: Vec<u8> = asked.keys().copied().filter(|slot| data & (1 << slot) != 0).collect();
                for slot in again {
                    let entry = client.session.entries.get(&partition_of(slot));
                    assert!(entry.is_none_or(|entry| entry.wanted.is_none() || entry.wanted != entry.told));
                }
            }
        }
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    // One generation mostly: re-created topics and topics without an id are the exception.
    let generation = prop_oneof![8 => Just(1_u8), 1 => Just(2), 1 => Just(0)];
    (0_u8..6, prop::option::weighted(0.7, 0_i64..4), generation).prop_map(|(slot, offset, generation)| Wish {
        slot,
        offset,
        generation,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let outcome =
        prop_oneof![8 => Just(Outcome::Answered), 1 => Just(Outcome::LostBefore), 1 => Just(Outcome::LostAfter)];
    prop_oneof![
        6 => wish().prop_map(Op::Wish),
        6 => (prop::collection::vec(wish(), 0..3), any::<u8>(), outcome)
            .prop_map(|(during, data, outcome)| Op::Request { during, data, outcome }),
        1 => Just(Op::Evict),
        1 => any::<bool>().prop_map(Op::FullHouse),
        1 => Just(Op::LargestEpoch),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        // The default generator is slow without optimisation.
        rng_algorithm: RngAlgorithm::XorShift,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_broker_always_believes_what_is_wanted(ops in prop::collection::vec(op(), 0..40)) {
        converse(&ops);
    }
}

fn told(session: &mut FetchSession, version: i16) -> FetchRequest {
    session.next_request(version, &limits())
}

fn want(offset: i64) -> Option<Want> {
    Some(Want {
        fetch_offset: offset,
        partition_bytes_max: 7,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
    })
}

#[test]
fn an_answer_on_its_way_does_not_revive_the_session_of_a_topic_that_was_created_anew() {
    let partition = partition_of(0);
    let mut session = FetchSession::default();
    session.want(&partition, TopicId::new([1; 16]), want(0));
    told(&mut session, 17);
    session.want(&partition, TopicId::new([1; 16]), None);
    session.want(&partition, TopicId::new([2; 16]), want(0));
    assert!(session.handle_answer(ErrorCode::NONE, 9));
    assert_eq!(session.handle_partition(&partition), None, "the old topic's records at the same offset");
    let next = told(&mut session, 17);
    assert_eq!((next.session_id, next.topics.len()), (0, 1));
    assert_eq!(TopicId::from(next.topics[0].topic_id), TopicId::new([2; 16]));
}

#[test]
fn a_topic_without_an_id_begins_another_session() {
    let mut session = FetchSession::default();
    session.want(&partition_of(0), TopicId::new([1; 16]), want(0));
    told(&mut session, 17);
    assert!(session.handle_answer(ErrorCode::NONE, 9));
    session.want(&partition_of(2), TopicId::ZERO, want(0));
    assert!(!session.ids_known());
    assert_eq!(told(&mut session, 12).session_id, 0, "names in a session of ids are refused with 106");
}
