//! Reads Java's `.properties` format as `java.util.Properties.load(InputStream)` does, and remembers line numbers.
//!
//! The bytes are ISO-8859-1. There are no inline comments: a `#` after a value belongs to the value. Oracle of the
//! tests: Java itself (`dev/oracle/PropertiesDump.java`).

/// One key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line it begins on, counted from 1.
    pub line: usize,
    /// The key, escapes resolved.
    pub key: String,
    /// The value, escapes resolved: leading blanks dropped, trailing ones kept.
    pub value: String,
}

/// A file's entries in their order, and what was odd about its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Every entry; of several with the same key the last one counts.
    pub entries: Vec<Entry>,
    /// Lines that are well formed, yet probably not what their author meant.
    pub oddities: Vec<(usize, &'static str)>,
    /// Lines Java would refuse the whole file for.
    pub faults: Vec<(usize, &'static str)>,
}

/// What editors on Windows put before UTF-8 text.
const UTF8_BOM: &[u8] = b"\xEF\xBB\xBF";

/// Reads a whole file. Never fails: faulty lines are listed and left out.
pub fn parse(bytes: &[u8]) -> Properties {
    let mut properties = Properties::default();
    let bytes = bytes.strip_prefix(UTF8_BOM).map_or(bytes, |rest| {
        properties.oddities.push((
            1,
            "the file begins with a UTF-8 byte order mark, which is passed over here; Java would take it for part of the first key",
        ));
        rest
    });
    for (line, text) in logical_lines(bytes) {
        if text.iter().any(|byte| !byte.is_ascii()) {
            properties
                .oddities
                .push((line, "characters beyond ASCII are read as ISO-8859-1, as Java does; write them as \\uXXXX"));
        }
        match entry(line, &text) {
            Ok(entry) => properties.entries.push(entry),
            Err(reason) => properties.faults.push((line, reason)),
        }
    }
    properties
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\x0C')
}

/// Joins continued lines and drops comments and empty lines. A comment cannot be continued; a line that continues
/// another one is never a comment.
fn logical_lines(bytes: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut lines = Vec::new();
    // A logical line begun but not ended: its first line's number and its text so far.
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (number, natural) in natural_lines(bytes).enumerate() {
        let start = natural.iter().position(|byte| !is_blank(*byte));
        let text = natural.get(start.unwrap_or(natural.len())..).unwrap_or(&[]);
        if open.is_none() && (text.is_empty() || matches!(text.first(), Some(b'#' | b'!'))) {
            continue;
        }
        let (line, mut joined) = open.take().unwrap_or_else(|| (number + 1, Vec::new()));
        joined.extend_from_slice(text);
        // The backslashes of this line only: a continued line has lost its own.
        let backslashes = text.iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 1 {
            joined.pop();
            // A backslash alone begins nothing: what follows may still be a comment.
            open = (!joined.is_empty()).then_some((line, joined));
        } else {
            lines.push((line, joined));
        }
    }
    lines.extend(open);
    lines
}

/// Lines ended by `\n`, `\r` or `\r\n`.
fn natural_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            rest = None;
            return Some(text);
        };
        let (line, after) = text.split_at(end);
        let crlf = after.starts_with(b"\r\n");
        rest = after.get(if crlf { 2 } else { 1 }..);
        Some(line)
    })
}

fn entry(line: usize, text: &[u8]) -> Result<Entry, &'static str> {
    let mut escaped = false;
    let key_end = text
        .iter()
        .position(|&byte| {
            let ends = !escaped && (is_blank(byte) || matches!(byte, b'=' | b':'));
            escaped = byte == b'\\' && !escaped;
            ends
        })
        .unwrap_or(text.len());
    let (key, rest) = text.split_at(key_end);
    let mut separated = false;
    let value_start = rest
        .iter()
        .position(|&byte| {
            let separator = !separated && matches!(byte, b'=' | b':');
            separated |= separator;
            !separator && !is_blank(byte)
        })
        .unwrap_or(rest.len());
    Ok(Entry { line, key: unescape(key)?, value: unescape(rest.split_at(value_start).1)? })
}

/// Java strings are UTF-16, so `\ud83d\ude00` is one character.
fn unescape(text: &[u8]) -> Result<String, &'static str> {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            units.push(byte.into());
            continue;
        }
        match bytes.next() {
            Some(b'u') => {
                let mut unit = 0;
                for _ in 0..4 {
                    let digit = bytes.next().and_then(|byte| char::from(byte).to_digit(16));
                    let digit = digit.and_then(|digit| u16::try_from(digit).ok());
                    unit = unit * 16
                        + digit.ok_or("\\u is not followed by four hexadecimal digits; for a backslash write \\\\")?;
                }
                units.push(unit);
            }
            Some(byte) => units.push(match byte {
                b't' => b'\t'.into(),
                b'n' => b'\n'.into(),
                b'r' => b'\r'.into(),
                b'f' => 0x0C,
                other => other.into(),
            }),
            None => {}
        }
    }
    String::from_utf16(&units).map_err(|_| "half a surrogate pair is no character")
}

/// Writes text so that [`parse`] reads it back as a value.
pub(super) fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for (index, unit) in value.encode_utf16().enumerate() {
        match u8::try_from(unit) {
            Ok(b'\\') => out.push_str("\\\\"),
            Ok(b' ') if index == 0 => out.push_str("\\ "),
            Ok(byte @ b' '..=b'~') => out.push(byte.into()),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keys_and_values_are_what_java_reads() {
        let ours = parse(include_bytes!("testdata/oracle.properties"));
        let ours: BTreeMap<String, String> = ours.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let printed: String =
            ours.iter().map(|(key, value)| format!("{}={}\n", escape_value(key), escape_value(value))).collect();
        assert_eq!(printed, include_str!("testdata/oracle.expected"));
    }

    #[test]
    fn entries_know_the_line_they_begin_on() {
        let text = b"# comment\n\na = 1\r\nb = 2, \\\r\n    3\rc\n\\\n  d=4\n";
        let lines: Vec<(usize, String, String)> =
            parse(text).entries.into_iter().map(|entry| (entry.line, entry.key, entry.value)).collect();
        let expect = |line, key: &str, value: &str| (line, key.to_owned(), value.to_owned());
        assert_eq!(lines, [expect(3, "a", "1"), expect(4, "b", "2, 3"), expect(6, "c", ""), expect(8, "d", "4")]);
    }

    #[test]
    fn a_bad_escape_costs_one_line_only() {
        let properties = parse(b"a=1\nb=\\u12\nc=3");
        assert_eq!(properties.entries.len(), 2);
        assert_eq!(properties.faults.len(), 1);
        assert_eq!(properties.faults[0].0, 2);
    }

    #[test]
    fn a_byte_order_mark_and_umlauts_are_noted() {
        let properties = parse(b"\xEF\xBB\xBFclusters=A\nname=\xC3\xBC");
        assert_eq!(properties.entries[0].key, "clusters");
        let lines: Vec<usize> = properties.oddities.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2]);
        assert_eq!(properties.entries[1].value, "\u{c3}\u{bc}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic_and_values_survive_writing(bytes: Vec<u8>, value: String) {
            parse(&bytes);
            let text = format!("k={}", escape_value(&value));
            let parsed = parse(text.as_bytes());
            proptest::prop_assert_eq!(&parsed.entries[0].value, &value);
        }
    }
}
