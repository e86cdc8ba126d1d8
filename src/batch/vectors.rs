//! Test vectors of `batch-forwarding` (1.3 and 8.5): bytes made by two implementations that are not this one.

use bytes::Bytes;

use super::HEADER_LEN;

pub(super) const COMMIT: &str = "0000000000000065000000420000000402bec320700030000000000000018bcfe569f40000018bcfe569f400000000000010920003ffffffff000000012000000008000000010c00000000000300";
pub(super) const ABORT: &str = "00000000000000650000004200000004024afdf6380030000000000000018bcfe569f40000018bcfe569f400000000000010920003ffffffff000000012000000008000000000c00000000000300";
pub(super) const EMPTY_RETAINED: &str = "00000000000000640000003100000004027b60675c000000000009ffffffffffffffff0000018bcfe56800000000000000000500000000000000000000";

pub(super) const EXAMPLE_1_OLD: &str = "00000000000003e80000003a0000000702e99b8dd80000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff0000000110000000026b027600";
pub(super) const EXAMPLE_1_NEW: &str = "00000000000000000000003affffffff023d4f20380000000000000000018bcfe568000000018bcfe5680000000000000010920003000000110000000110000000026b027600";
pub(super) const EXAMPLE_2_OLD_HEADER: &str = "000000012a05f200000004190000000c0290309b9c001900000009000001897bd984000000018bcfe5687b000000000000232900057ffffff80000000a";
pub(super) const EXAMPLE_2_NEW_HEADER: &str = "000000000000000000000419ffffffff0277d61175000100000009000001897bd98400000001897bd987e7000000000000004d00007ffffffc0000000a";
pub(super) const EXAMPLE_3_OLD_HEADER: &str = "0000001cbe991a140010003100000021026c93cae2004400000fff0000018eafc184350000018eafc180b00000000000007a6900010000100000001000";
pub(super) const EXAMPLE_3_NEW_HEADER: &str = "000000000000000000100031ffffffff02303527fe000400000fff0000018eafc184350000018eafc180b0000000003b9aca0700020000000000001000";

pub(super) fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

pub(super) fn example_2_payload() -> Vec<u8> {
    (0..1000_u32).map(|at| (at * 7 + 3) as u8).collect()
}

pub(super) fn example_3_payload() -> Vec<u8> {
    let mut state: u64 = 12345;
    let step = |_| {
        state = (1_103_515_245 * state + 12345) % (1 << 31);
        (state >> 16) as u8
    };
    (0..1_048_576).map(step).collect()
}

pub(super) fn whole(header: &str, payload: &[u8]) -> Bytes {
    let mut batch = hex(header).to_vec();
    assert_eq!(batch.len(), HEADER_LEN);
    batch.extend_from_slice(payload);
    batch.into()
}
