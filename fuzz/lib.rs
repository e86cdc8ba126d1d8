//! Fuzz targets as plain functions over library code: bytes in, no panic, no abort.
//!
//! `dev/fuzz` hands them to libFuzzer (`fuzz/libfuzzer`). Without it, the smoke test runs all of them on the stable
//! compiler over random changes of valid inputs (`seeds.rs`), and over what libFuzzer found.

use bytes::Bytes;
use kafka_protocol::messages as wire;
use kafka_protocol::messages::ApiKey;
use towpath::batch::{self, AbortFilter, Codec, Entry, ProducerIdentity, compression::compress, open};
use towpath::config::{self, Environment};
use towpath::mirror::{
    anchor::Record,
    lease::{Assignment, MemberMetadata},
};
use towpath::protocol::{
    AbortedTransaction, FetchResponse, MetadataResponse, OffsetCommitResponse, OffsetFetchResponse, ProduceResponse,
    decode_response, frame_length, split_response,
};

pub mod seeds;

/// A target by its name: bytes in, no panic.
pub type Target = (&'static str, fn(&[u8]));

/// Everything that a peer, another process or a file can hand us.
pub const TARGETS: &[Target] = &[
    ("frame", fuzz_frame),
    ("fetch_response", fuzz_fetch_response),
    ("produce_response", fuzz_produce_response),
    ("metadata", fuzz_metadata),
    ("offsets", fuzz_offsets),
    ("guard", fuzz_guard),
    ("walk", fuzz_walk),
    ("abort_filter", fuzz_abort_filter),
    ("open", fuzz_open),
    ("legacy", fuzz_legacy),
    ("anchor", fuzz_anchor),
    ("lease", fuzz_lease),
    ("properties", fuzz_properties),
];

/// Splits the leading byte off as a small number; the rest aliases nothing.
fn split_choice(data: &[u8]) -> (i16, Bytes) {
    match data.split_first() {
        Some((choice, rest)) => (i16::from(*choice), Bytes::copy_from_slice(rest)),
        None => (0, Bytes::new()),
    }
}

/// A length prefix, then a frame.
pub fn fuzz_frame(data: &[u8]) {
    let Some((prefix, frame)) = data.split_first_chunk::<4>() else {
        return;
    };
    let _ = frame_length(*prefix, 1 << 20);
    let frame = Bytes::copy_from_slice(frame);
    for (api, version) in [(ApiKey::Fetch, 4), (ApiKey::Fetch, 12), (ApiKey::ApiVersions, 3)] {
        if let Ok((_, body)) = split_response(api, version, frame.clone()) {
            assert!(body.len() <= frame.len());
        }
    }
}

/// A version byte, then a FetchResponse body. What decodes goes on to the batch walk and the abort filter.
pub fn fuzz_fetch_response(data: &[u8]) {
    let (version, body) = split_choice(data);
    let Ok(response) = FetchResponse::decode(body, version) else {
        return;
    };
    for partition in response.topics.into_iter().flat_map(|topic| topic.partitions) {
        judge(partition.records, partition.aborted_transactions);
    }
}

/// A version byte, then a ProduceResponse body.
pub fn fuzz_produce_response(data: &[u8]) {
    let (version, body) = split_choice(data);
    let _ = ProduceResponse::decode(body, version);
}

/// A version byte, then a MetadataResponse body.
pub fn fuzz_metadata(data: &[u8]) {
    let (version, body) = split_choice(data);
    let _ = MetadataResponse::decode(body, version);
}

/// A version byte, then the body of an OffsetCommit or OffsetFetch response.
pub fn fuzz_offsets(data: &[u8]) {
    let (version, body) = split_choice(data);
    let _ = OffsetCommitResponse::decode(body.clone(), version);
    let _ = OffsetFetchResponse::decode(body, version);
}

macro_rules! guarded {
    ($(($api:ident, $response:ident)),* $(,)?) => {
        /// APIs whose responses pass the length walk.
        const GUARDED: &[ApiKey] = &[$(ApiKey::$api),*];

        fn decode_guarded(api: ApiKey, version: i16, body: Bytes) {
            match api {
                $(ApiKey::$api => drop(decode_response::<wire::$response>(api, version, body)),)*
                _ => {}
            }
        }
    };
}

guarded!(
    (ApiVersions, ApiVersionsResponse),
    (FindCoordinator, FindCoordinatorResponse),
    (JoinGroup, JoinGroupResponse),
    (SyncGroup, SyncGroupResponse),
    (Heartbeat, HeartbeatResponse),
    (LeaveGroup, LeaveGroupResponse),
    (ListOffsets, ListOffsetsResponse),
    (DescribeProducers, DescribeProducersResponse),
    (DescribeConfigs, DescribeConfigsResponse),
    (CreateTopics, CreateTopicsResponse),
    (CreatePartitions, CreatePartitionsResponse),
    (InitProducerId, InitProducerIdResponse),
    (OffsetForLeaderEpoch, OffsetForLeaderEpochResponse),
    (DescribeCluster, DescribeClusterResponse),
    (DescribeGroups, DescribeGroupsResponse),
    (ListGroups, ListGroupsResponse),
    (SaslHandshake, SaslHandshakeResponse),
    (SaslAuthenticate, SaslAuthenticateResponse),
    (IncrementalAlterConfigs, IncrementalAlterConfigsResponse),
    (DeleteTopics, DeleteTopicsResponse),
    (DeleteRecords, DeleteRecordsResponse),
    (DeleteGroups, DeleteGroupsResponse),
);

/// A byte that picks the API, a version byte, then a response body for the length walk and the crate's decoder.
pub fn fuzz_guard(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let (version, body) = split_choice(&rest);
    if let Some(api) = GUARDED.get(choice as usize % GUARDED.len()) {
        decode_guarded(*api, version, body);
    }
}

/// The records of a partition: walked, checked, read and sealed.
pub fn fuzz_walk(data: &[u8]) {
    judge(Bytes::copy_from_slice(data), Vec::new());
}

/// A list of aborted transactions (a count byte, then a producer and an offset byte each), then records.
pub fn fuzz_abort_filter(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else {
        return;
    };
    let Some((list, records)) = rest.split_at_checked(usize::from(*count) * 2) else {
        return;
    };
    let aborted = list.chunks_exact(2).filter_map(|pair| {
        let [producer_id, first_offset] = pair else {
            return None;
        };
        Some(AbortedTransaction { producer_id: i64::from(*producer_id), first_offset: i64::from(*first_offset) })
    });
    judge(Bytes::copy_from_slice(records), aborted.collect());
}

fn judge(records: Bytes, aborted: Vec<AbortedTransaction>) {
    let length = records.len();
    let mut filter = AbortFilter::new(aborted);
    let mut walk = batch::walk(records);
    let mut walked = 0;
    let mut failed = false;
    for entry in walk.by_ref() {
        match entry {
            Ok(Entry::Legacy { bytes, .. }) => walked += bytes.len(),
            Ok(Entry::Batch(batch)) => {
                walked += batch.bytes.len();
                assert_eq!(batch.bytes.len(), batch.header.total_size());
                assert!(batch.header.next_offset() > batch.header.base_offset);
                let _ = batch.verify_crc();
                filter.judge(&batch);
                if let Ok(records) = batch::records(&batch) {
                    records.for_each(drop);
                }
                let sealed = batch::seal(&batch, ProducerIdentity { producer_id: 1, producer_epoch: 0 }, 0);
                assert!(sealed.is_err() || !batch.header.is_control(), "a marker was sealed");
            }
            Err(_) => failed = true,
        }
    }
    assert!(failed || walked + walk.cut_off() == length);
}

/// What a payload may become.
const OPEN_MAX: usize = 1 << 20;
const IDENTITY: ProducerIdentity = ProducerIdentity { producer_id: 1, producer_epoch: 0 };

/// A codec byte, then records: opened without a look at their checksum, cut by a small limit, and opened again.
pub fn fuzz_open(data: &[u8]) {
    let (choice, records) = split_choice(data);
    for entry in batch::walk(records) {
        if let Ok(Entry::Batch(batch)) = entry
            && let Ok(contents) = open::decode(&batch, OPEN_MAX, choice & 1 == 0)
        {
            reopen(&contents);
        }
    }
}

/// A byte for format and codec, one for whether the rest is compressed, then what a wrapper holds.
pub fn fuzz_legacy(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let (whole, inner) = split_choice(&rest);
    let codecs = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let (magic, code) = ((choice & 1) as u8, (choice >> 1) as usize % codecs.len());
    let value = if whole & 1 == 0 { compress(codecs[code], &inner).unwrap_or_default() } else { inner.to_vec() };
    let mut body = vec![magic, code as u8];
    body.extend_from_slice(&[0; 8][..usize::from(magic) * 8]);
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&(value.len() as i32).to_be_bytes());
    body.extend_from_slice(&value);
    let mut entry = 1000_i64.to_be_bytes().to_vec();
    entry.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    entry.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
    entry.extend_from_slice(&body);
    let mut run = open::LegacyRun::default();
    for entry in batch::walk(entry.into()) {
        let Ok(Entry::Legacy { bytes, .. }) = entry else {
            continue;
        };
        if !run.is_full_for(&bytes) && run.push(&bytes, OPEN_MAX).is_ok() {
            let contents = run.finish().expect("what was added was checked").expect("something was added");
            reopen(&contents);
        }
    }
}

