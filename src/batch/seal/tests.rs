//! Sealing against the worked examples of the specification and a full CRC pass by another crate.

use bytes::Bytes;

use super::*;
use crate::batch::{Entry, vectors, walk};

fn batch(bytes: &Bytes) -> Batch {
    match walk(bytes.clone()).next() {
        Some(Ok(Entry::Batch(batch))) => batch,
        other => panic!("{other:?}"),
    }
}

fn seal_as(bytes: &Bytes, producer_id: i64, producer_epoch: i16, base_sequence: i32) -> Bytes {
    let head = seal(&batch(bytes), ProducerIdentity { producer_id, producer_epoch }, base_sequence).unwrap();
    Bytes::copy_from_slice(&head)
}

#[test]
fn the_first_worked_example() {
    let new = vectors::hex(vectors::EXAMPLE_1_NEW);
    assert_eq!(seal_as(&vectors::hex(vectors::EXAMPLE_1_OLD), 4242, 3, 17), new.slice(..HEADER_LEN));
}

#[test]
fn the_third_worked_example() {
    let old = vectors::whole(vectors::EXAMPLE_3_OLD_HEADER, &vectors::example_3_payload());
    batch(&old).verify_crc().unwrap();
    assert_eq!(seal_as(&old, 1_000_000_007, 2, 0), vectors::hex(vectors::EXAMPLE_3_NEW_HEADER));
}

#[test]
fn transaction_and_log_append_time_are_cleared_and_the_crc_holds() {
    // The second example changes maxTimestamp as well, which sealing leaves alone, so the oracle is a full pass.
    let payload = vectors::example_2_payload();
    let old = vectors::whole(vectors::EXAMPLE_2_OLD_HEADER, &payload);
    let head = seal_as(&old, 77, 0, 2_147_483_644);
    let expected = vectors::hex(vectors::EXAMPLE_2_NEW_HEADER);
    let untouched = 35..43;
    assert_eq!(head[..17], expected[..17]);
    assert_eq!(head[21..35], expected[21..35]);
    assert_eq!(head[untouched.clone()], old[untouched], "maxTimestamp");
    assert_eq!(head[43..], expected[43..]);
    let crc = crc32c::crc32c(&[&head[21..], &payload].concat());
    assert_eq!(head[17..21], crc.to_be_bytes());
}

#[test]
fn damage_is_not_laundered() {
    let mut damaged = vectors::hex(vectors::EXAMPLE_1_OLD).to_vec();
    damaged[66] ^= 0x10;
    let damaged = Bytes::from(damaged);
    let head = seal_as(&damaged, 4242, 3, 17);
    let sent = Bytes::from([&head[..], &damaged[HEADER_LEN..]].concat());
    batch(&sent).verify_crc().unwrap_err();
}

#[test]
fn a_marker_can_never_be_sealed() {
    for (name, marker) in [("commit", vectors::COMMIT), ("abort", vectors::ABORT)] {
        let marker = batch(&vectors::hex(marker));
        let refused = seal(&marker, ProducerIdentity { producer_id: 1, producer_epoch: 0 }, 0);
        assert_eq!(refused, Err(SealRefused::Control { base_offset: 101 }), "{name}");
    }
    // Nor any other batch with the bit, whatever else its attributes say.
    let mut data = batch(&vectors::hex(vectors::EXAMPLE_1_OLD));
    for attributes in (i16::MIN..=i16::MAX).filter(|attributes| attributes & 0x20 != 0) {
        data.header.attributes = attributes;
        assert!(seal(&data, ProducerIdentity { producer_id: 1, producer_epoch: 0 }, 0).is_err());
    }
}

#[test]
fn emptied_and_thinned_batches_are_refused() {
    let identity = ProducerIdentity { producer_id: 1, producer_epoch: 0 };
    let empty = batch(&vectors::hex(vectors::EMPTY_RETAINED));
    assert_eq!(seal(&empty, identity, 0), Err(SealRefused::Gaps { base_offset: 100, records_count: 0, offsets: 10 }));
    let mut thinned = batch(&vectors::whole(vectors::EXAMPLE_2_OLD_HEADER, &vectors::example_2_payload()));
    thinned.header.records_count = 9;
    let refused = seal(&thinned, identity, 0).unwrap_err();
    assert!(matches!(refused, SealRefused::Gaps { records_count: 9, offsets: 10, .. }), "{refused}");
}
