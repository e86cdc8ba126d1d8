//! Compressed batches, topics with a codec of their own, old formats: broker-experiments S1, S5, S12.

use bytes::Bytes;

use super::kit::{Kit, WALL_MS, by, changed, plain};
use crate::batch::compression::{compress, decompress};
use crate::batch::{BatchBuilder, BatchHeader, Codec, Entry, HEADER_LEN, walk};
use crate::testkit::BrokerVersion;

const CODECS: [(Codec, i16, &str); 5] = [
    (Codec::None, 0, "uncompressed"),
    (Codec::Gzip, 1, "gzip"),
    (Codec::Snappy, 2, "snappy"),
    (Codec::Lz4, 3, "lz4"),
    (Codec::Zstd, 4, "zstd"),
];

/// An uncompressed batch in a codec.
fn in_codec(batch: &Bytes, codec: Codec, code: i16) -> Bytes {
    let payload = compress(codec, &batch[HEADER_LEN..]).unwrap();
    let bytes: Bytes = [&batch[..HEADER_LEN], &payload].concat().into();
    changed(&bytes, |header| {
        header.batch_length = payload.len() as i32 + 49;
        header.attributes |= code;
    })
}

fn only(kit: &Kit) -> (BatchHeader, Bytes) {
    let entries = kit.cluster.topic("t").unwrap().partitions[0].entries.clone();
    assert_eq!(entries.len(), 1);
    let batch = entries[0].batch().unwrap();
    batch.verify_crc().unwrap();
    (batch.header, entries[0].bytes.clone())
}

#[test]
fn a_batch_is_kept_or_rebuilt_by_the_codec_of_the_topic() {
    // S1, first table: identical where the topic keeps the codec, else rebuilt with the same count and identity.
    for (codec, code, name) in CODECS {
        for (topic_codec, _, topic_name) in CODECS {
            let mut kit = Kit::new(BrokerVersion::V4_3_1);
            kit.topic("t", &[("compression.type", topic_name)]);
            let sent = in_codec(&by(&plain(50), 7, 1, 30), codec, code);
            assert_eq!(kit.outcome(sent.clone()), (0, 0), "{name} to {topic_name}");
            let (header, bytes) = only(&kit);
            assert_eq!((header.codec(), header.records_count), (topic_codec, 50));
            assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 1, 30));
            if codec == topic_codec {
                assert_eq!(bytes[16..], sent[16..]);
            } else {
                let payload = decompress(topic_codec, &bytes[HEADER_LEN..], 1 << 20).unwrap();
                assert_eq!(payload, plain(50)[HEADER_LEN..]);
            }
            assert_eq!(kit.outcome(sent), (0, 0), "still recognised");
        }
    }
}

/// Keys 5 to 9 of a batch of ten, as cleaning leaves it: the range stays.
fn thinned(codec: Codec, code: i16) -> Bytes {
    let ten = plain(10);
    // Each record takes as many bytes as the next.
    let payload = &ten[HEADER_LEN..];
    let half: Bytes = [&ten[..HEADER_LEN], &payload[payload.len() / 2..]].concat().into();
    let half = changed(&half, |header| {
        header.batch_length = (payload.len() / 2) as i32 + 49;
        header.records_count = 5;
    });
    in_codec(&half, codec, code)
}

#[test]
fn thinned_batches_are_refused_and_patched_ones_do_what_real_brokers_did() {
    // S5, the table of what was forwarded.
    for (codec, code, name) in CODECS {
        for topic in ["producer", if codec == Codec::Lz4 { "gzip" } else { "lz4" }] {
            let mut kit = Kit::new(BrokerVersion::V4_3_1);
            kit.topic("t", &[("compression.type", topic)]);
            assert_eq!(kit.outcome(thinned(codec, code)), (87, -1), "{name} to {topic}");
            let patched = changed(&thinned(codec, code), |header| header.last_offset_delta = 4);
            match (codec, topic) {
                (Codec::None, "producer") => {
                    assert_eq!(kit.outcome(patched), (0, 0));
                    let (header, _) = only(&kit);
                    assert_eq!(header.last_offset(), 4);
                    let batch = kit.cluster.topic("t").unwrap().partitions[0].entries[0].batch().unwrap();
                    let inner: Vec<i64> = crate::batch::records(&batch).unwrap().map(|r| r.unwrap().offset).collect();
                    assert_eq!(inner, [5, 6, 7, 8, 9], "wrong inner offsets are kept");
                }
                (_, "producer") => assert_eq!(kit.outcome(patched), (-1, -1), "{name}"),
                _ => {
                    assert_eq!(kit.outcome(patched), (0, 0), "{name} to {topic}: rebuilt contiguous");
                    assert_eq!(only(&kit).0.last_offset(), 4);
                }
            }
        }
    }
}

