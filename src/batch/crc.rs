//! CRC-32C of a batch, in one pass or derived from the old value.
//!
//! Only header bytes change on the way through, so the new CRC follows from the old one and the changed bytes,
//! whatever the payload (batch-forwarding, 8). A mismatch between payload and CRC is carried along: the target then
//! refuses the batch instead of storing damage under a fresh checksum.
//!
//! Registers are in the reflected representation: bit 31 stands for x^0.

/// Castagnoli's polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Covered bytes of the header: those from the attributes on.
const COVERED: usize = 40;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC of a batch after its covered header bytes (21 to 60) changed from `old40` to `new40`.
///
/// `payload_len` is the number of bytes after the header; none of them is read.
pub fn derive(old_crc: u32, old40: &[u8; COVERED], new40: &[u8; COVERED], payload_len: usize) -> u32 {
    let mut difference = [0_u8; COVERED];
    for (difference, (old, new)) in difference.iter_mut().zip(old40.iter().zip(new40)) {
        *difference = old ^ new;
    }
    // The register after the difference, started at zero: the finished value minus the share of initial value and
    // final XOR.
    let register = crc32c(&difference) ^ CRC_OF_ZEROES;
    old_crc ^ shift(register, payload_len)
}

/// The register after `zeroes` more zero bytes: multiplied by x^8 once for each.
fn shift(register: u32, zeroes: usize) -> u32 {
    let mut register = register;
    // A usize has bits beyond the table, but no slice in memory is 2^POWERS bytes long on a batch's path (batch
    // lengths are 31 bits); x has an order that divides 2^31 - 1, so going round the table would be right even then.
    let mut remaining = zeroes;
    let mut powers = SHIFTS.iter().cycle();
    while remaining != 0 {
        let table = powers.next();
        if remaining & 1 == 1
            && let Some(table) = table
        {
            register = table.multiply(register);
        }
        remaining >>= 1;
    }
    register
}

/// Powers of two of the shift that have a table; the order of x makes the next one equal to the first.
const POWERS: usize = 31;

/// Tables to multiply by x^(8 * 2^k), for each k: 512 bytes each, the sixteen or so of a batch stay in the first cache.
static SHIFTS: [Nibbles; POWERS] = shifts();

/// `CRC_OF_ZEROES` cancels what initial value and final XOR add to the CRC of 40 bytes.
const CRC_OF_ZEROES: u32 = crc_of_zeroes();

/// Multiplication by a constant, by groups of four bits: entry `[i][n]` is the product with `n` at bits 4i to 4i+3.
struct Nibbles([[u32; 16]; 8]);

impl Nibbles {
    fn multiply(&self, register: u32) -> u32 {
        let mut product = 0;
        let mut rest = register;
        for table in &self.0 {
            product ^= table.get((rest & 0x0f) as usize).copied().unwrap_or_default();
            rest >>= 4;
        }
        product
    }
}

