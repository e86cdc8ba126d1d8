//! What is stored, with bytes of real brokers.

use bytes::Bytes;

use super::*;

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(|byte| byte.is_ascii_hexdigit()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// batch-forwarding 1.3: offset 101, leader epoch 4, producer 4242, epoch 3, coordinator epoch 3.
const COMMIT: &str = "0000000000000065000000420000000402bec320700030000000000000018bcfe569f40000018bcfe569f4\
                      00000000000010920003ffffffff000000012000000008000000010c00000000000300";
const ABORT: &str = "00000000000000650000004200000004024afdf6380030000000000000018bcfe569f40000018bcfe569f4\
                     00000000000010920003ffffffff000000012000000008000000000c00000000000300";

#[test]
fn markers_are_the_bytes_of_a_real_broker() {
    for (kind, bytes) in [(ControlType::Commit, COMMIT), (ControlType::Abort, ABORT)] {
        let marker = Marker { producer_id: 4242, producer_epoch: 3, coordinator_epoch: 3, kind };
        assert_eq!(marker.encode(101, 1_700_000_000_500, 4), hex(bytes));
    }
}

#[test]
fn raw_entries_keep_their_offsets_and_holes() {
    let mut legacy = vec![0; 40];
    legacy[7] = 9;
    legacy[11] = 28;
    legacy[16] = 1;
    legacy[18..26].copy_from_slice(&1_500_i64.to_be_bytes());
    let mut log = Log::default();
    log.append_raw([legacy.as_slice(), &hex(COMMIT)].concat().into());
    let shape: Vec<_> =
        log.entries().iter().map(|e| (e.base_offset, e.last_offset, e.magic, e.max_timestamp)).collect();
    assert_eq!(shape, [(0, 9, 1, 1_500), (101, 101, 2, 1_700_000_000_500)]);
    assert_eq!((log.start_offset(), log.end_offset(), log.size()), (0, 102, 118));
    // Inside the wrapper: all of it.
    assert_eq!(log.read(5, 102, 40, true).records.len(), 40);
    assert_eq!(log.read(10, 102, 1000, true).records, hex(COMMIT));
}

#[test]
fn a_trimmed_log_begins_where_it_was_cut() {
    let mut log = Log::default();
    for _ in 0..4 {
        let marker = Marker { producer_id: 1, producer_epoch: 0, coordinator_epoch: 0, kind: ControlType::Commit };
        log.append_marker(&marker, 1, 0).unwrap();
    }
    log.delete_before(2);
    assert_eq!((log.start_offset(), log.end_offset(), log.entries().len()), (2, 4, 2));
    log.truncate(3);
    assert_eq!((log.end_offset(), log.size()), (3, 78));
}