#[test]
fn damaged_streams_and_keys_are_found_inside() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("cleanup.policy", "compact")]);
    let good = in_codec(&plain(50), Codec::Zstd, 4);
    let cut: Bytes = good.slice(..good.len() - 5);
    let cut = changed(&cut, |header| header.batch_length -= 5);
    assert_eq!(kit.outcome(cut), (-1, -1));
    let without = in_codec(&super::kit::without_key(), Codec::Gzip, 1);
    assert_eq!(kit.produce(without).error_code, 87);
    // The largest timestamp is that of the records, whatever the header says.
    let wrong = changed(&good, |header| header.max_timestamp = 5);
    assert_eq!(kit.outcome(wrong), (0, 0));
    assert_eq!(only(&kit).0.max_timestamp, WALL_MS);
}

#[test]
fn cleaning_opens_compressed_batches() {
    for (codec, code, _) in CODECS {
        let mut kit = Kit::new(BrokerVersion::V4_3_1);
        kit.topic("t", &[("cleanup.policy", "compact")]);
        kit.produce(in_codec(&by(&plain(10), 9, 0, 0), codec, code));
        kit.produce(in_codec(&plain(5), codec, code));
        assert_eq!(kit.cluster.compact(kit.now, "t", 0).unwrap().thinned, 1);
        let batch = kit.cluster.topic("t").unwrap().partitions[0].entries[0].batch().unwrap();
        batch.verify_crc().unwrap();
        assert_eq!((batch.header.codec(), batch.header.records_count, batch.header.last_offset_delta), (codec, 5, 9));
    }
}

#[test]
fn old_formats_refuse_producers_and_convert_the_rest() {
    // S12.
    for (format, magic) in [("0.10.2", 1), ("0.9.0", 0)] {
        let mut kit = Kit::new(BrokerVersion::V2_8_2);
        kit.topic("t", &[("message.format.version", format)]);
        assert_eq!(kit.outcome(by(&plain(3), 9, 0, 0)), (43, -1));
        assert_eq!(kit.outcome(plain(3)), (0, 0));
        assert_eq!(kit.outcome(in_codec(&plain(3), Codec::Gzip, 1)), (0, 3));
        // Raised: one answer holds old entries, then new ones.
        kit.cluster.set_topic_config("t", "message.format.version", None);
        assert_eq!(kit.outcome(plain(1)), (0, 6));
        let entries: Vec<_> = walk(kit.fetch(0).records.unwrap())
            .map(|entry| match entry.unwrap() {
                Entry::Legacy { base_offset, magic, .. } => (base_offset, magic),
                Entry::Batch(batch) => (batch.header.base_offset, 2),
            })
            .collect();
        assert_eq!(entries, [(0, magic), (1, magic), (2, magic), (5, magic), (6, 2)]);
        // Inside the wrapper: the whole wrapper.
        let inside = walk(kit.fetch(4).records.unwrap()).next().unwrap().unwrap();
        assert!(matches!(inside, Entry::Legacy { base_offset: 5, .. }));
    }
}

#[test]
fn a_batch_may_outgrow_the_limit_when_it_is_rebuilt() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("compression.type", "uncompressed"), ("max.message.bytes", "300")]);
    let mut builder = BatchBuilder::new();
    builder.push(WALL_MS, Some(b"k"), Some(&[7; 1000]), &[]).unwrap();
    let small = in_codec(&builder.build().unwrap(), Codec::Zstd, 4);
    assert!(small.len() < 300);
    assert_eq!(kit.outcome(small), (10, -1));
}
