//! A reader over a response body that checks every length before using it.
//!
//! The reader knows which message it reads, so that an error says API, version, byte and reason. Slices it returns
//! alias the frame. It covers both dialects of the protocol: classic (fixed-size lengths) and flexible (varint lengths
//! and tagged fields, KIP-482).

use std::ops::Range;

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use super::ErrorCode;
use super::ids::{BrokerId, LeaderEpoch, PartitionId, TopicId, TopicName};

/// A response that does not follow its schema: the peer is no Kafka broker, or bytes were lost or damaged on the way.
///
/// The connection it came from is no longer in step and must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {api:?} v{version} response is malformed at byte {at}: {fault}")]
pub struct DecodeError {
    /// The API whose response it was.
    pub api: ApiKey,
    /// The version that was asked for.
    pub version: i16,
    /// Position of the faulty field, counted from the start of the decoded bytes.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What can be wrong with bytes from a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field reaches past the end of the frame, or of the tagged field that holds it.
    #[error("{needed} bytes are needed and {remaining} are left")]
    Truncated {
        /// Bytes the field announces.
        needed: usize,
        /// Bytes that are there.
        remaining: usize,
    },
    /// An array announces more elements than the bytes at hand could hold.
    #[error("an array of {count} elements cannot fit into {remaining} bytes")]
    CountTooLarge {
        /// Announced elements.
        count: usize,
        /// Bytes that are there.
        remaining: usize,
    },
    /// A length or count below -1.
    #[error("a length is negative ({0})")]
    NegativeLength(i64),
    /// Null where the schema allows none.
    #[error("a field is null that must not be")]
    UnexpectedNull,
    /// An unsigned varint of more than 32 bits.
    #[error("a varint does not fit into 32 bits")]
    VarintTooLong,
    /// Text that is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A known tagged field did not use up the size it announced.
    #[error("a tagged field of {size} bytes holds {unread} bytes too many")]
    TaggedFieldSize {
        /// Announced size in bytes.
        size: usize,
        /// Bytes left over.
        unread: usize,
    },
    /// The message ended before the frame did.
    #[error("{0} bytes are left over after the message")]
    TrailingBytes(usize),
    /// Our caller asked for a version this decoder does not know; nothing was read.
    #[error("this program cannot read that version")]
    UnsupportedVersion,
    /// There is no length table for this API, so the crate's unchecked decoder must not see the bytes.
    #[error("this program has no length table for that API")]
    NoTable,
    /// More than one group, or none, where one was asked for.
    #[error("{0} groups were answered where one was asked for")]
    GroupCount(usize),
    /// The `kafka-protocol` crate refused bytes that passed the length walk.
    #[error("{0}")]
    Crate(String),
}

/// Most elements to reserve for at once. An element in memory can be thirty times as long as on the wire, so even a
/// count that could fit is not taken at its word; above this the vector grows with what is really there.
pub(crate) const RESERVE_MAX: usize = 4096;

/// The next `N` bytes of `rest`, which moves past them.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Reads one response body front to back.
#[derive(Debug, Clone)]
pub struct Reader {
    body: Bytes,
    at: usize,
    /// End of the readable part: the body's end, or that of the tagged field being read.
    end: usize,
    api: ApiKey,
    version: i16,
    flexible: bool,
}

impl Reader {
    /// Starts at the first byte of `body`; `flexible` says whether this version uses varint lengths and tagged fields.
    pub fn new(api: ApiKey, version: i16, flexible: bool, body: Bytes) -> Self {
        let end = body.len();
        Self { body, at: 0, end, api, version, flexible }
    }

    /// As [`Reader::new`], after checking that `version` lies in `known`.
    ///
    /// # Errors
    /// [`Fault::UnsupportedVersion`].
    pub(crate) fn for_versions(
        api: ApiKey,
        version: i16,
        known: std::ops::RangeInclusive<i16>,
        flexible_from: i16,
        body: Bytes,
    ) -> Result<Self, DecodeError> {
        let reader = Self::new(api, version, version >= flexible_from, body);
        if known.contains(&version) { Ok(reader) } else { Err(reader.fault(Fault::UnsupportedVersion)) }
    }

    /// The version being read.
    pub fn version(&self) -> i16 {
        self.version
    }

    /// True where lengths are varints and structures end in tagged fields.
    pub fn is_flexible(&self) -> bool {
        self.flexible
    }

