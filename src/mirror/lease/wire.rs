//! The bytes that travel inside JoinGroup and SyncGroup: what a member owns, and what it is given.
//!
//! Both forms start with a version. A newer one is refused by name rather than guessed at: to misread what another
//! worker owns would be to give it away twice. They are fixed in length, big-endian:
//!
//! | form | bytes |
//! |---|---|
//! | [`MemberMetadata`] 1 | version i16, generation i32, owned slots 30 bytes |
//! | [`Assignment`] 1 | version i16, hash of the member id planned for u64, assigned slots 30 bytes |

use bytes::{BufMut, Bytes, BytesMut};

use super::slots::{SlotSet, fnv1a_64};

/// Version of both forms that this build writes and reads.
pub const LEASE_VERSION: i16 = 1;

/// What a worker says about itself in JoinGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberMetadata {
    /// Slots the worker holds, those included which it is just giving up.
    pub owned: SlotSet,
    /// Generation of the assignment last received; -1 if none. Where two members claim a slot (one slept through a
    /// rebalance), the higher generation is right. It also makes a rejoin after an assignment differ in its bytes,
    /// without which the broker answers a follower at once and plans nothing anew (S13).
    pub generation: i32,
}

/// What the leader gives a worker in SyncGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The slots given.
    pub slots: SlotSet,
    /// FNV-1a of the member id the plan was made for. After a restart the broker hands the former process's assignment
    /// to the new member id (S13): this tells that the leader has not heard of us yet.
    pub planned_for: u64,
}

/// Why bytes of another member could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Written by a later build.
    #[error("lease {form} has version {version}, this build knows up to {LEASE_VERSION}")]
    Newer {
        /// `metadata` or `assignment`.
        form: &'static str,
        /// The version found.
        version: i16,
    },
    /// Not written by any build of Towpath.
    #[error("lease {form} of {length} bytes is not of the form of version {LEASE_VERSION}")]
    Malformed {
        /// `metadata` or `assignment`.
        form: &'static str,
        /// Length found, in bytes.
        length: usize,
    },
}

impl MemberMetadata {
    /// Writes version 1 (36 bytes).
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(36);
        bytes.put_i16(LEASE_VERSION);
        bytes.put_i32(self.generation);
        bytes.put_slice(&self.owned.to_bytes());
        bytes.freeze()
    }

    /// Reads version 1.
    ///
    /// # Errors
    /// [`WireError::Newer`] for a later version, [`WireError::Malformed`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (generation, owned) = decode::<4>("metadata", bytes)?;
        Ok(Self { generation: i32::from_be_bytes(generation), owned })
    }
}

impl Assignment {
    /// An assignment for the member with this id.
    pub fn new(member_id: &str, slots: SlotSet) -> Self {
        Self { slots, planned_for: fnv1a_64(member_id.as_bytes()) }
    }

    /// Whether the leader planned for the member with this id, not for a former process.
    pub fn is_for(&self, member_id: &str) -> bool {
        self.planned_for == fnv1a_64(member_id.as_bytes())
    }

    /// Writes version 1 (40 bytes).
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(40);
        bytes.put_i16(LEASE_VERSION);
        bytes.put_u64(self.planned_for);
        bytes.put_slice(&self.slots.to_bytes());
        bytes.freeze()
    }

    /// Reads version 1.
    ///
    /// # Errors
    /// [`WireError::Newer`] for a later version, [`WireError::Malformed`] for anything else. Empty bytes (a member the
    /// leader did not know) are malformed here; the machine looks for them first.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (planned_for, slots) = decode::<8>("assignment", bytes)?;
        Ok(Self { planned_for: u64::from_be_bytes(planned_for), slots })
    }
}

fn decode<const N: usize>(form: &'static str, bytes: &[u8]) -> Result<([u8; N], SlotSet), WireError> {
    let malformed = || WireError::Malformed { form, length: bytes.len() };
    let (version, rest) = bytes.split_first_chunk::<2>().ok_or_else(malformed)?;
    match i16::from_be_bytes(*version) {
        LEASE_VERSION => {
            let (head, rest) = rest.split_first_chunk::<N>().ok_or_else(malformed)?;
            let slots = rest.try_into().map_err(|_| malformed())?;
            Ok((*head, SlotSet::from_bytes(slots)))
        }
        version if version > LEASE_VERSION => Err(WireError::Newer { form, version }),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read_what_they_wrote_and_keep_their_bytes() {
        let owned: SlotSet = [0, 9, 239].into_iter().collect();
        let metadata = MemberMetadata { owned, generation: 258 };
        let mut golden = vec![0, 1, 0, 0, 1, 2, 1, 2];
        golden.extend([0; 27]);
        golden.push(0x80);
        assert_eq!(metadata.encode(), golden);
        assert_eq!(MemberMetadata::decode(&golden), Ok(metadata));

        let assignment = Assignment::new("a", owned);
        let mut golden = vec![0, 1, 0xaf, 0x63, 0xdc, 0x4c, 0x86, 0x01, 0xec, 0x8c, 1, 2];
        golden.extend([0; 27]);
        golden.push(0x80);
        assert_eq!(assignment.encode(), golden);
        assert_eq!(Assignment::decode(&golden), Ok(assignment));
        assert!(assignment.is_for("a") && !assignment.is_for("b"));
    }

    #[test]
    fn other_bytes_are_refused_by_name() {
        let good = MemberMetadata { owned: SlotSet::ALL, generation: 1 }.encode();
        for length in 0..good.len() {
            assert_eq!(
                MemberMetadata::decode(&good[..length]),
                Err(WireError::Malformed { form: "metadata", length }),
                "cut at {length}"
            );
        }
        let mut longer = good.to_vec();
        longer.push(0);
        assert!(matches!(MemberMetadata::decode(&longer), Err(WireError::Malformed { length: 37, .. })));
        let newer = WireError::Newer { form: "assignment", version: 2 };
        assert_eq!(Assignment::decode(&[0, 2]), Err(newer.clone()));
        assert_eq!(newer.to_string(), "lease assignment has version 2, this build knows up to 1");
        for version in [[0, 0], [0xff, 0xff]] {
            assert!(matches!(Assignment::decode(&version), Err(WireError::Malformed { .. })));
        }
    }
}