/// Whatever was opened goes out as batches that can be opened again, with the same records.
fn reopen(contents: &open::Contents) {
    let mut records = contents.records();
    let mut count = 0;
    while let Some(encoded) =
        open::encode(&mut records, open::Cut::Limit(Some(300)), IDENTITY, 7).expect("what was opened can be packed")
    {
        count += encoded.records;
        let Some(Ok(Entry::Batch(batch))) = batch::walk(encoded.bytes).next() else {
            panic!("no batch came out");
        };
        assert!(batch.verify_crc().is_ok() && !batch.header.is_thinned());
        let again = open::decode(&batch, usize::MAX, true).expect("what was packed can be opened");
        assert_eq!(again.count(), encoded.records);
    }
    assert_eq!(count, contents.count());
}

/// An offset byte, then the metadata of a commit: an anchor, or a partition that stands without one.
pub fn fuzz_anchor(data: &[u8]) {
    let (offset, text) = split_choice(data);
    let text = String::from_utf8_lossy(&text);
    if let Ok(record) = Record::from_commit(i64::from(offset), &text) {
        // Reasons are cut when they are written, so that the first writing may say less than what was read.
        let written = record.to_metadata();
        let again = Record::from_commit(record.offset(), &written).expect("what we write can be read");
        assert_eq!((again.offset(), again.to_metadata()), (record.offset(), written));
    }
}

/// What members of the group tell each other.
pub fn fuzz_lease(data: &[u8]) {
    if let Ok(metadata) = MemberMetadata::decode(data) {
        assert_eq!(metadata.encode(), data);
    }
    if let Ok(assignment) = Assignment::decode(data) {
        assert_eq!(assignment.encode(), data);
    }
}

fn environment() -> Environment {
    Environment { state_dir: Some("state".into()) }
}

/// A file of settings; one that is refused says why.
pub fn fuzz_properties(data: &[u8]) {
    match config::parse(data, "mm2.properties", &environment()) {
        Ok(loaded) => loaded.notes.iter().for_each(|note| drop(note.to_string())),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

#[cfg(test)]
mod smoke;