    /// Bytes not read yet, within the current tagged field if one is being read.
    pub fn remaining(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// An error about the byte the reader stands at.
    pub fn fault(&self, fault: Fault) -> DecodeError {
        DecodeError { api: self.api, version: self.version, at: self.at, fault }
    }

    /// Ends the reading; everything must have been consumed.
    ///
    /// # Errors
    /// [`Fault::TrailingBytes`].
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            unread => Err(self.fault(Fault::TrailingBytes(unread))),
        }
    }

    /// Everything not read yet, as a slice of the frame.
    pub(crate) fn into_rest(self) -> Bytes {
        self.body.get(self.at..self.end).map_or_else(Bytes::new, |rest| self.body.slice_ref(rest))
    }

    fn advance(&mut self, length: usize) -> Result<Range<usize>, DecodeError> {
        let remaining = self.remaining();
        if length > remaining {
            return Err(self.fault(Fault::Truncated { needed: length, remaining }));
        }
        let start = self.at;
        // Cannot overflow: the sum is at most `end`.
        self.at = start.saturating_add(length);
        Ok(start..self.at)
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let range = self.advance(N)?;
        let bytes = self.body.get(range).and_then(|bytes| bytes.first_chunk::<N>());
        bytes.copied().ok_or_else(|| self.fault(Fault::Truncated { needed: N, remaining: 0 }))
    }

    /// The next `N` bytes, passed over if `read` takes them.
    pub(crate) fn take_if<const N: usize, T>(&mut self, read: impl FnOnce(&[u8; N]) -> Option<T>) -> Option<T> {
        let taken = self.body.get(self.at..self.end)?.first_chunk::<N>().and_then(read)?;
        self.at = self.at.saturating_add(N);
        Some(taken)
    }

    /// Passes over `length` bytes.
    pub fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        self.advance(length).map(|_| ())
    }

    /// Boolean: any byte but 0 is true.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// INT8.
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.array_of().map(i8::from_be_bytes)
    }

    /// INT16.
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.array_of().map(i16::from_be_bytes)
    }

    /// INT32.
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.array_of().map(i32::from_be_bytes)
    }

    /// INT64.
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.array_of().map(i64::from_be_bytes)
    }

    /// UNSIGNED_VARINT of at most 32 bits.
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        let start = self.at;
        let mut value: u32 = 0;
        for shift in [0_u32, 7, 14, 21, 28] {
            let [byte] = self.array_of::<1>()?;
            // The fifth byte has room for four bits. The crate drops what is above; we refuse, so both read the same.
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.at = start;
        Err(self.fault(Fault::VarintTooLong))
    }

    /// A length as this dialect writes it: -1 or varint 0 is null, `None` here.
    fn length(
        &mut self,
        classic: impl FnOnce(&mut Self) -> Result<i64, DecodeError>,
    ) -> Result<Option<usize>, DecodeError> {
        if self.flexible {
            return Ok(self.unsigned_varint()?.checked_sub(1).map(|length| length as usize));
        }
        let start = self.at;
        match classic(self)? {
            -1 => Ok(None),
            length => usize::try_from(length).map(Some).map_err(|_| {
                self.at = start;
                self.fault(Fault::NegativeLength(length))
            }),
        }
    }

    /// Nullable (COMPACT_)STRING, borrowed from the frame.
    pub fn nullable_str(&mut self) -> Result<Option<&str>, DecodeError> {
        let Some(length) = self.length(|reader| reader.i16().map(i64::from))? else {
            return Ok(None);
        };
        let range = self.advance(length)?;
        let start = range.start;
        match self.body.get(range).map(std::str::from_utf8) {
            Some(Ok(text)) => Ok(Some(text)),
            _ => Err(DecodeError { api: self.api, version: self.version, at: start, fault: Fault::NotUtf8 }),
        }
    }

    /// Nullable string as an owned one.
    pub fn nullable_string(&mut self) -> Result<Option<String>, DecodeError> {
        Ok(self.nullable_str()?.map(str::to_owned))
    }

    /// String that must not be null.
    pub fn string(&mut self) -> Result<String, DecodeError> {
        let at = self.at;
        self.nullable_string()?.ok_or_else(|| self.null_at(at))
    }

    /// Topic name that must not be null.
    pub fn topic_name(&mut self) -> Result<TopicName, DecodeError> {
        let at = self.at;
        self.nullable_topic_name()?.ok_or_else(|| self.null_at(at))
    }

    /// Topic name or null.
    pub fn nullable_topic_name(&mut self) -> Result<Option<TopicName>, DecodeError> {
        Ok(self.nullable_str()?.map(TopicName::from))
    }

    /// Nullable (COMPACT_)BYTES or RECORDS as a slice of the frame.
    pub fn nullable_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(|reader| reader.i32().map(i64::from))? else {
            return Ok(None);
        };
        let range = self.advance(length)?;
        Ok(Some(self.body.get(range).map_or_else(Bytes::new, |bytes| self.body.slice_ref(bytes))))
    }

    /// Number of elements of a nullable (COMPACT_)ARRAY.
    ///
    /// `element_min` is the fewest bytes an element can take in this version; a count that could not fit is refused.
    pub fn nullable_array(&mut self, element_min: usize) -> Result<Option<usize>, DecodeError> {
        let start = self.at;
        let Some(count) = self.length(|reader| reader.i32().map(i64::from))? else {
            return Ok(None);
        };
        let remaining = self.remaining();
        if count > remaining / element_min.max(1) {
            self.at = start;
            return Err(self.fault(Fault::CountTooLarge { count, remaining }));
        }
        Ok(Some(count))
    }

    /// Number of elements of an array that must not be null; see [`Reader::nullable_array`].
    pub fn array(&mut self, element_min: usize) -> Result<usize, DecodeError> {
        let at = self.at;
        self.nullable_array(element_min)?.ok_or_else(|| self.null_at(at))
    }

    /// Reads an array with `element` called once for each element.
    pub fn vec<T>(
        &mut self,
        element_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.array(element_min)?;
        let mut elements = Vec::with_capacity(count.min(RESERVE_MAX));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Reads the tagged fields at the end of a structure; does nothing in a classic version.
    ///
    /// `known` gets each tag and says whether it read the field. Unknown fields are passed over: they are how newer
    /// brokers talk to older clients (KIP-482).
    ///
    /// # Errors
    /// [`Fault::TaggedFieldSize`] if `known` left part of its field unread, and whatever reading meets.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let start = self.at;
        let count = self.unsigned_varint()? as usize;
        // A tag and a size take at least a byte each.
        if count > self.remaining() / 2 {
            let remaining = self.remaining();
            self.at = start;
            return Err(self.fault(Fault::CountTooLarge { count, remaining }));
        }
        for _ in 0..count {
            let tag = self.unsigned_varint()?;
            let size = self.unsigned_varint()? as usize;
            let content = self.advance(size)?;
            let outer_end = std::mem::replace(&mut self.end, content.end);
            self.at = content.start;
            if known(self, tag)? {
                let unread = self.remaining();
                if unread > 0 {
                    return Err(self.fault(Fault::TaggedFieldSize { size, unread }));
                }
            }
            self.at = content.end;
            self.end = outer_end;
        }
        Ok(())
    }

    /// Tagged fields of a structure none of whose tags concern us.
    pub fn skip_tagged_fields(&mut self) -> Result<(), DecodeError> {
        self.tagged_fields(|_, _| Ok(false))
    }

    /// UUID.
    pub fn topic_id(&mut self) -> Result<TopicId, DecodeError> {
        self.array_of().map(TopicId::new)
    }

    /// Partition number.
    pub fn partition(&mut self) -> Result<PartitionId, DecodeError> {
        self.i32().map(PartitionId)
    }

    /// Error code.
    pub fn error_code(&mut self) -> Result<ErrorCode, DecodeError> {
        self.i16().map(ErrorCode)
    }

    /// Leader epoch, -1 for unknown.
    pub fn leader_epoch(&mut self) -> Result<LeaderEpoch, DecodeError> {
        self.i32().map(LeaderEpoch)
    }

    /// Broker that is always named.
    pub fn broker(&mut self) -> Result<BrokerId, DecodeError> {
        self.i32().map(BrokerId)
    }

    /// Broker or, for any negative number, none.
    pub fn broker_or_none(&mut self) -> Result<Option<BrokerId>, DecodeError> {
        Ok(Some(self.broker()?).filter(|id| id.0 >= 0))
    }

    fn null_at(&self, at: usize) -> DecodeError {
        DecodeError { at, ..self.fault(Fault::UnexpectedNull) }
    }
}