/// Product of two registers modulo the polynomial.
const fn multiply(a: u32, b: u32) -> u32 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while a != 0 {
        if a & 0x8000_0000 != 0 {
            product ^= b;
        }
        a <<= 1;
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

// Indexing in a const function fails, if at all, in the compiler.
#[allow(clippy::indexing_slicing)]
const fn shifts() -> [Nibbles; POWERS] {
    let mut all = [const { Nibbles([[0; 16]; 8]) }; POWERS];
    // x^8.
    let mut power: u32 = 0x0080_0000;
    let mut k = 0;
    while k < POWERS {
        let mut group = 0;
        while group < 8 {
            let mut nibble = 0;
            while nibble < 16 {
                all[k].0[group][nibble] = multiply((nibble as u32) << (4 * group), power);
                nibble += 1;
            }
            group += 1;
        }
        power = multiply(power, power);
        k += 1;
    }
    all
}

const fn crc_of_zeroes() -> u32 {
    let mut register = u32::MAX;
    let mut bit = 0;
    while bit < 8 * COVERED {
        register = (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL } else { 0 };
        bit += 1;
    }
    !register
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{HEADER_LEN, vectors};

    /// A\[k\] = x^(8 * 2^k), from batch-forwarding 8.3.
    const POWERS_OF_THE_SPEC: [u32; 32] = [
        0x0080_0000,
        0x0000_8000,
        0x82F6_3B78,
        0x6EA2_D55C,
        0x18B8_EA18,
        0x510A_C59A,
        0xB82B_E955,
        0xB8FD_B1E7,
        0x88E5_6F72,
        0x74C3_60A4,
        0xE417_2B16,
        0x0D65_762A,
        0x35D7_3A62,
        0x2846_1564,
        0xBF45_5269,
        0xE2EA_32DC,
        0xFE77_40E6,
        0xF946_610B,
        0x3C20_4F8F,
        0x5385_86E3,
        0x5972_6915,
        0x734D_5309,
        0xBC1A_C763,
        0x7D07_22CC,
        0xD289_CABE,
        0xE94C_A9BC,
        0x05B7_4F3F,
        0xA51E_1F42,
        0x4000_0000,
        0x2000_0000,
        0x0800_0000,
        0x0080_0000,
    ];

    /// x^0: shifting it yields the power itself.
    const ONE: u32 = 0x8000_0000;

    fn covered(batch: &[u8]) -> &[u8; COVERED] {
        batch[21..HEADER_LEN].try_into().unwrap()
    }

    #[test]
    fn the_check_value_of_the_algorithm() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_shift_tables_hold_the_powers_of_the_spec() {
        for (k, power) in POWERS_OF_THE_SPEC.into_iter().enumerate() {
            assert_eq!(shift(ONE, 1 << k), power, "k = {k}");
        }
        assert_eq!(shift(ONE, 9), 0x1c08_b7d6);
        assert_eq!(shift(ONE, 1000), 0x443d_3eb3);
        assert_eq!(shift(0x6a31_cac3, 1_048_576), 0x5ca6_ed1c);
    }

    #[test]
    fn the_worked_examples_of_the_spec() {
        let small = (vectors::hex(vectors::EXAMPLE_1_OLD), vectors::hex(vectors::EXAMPLE_1_NEW));
        assert_eq!(derive(0xe99b_8dd8, covered(&small.0), covered(&small.1), 9), 0x3d4f_2038);
        let header = (vectors::hex(vectors::EXAMPLE_2_OLD_HEADER), vectors::hex(vectors::EXAMPLE_2_NEW_HEADER));
        assert_eq!(derive(0x9030_9b9c, covered(&header.0), covered(&header.1), 1000), 0x77d6_1175);
        let header = (vectors::hex(vectors::EXAMPLE_3_OLD_HEADER), vectors::hex(vectors::EXAMPLE_3_NEW_HEADER));
        assert_eq!(derive(0x6c93_cae2, covered(&header.0), covered(&header.1), 1_048_576), 0x3035_27fe);
    }

    #[test]
    fn the_payloads_of_the_examples_are_the_specs() {
        assert_eq!(crc32c(&vectors::example_2_payload()), 0xdd2e_dff7);
        assert_eq!(crc32c(&vectors::example_3_payload()), 0x75cc_f12b);
    }

    #[test]
    fn the_derived_value_is_what_a_full_pass_finds() {
        // The oracle is the crate crc32c.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for payload_len in [0, 1, 2, 3, 7, 8, 9, 16, 61, 255, 256, 1000, 4095, 4096, 65_537, 300_001] {
            let mut old: Vec<u8> = (0..COVERED + payload_len).map(|_| next() as u8).collect();
            let old_crc = crc32c::crc32c(&old);
            let old40 = *old.first_chunk::<COVERED>().unwrap();
            let new40: [u8; COVERED] = std::array::from_fn(|_| next() as u8);
            old[..COVERED].copy_from_slice(&new40);
            assert_eq!(derive(old_crc, &old40, &new40, payload_len), crc32c::crc32c(&old), "{payload_len}");
            assert_eq!(derive(old_crc, &old40, &old40, payload_len), old_crc);
        }
    }

    #[test]
    fn a_wrong_crc_stays_wrong_by_the_same_bits() {
        let old = vectors::hex(vectors::EXAMPLE_1_OLD);
        let new = vectors::hex(vectors::EXAMPLE_1_NEW);
        let damaged = derive(0xe99b_8dd8 ^ 0x0100_0000, covered(&old), covered(&new), 9);
        assert_eq!(damaged ^ 0x3d4f_2038, 0x0100_0000);
    }
}
