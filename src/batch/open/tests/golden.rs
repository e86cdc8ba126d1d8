//! Batches captured from real brokers by `dev/golden-batches`: opened and encoded again they must read as kcat, which is
//! another client, read them from the broker. Offsets aside: those count from 0 again.

use super::*;

macro_rules! golden {
    ($($kind:literal),* $(,)?) => {
        /// Kind, what the broker's segment files held, and what kcat printed: offset, timestamp, key, value, headers.
        const GOLDEN: &[(&str, &[u8], &str)] = &[$((
            $kind,
            include_bytes!(concat!("golden/", $kind, ".bin")),
            include_str!(concat!("golden/", $kind, ".txt")),
        )),*];
    };
}

golden!(
    "append-time",
    "format-0-gzip",
    "format-0-lz4",
    "format-0-none",
    "format-0-snappy",
    "format-1-append-time",
    "format-1-gzip",
    "format-1-lz4",
    "format-1-none",
    "format-1-snappy",
    "format-1-thinned",
    "mixed",
    "thinned-gzip",
    "thinned-lz4",
    "thinned-none",
    "thinned-snappy",
    "thinned-zstd",
    "transaction",
);

/// What has to be opened, or would be if its reason were there.
fn opened(bytes: &'static [u8]) -> Vec<Contents> {
    let mut all = Vec::new();
    let mut run = LegacyRun::default();
    let mut entries = walk(Bytes::from_static(bytes));
    for entry in entries.by_ref() {
        match entry.unwrap() {
            Entry::Legacy { bytes, .. } => {
                if run.is_full_for(&bytes) {
                    all.extend(run.finish().unwrap());
                }
                run.push(&bytes, MAX).unwrap();
            }
            Entry::Batch(batch) => {
                all.extend(run.finish().unwrap());
                batch.verify_crc().unwrap();
                if batch.header.is_control() {
                    assert!(decode(&batch, MAX, true).is_err());
                } else {
                    all.push(decode(&batch, MAX, true).unwrap());
                }
            }
        }
    }
    all.extend(run.finish().unwrap());
    assert_eq!(entries.cut_off(), 0);
    all
}

fn text(field: Option<&[u8]>) -> String {
    field.map_or_else(|| "NULL".to_owned(), |field| String::from_utf8(field.to_vec()).unwrap())
}

/// A record's line as kcat prints it.
fn line(offset: i64, record: &crate::batch::Record) -> String {
    let headers: Vec<String> =
        record.headers.iter().map(|one| format!("{}={}", text(Some(&one.key)), text(one.value.as_deref()))).collect();
    let (key, value) = (text(record.key.as_deref()), text(record.value.as_deref()));
    format!("{offset}\t{}\t{key}\t{value}\t{}", record.timestamp, headers.join(","))
}

/// The same batch without compression, which our reader of plain batches understands.
fn uncompressed(batch: &Batch) -> Batch {
    let payload = decompress(batch.header.codec(), batch.payload(), MAX).unwrap();
    let header = BatchHeader { attributes: 0, batch_length: (payload.len() + HEADER_LEN - 12) as i32, ..batch.header };
    patched(header, &payload)
}

#[test]
fn captured_batches_read_as_another_client_read_them() {
    for (kind, bytes, printed) in GOLDEN {
        for limit in [None, Some(300)] {
            let mut lines = Vec::new();
            for contents in opened(bytes) {
                for encoded in encode_all(&contents, contents.base_offset(), limit) {
                    let batch = accepted(&encoded);
                    assert_eq!(batch.header.codec(), contents.codec);
                    // The crate's decoder agrees with ours on everything it keeps.
                    let by_the_crate = by_the_crate(&batch);
                    let records = crate::batch::records(&uncompressed(&batch)).unwrap();
                    let offsets = contents.records_from(encoded.first_offset).map(|record| record.offset);
                    for ((record, offset), theirs) in records.zip(offsets).zip(by_the_crate) {
                        let record = record.unwrap();
                        assert_eq!(record.timestamp, theirs.1);
                        assert_eq!(record.value.as_deref(), theirs.3.as_deref());
                        lines.push(line(offset, &record));
                    }
                }
            }
            // Records of format 0 have no time: -1 for Kafka and, outside of wrappers, for kcat, which shows 0 inside.
            let printed: Vec<String> = printed.lines().map(|line| line.replacen("\t0\t", "\t-1\t", 1)).collect();
            assert_eq!(lines, printed, "{kind}");
        }
    }
}

#[test]
fn the_captured_batches_are_what_their_names_say() {
    let kinds = |kind: &str| -> Vec<Entry> {
        let (_, bytes, _) = GOLDEN.iter().find(|(name, ..)| *name == kind).unwrap();
        walk(Bytes::from_static(bytes)).map(Result::unwrap).collect()
    };
    let magic = |entry: &Entry| match entry {
        Entry::Legacy { magic, .. } => *magic,
        Entry::Batch(_) => 2,
    };
    let mixed: Vec<i8> = kinds("mixed").iter().map(magic).collect();
    assert!(mixed.is_sorted() && [0, 1, 2].iter().all(|wanted| mixed.contains(wanted)), "{mixed:?}");
    let header = |entry: &Entry| match entry {
        Entry::Batch(batch) => batch.header,
        Entry::Legacy { .. } => panic!("an old message"),
    };
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let headers: Vec<BatchHeader> = kinds(&format!("thinned-{codec}")).iter().map(header).collect();
        assert!(headers.iter().any(BatchHeader::is_thinned), "{codec}");
    }
    assert!(kinds("append-time").iter().map(header).all(|header| header.is_log_append_time()));
    assert!(kinds("transaction").iter().map(header).any(|header| header.is_control()));
    // The checksum of LZ4 headers in format 0 really is the wrong one.
    let lz4 = kinds("format-0-lz4");
    let Entry::Legacy { bytes, .. } = &lz4[0] else { panic!("format 2") };
    // Offset, size, CRC, magic, attributes, no key, the value's length.
    let frame = &bytes[26..];
    assert!(decompress(Codec::Lz4, frame, MAX).is_err());
    assert!(crate::batch::compression::decompress_format_0(Codec::Lz4, frame, MAX).is_ok());
}
