//! The length walk in front of the crate's decoders.
//!
//! The crate reserves memory for whatever element count the wire announces. Before it sees a response, the walk goes
//! over the same bytes by a small description of the message (`schema`) and checks every count, length and tagged
//! field against what is at hand. An API without a description is an error: it is never decoded unguarded.

use bytes::{Buf, Bytes};
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, HeaderVersion};

use super::decode::{DecodeError, Fault, Reader};
use super::request_schema::request;
use super::schema::{Field, Kind, Message, Structure, message};

/// Decodes a response body with the crate's decoder, after the length walk; all of the body must be consumed.
///
/// `api` must be the API of `R`. Fetch, Produce, Metadata, OffsetCommit and OffsetFetch have decoders of their own and
/// no table here.
///
/// # Errors [`DecodeError`]: [`Fault::NoTable`] or [`Fault::UnsupportedVersion`] if our caller asked for what cannot
/// be read here, [`Fault::Crate`] if the crate refused (a null or a text it does not accept), otherwise what the walk
/// met.
pub fn decode_response<R: Decodable + HeaderVersion>(api: ApiKey, version: i16, body: Bytes) -> Result<R, DecodeError> {
    check(api, version, body.clone())?;
    decode_all(api, version, body)
}

/// Decodes a request body in the same way; for the embedded broker.
///
/// `api` must be the API of `R`.
///
/// # Errors [`DecodeError`], as of [`decode_response`].
pub fn decode_request<R: Decodable + HeaderVersion>(api: ApiKey, version: i16, body: Bytes) -> Result<R, DecodeError> {
    check_against(request(api), api, version, body.clone())?;
    decode_all(api, version, body)
}

fn decode_all<M: Decodable>(api: ApiKey, version: i16, mut body: Bytes) -> Result<M, DecodeError> {
    let length = body.len();
    let fault = |left: usize, fault| DecodeError { api, version, at: length.saturating_sub(left), fault };
    let message =
        M::decode(&mut body, version).map_err(|error| fault(body.remaining(), Fault::Crate(error.to_string())))?;
    match body.remaining() {
        0 => Ok(message),
        left => Err(fault(left, Fault::TrailingBytes(left))),
    }
}

/// The walk alone.
pub(super) fn check(api: ApiKey, version: i16, body: Bytes) -> Result<(), DecodeError> {
    check_against(message(api), api, version, body)
}

fn check_against(message: Option<&'static Message>, api: ApiKey, version: i16, body: Bytes) -> Result<(), DecodeError> {
    let Some(Message { versions, flexible_from, body: structure, .. }) = message else {
        return Err(Reader::new(api, version, false, body).fault(Fault::NoTable));
    };
    let mut reader = Reader::for_versions(api, version, versions.clone(), *flexible_from, body)?;
    walk(&mut reader, structure)?;
    reader.finish()
}

fn walk(reader: &mut Reader, structure: &Structure) -> Result<(), DecodeError> {
    let version = reader.version();
    for field in structure.fields {
        if field.versions.contains(&version) {
            walk_field(reader, &field.kind)?;
        }
    }
    reader.tagged_fields(|reader, tag| match structure.tagged.iter().find(|(known, _)| *known == tag) {
        Some((_, Field { versions, kind })) if versions.contains(&version) => walk_field(reader, kind).map(|()| true),
        _ => Ok(false),
    })
}

fn walk_field(reader: &mut Reader, kind: &Kind) -> Result<(), DecodeError> {
    match kind {
        Kind::Fixed(size) => reader.skip(*size),
        Kind::Text => reader.nullable_str().map(|_| ()),
        Kind::Blob => reader.nullable_bytes().map(|_| ()),
        Kind::Array(element) => {
            let element_min = structure_min(element, reader.version(), reader.is_flexible());
            // Whether null is allowed is checked by the crate, which does not allocate for it.
            for _ in 0..reader.nullable_array(element_min)?.unwrap_or(0) {
                walk(reader, element)?;
            }
            Ok(())
        }
        Kind::List(element) => {
            for _ in 0..reader.nullable_array(kind_min(element, reader.is_flexible()))?.unwrap_or(0) {
                walk_field(reader, element)?;
            }
            Ok(())
        }
        Kind::Struct(structure) => walk(reader, structure),
    }
}

/// Fewest bytes that a structure takes in a version.
fn structure_min(structure: &Structure, version: i16, flexible: bool) -> usize {
    let fields = structure.fields.iter().filter(|field| field.versions.contains(&version));
    let sum = fields.map(|field| match &field.kind {
        Kind::Struct(structure) => structure_min(structure, version, flexible),
        kind => kind_min(kind, flexible),
    });
    sum.sum::<usize>().saturating_add(usize::from(flexible))
}

/// Fewest bytes that a field takes; of a structure its tagged fields' count.
fn kind_min(kind: &Kind, flexible: bool) -> usize {
    match (kind, flexible) {
        (Kind::Fixed(size), _) => *size,
        // A length of one byte, or a count of zero tagged fields.
        (Kind::Text | Kind::Blob | Kind::Array(_) | Kind::List(_) | Kind::Struct(_), true) => 1,
        (Kind::Text, false) => size_of::<i16>(),
        (Kind::Blob | Kind::Array(_) | Kind::List(_), false) => size_of::<i32>(),
        (Kind::Struct(_), false) => 0,
    }
}

#[cfg(test)]
mod request_tests;
#[cfg(test)]
mod tests;
