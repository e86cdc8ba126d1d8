//! Values as Kafka's `ConfigDef` reads them: text in, a typed value or what is accepted out.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::mirror::settings::HostPort;

/// What a wrong value's message says is accepted.
type Accepted = String;

/// A whole number within bounds; decimal, as in Java.
pub(super) fn integer(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<i64, Accepted> {
    move |text| {
        let number = text.trim().parse().ok();
        number
            .filter(|n| range.contains(n))
            .ok_or_else(|| format!("not a whole number from {} to {}", range.start(), range.end()))
    }
}

/// A whole number that fits `T`, within bounds.
pub(super) fn number<T: TryFrom<i64> + Into<i64> + Copy>(low: T, high: T) -> impl Fn(&str) -> Result<T, Accepted> {
    let parse = integer(low.into()..=high.into());
    move |text| {
        let number = parse(text)?;
        T::try_from(number).map_err(|_| "out of range".to_owned())
    }
}

/// Milliseconds, at least `low`.
pub(super) fn millis(low: i64) -> impl Fn(&str) -> Result<Duration, Accepted> {
    // Kafka's own limit for most of its times.
    let parse = integer(low..=i64::from(i32::MAX));
    move |text| {
        parse(text)
            .map(|ms| Duration::from_millis(ms.unsigned_abs()))
            .map_err(|accepted| format!("{accepted} (milliseconds)"))
    }
}

/// Seconds, at least 1.
pub(super) fn seconds(text: &str) -> Result<Duration, Accepted> {
    integer(1..=i64::from(i32::MAX))(text)
        .map(|s| Duration::from_secs(s.unsigned_abs()))
        .map_err(|accepted| format!("{accepted} (seconds)"))
}

/// `true` or `false`, any case.
pub(super) fn boolean(text: &str) -> Result<bool, Accepted> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("neither true nor false".to_owned()),
    }
}

/// A list split at commas; blanks around items dropped, empty items kept, an empty text an empty list.
pub(super) fn list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

/// One of a few words.
pub(super) fn word<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(&str) -> Result<T, Accepted> {
    move |text| {
        let found = words.iter().find(|(word, _)| *word == text.trim());
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("not one of {}", words.join(", "))
        })
    }
}

/// Text that is not empty.
pub(super) fn text(text: &str) -> Result<String, Accepted> {
    let text = text.trim();
    if text.is_empty() { Err("empty".to_owned()) } else { Ok(text.to_owned()) }
}

/// `host:port, …`, each with an optional `PROTOCOL://` before it that Kafka passes over as well.
pub(super) fn addresses(text: &str) -> Result<Vec<HostPort>, Accepted> {
    let items = list(text);
    if items.is_empty() {
        return Err("no address; write host:port, host:port, …".to_owned());
    }
    every(items.iter().map(|item| address(item)))
}

/// An address of this host and a port, or `off`.
pub(super) fn loopback(text: &str) -> Result<Option<SocketAddr>, Accepted> {
    let text = text.trim();
    if text == "off" {
        return Ok(None);
    }
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let at: SocketAddr = named.as_deref().unwrap_or(text).parse().map_err(|_| {
        "neither address:port, such as 127.0.0.1:9877 (with port 0 any free one is taken), nor off".to_owned()
    })?;
    if at.ip().is_loopback() {
        Ok(Some(at))
    } else {
        Err("not an address of this host alone: there is no authentication in this version; use 127.0.0.1 or [::1], and \
             let a proxy on this host guard what others may see"
            .to_owned())
    }
}

/// All of them, or all that is wrong with them.
pub(super) fn every<T>(items: impl Iterator<Item = Result<T, Accepted>>) -> Result<Vec<T>, Accepted> {
    let (mut good, mut faults) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Ok(item) => good.push(item),
            Err(fault) if !faults.contains(&fault) => faults.push(fault),
            Err(_) => {}
        }
    }
    if faults.is_empty() { Ok(good) } else { Err(faults.join("; ")) }
}

fn address(item: &str) -> Result<HostPort, Accepted> {
    let fault = || format!("{item:?} is not host:port (an IPv6 address stands in [ ])");
    let bare = item.split_once("://").map_or(item, |(_, rest)| rest);
    let (host, port) = bare.rsplit_once(':').ok_or_else(fault)?;
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6,
        None if host.contains(':') => return Err(fault()),
        None => host,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    let port = port.parse().ok().filter(|port| *port != 0);
    match port {
        Some(port) if !host.is_empty() && host.chars().all(legal) => Ok(HostPort { host: host.to_owned(), port }),
        _ => Err(fault()),
    }
}

/// The first `${provider:…}` in a value, as Kafka's config providers recognise it.
pub(super) fn provider_reference(value: &str) -> Option<&str> {
    let start = value.find("${")?;
    let (_, rest) = value.split_at(start);
    let end = rest.find('}')?;
    let (reference, after) = rest.split_at(end + 1);
    if reference.contains(':') { Some(reference) } else { provider_reference(after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_kafka_reads_them() {
        let printed = |text: &str| addresses(text).map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(
            printed(" a:1 ,b.c-d:9092,[::1]:3, PLAINTEXT://h:4").unwrap(),
            ["a:1", "b.c-d:9092", "[::1]:3", "h:4"]
        );
        let faults = addresses("127.0.0.1:0, ok:1, :9092").unwrap_err();
        assert!(faults.contains("\"127.0.0.1:0\"") && faults.contains("\":9092\""), "{faults}");
        for bad in ["", "a", "a:", ":1", "a:0", "a:65536", "::1:9092", "a:1,", "a b:1", "a:1 # x"] {
            assert!(addresses(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_keep_empty_items() {
        assert_eq!(list(" a ,, b "), ["a", "", "b"]);
        assert!(list("  ").is_empty());
    }

    #[test]
    fn provider_references_are_found() {
        assert_eq!(provider_reference("x${env:PW}y"), Some("${env:PW}"));
        assert_eq!(provider_reference("${A} ${file:/x:pw}"), Some("${file:/x:pw}"));
        assert_eq!(provider_reference("${A} a{1:2}"), None);
    }
}
