//! What is said of keys that nothing asked for: known, but without effect here, or unknown.

use super::catalogue::{Group, remark};
use super::keys::{self, Place};
use super::mm2::Pair;
use super::reader::Reader;
use crate::mirror::settings::ClusterAlias;

/// Adds a note for every such key.
pub(super) fn note(reader: &mut Reader, clusters: &[ClusterAlias], pairs: &[Pair]) {
    let file = File { clusters, pairs };
    for entry in reader.leftover() {
        let text = file.judge(&entry.key);
        reader.note_entry(&entry, text);
    }
}

struct File<'a> {
    clusters: &'a [ClusterAlias],
    pairs: &'a [Pair],
}

impl File<'_> {
    fn judge(&self, key: &str) -> String {
        if let Some((source, rest)) = key.split_once("->") {
            return self.flow(source, rest);
        }
        let longest = self
            .clusters
            .iter()
            .filter_map(|alias| Some((alias, key.strip_prefix(alias.as_str())?.strip_prefix('.')?)))
            .max_by_key(|(alias, _)| alias.as_str().len());
        if let Some((alias, name)) = longest {
            return if self.pairs.iter().any(|pair| pair.source == *alias || pair.target == *alias) {
                self.cluster(alias, name)
            } else {
                format!("cluster {alias} takes part in no enabled flow")
            };
        }
        self.top(key)
    }

    fn flow(&self, source: &str, rest: &str) -> String {
        let known = |alias: &str| self.clusters.iter().any(|cluster| cluster.as_str() == alias);
        let target = self
            .clusters
            .iter()
            .filter(|alias| rest.strip_prefix(alias.as_str()).is_some_and(|rest| rest.starts_with('.')))
            .max_by_key(|alias| alias.as_str().len());
        let Some(target) = target.filter(|_| known(source)) else {
            return "names a cluster that is not in clusters, so it has no effect".to_owned();
        };
        let runs = |pair: &Pair| pair.source.as_str() == source && pair.target == *target;
        if !self.pairs.iter().any(runs) {
            return format!("flow {source}->{target} is not enabled, so this has no effect");
        }
        let name = rest.split_at(target.as_str().len() + 1).1;
        let (space, group, local) = client(name);
        let before = &format!("{source}->{target}.{space}");
        if space.is_empty() {
            return mirror(before, local);
        }
        let data =
            keys::USED.iter().any(|key| key.name == local && matches!(key.place, Place::Producer | Place::Connection));
        if group == Group::Producer && !space.contains("override") && data {
            return format!(
                "in MirrorMaker this reaches only the producer of offset syncs, which are not written yet; for the records write {source}->{target}.producer.override.{local} or {target}.producer.{local}"
            );
        }
        client_setting(before, group, local)
    }

    fn cluster(&self, alias: &ClusterAlias, name: &str) -> String {
        let (space, group, local) = client(name);
        let before = &format!("{alias}.{space}");
        if !space.is_empty() {
            let reads = self.pairs.iter().any(|pair| pair.source == *alias);
            let writes = self.pairs.iter().any(|pair| pair.target == *alias);
            return match group {
                Group::Consumer if keys::is_used(local) && !reads => {
                    format!("no enabled flow reads from {alias}")
                }
                Group::Producer if keys::is_used(local) && !writes => {
                    format!("no enabled flow writes to {alias}")
                }
                _ => client_setting(before, group, local),
            };
        }
        let with_flow =
            keys::USED.iter().any(|key| key.name == name && matches!(key.place, Place::Flow | Place::FlowOnly));
        if with_flow {
            let pair = self.pairs.iter().find(|pair| pair.source == *alias || pair.target == *alias);
            let flow = pair.map_or_else(|| "A->B".to_owned(), |pair| format!("{}->{}", pair.source, pair.target));
            return format!("has no effect with a cluster, in MirrorMaker neither; write {flow}.{name}");
        }
        mirror(before, name)
    }

    fn top(&self, key: &str) -> String {
        let (space, group, local) = client(key);
        if self.pairs.is_empty() && keys::is_used(local) {
            return "no enabled flow would read it".to_owned();
        }
        if !space.is_empty() {
            return if keys::is_used(local) { wrong_place(local) } else { client_setting(space, group, local) };
        }
        if let Some((alias, name)) = key.split_once('.')
            && !Group::Mirror.knows(key)
            && (keys::is_used(name) || name.ends_with("bootstrap.servers"))
        {
            let aliases: Vec<&str> = self.clusters.iter().map(ClusterAlias::as_str).collect();
            return format!("unknown: {alias} is not in clusters ({})", aliases.join(", "));
        }
        mirror("", key)
    }
}

/// A key in use that stands where neither MirrorMaker nor this program looks for it.
fn wrong_place(name: &str) -> String {
    let place = keys::USED.iter().find(|key| key.name == name).map(|key| key.place);
    let places = match place {
        Some(Place::Consumer) => format!("A.consumer.{name} or A->B.consumer.{name}"),
        Some(Place::Producer) => format!("B.producer.{name} or A->B.producer.override.{name}"),
        Some(Place::Connection) => {
            format!("A.consumer.{name}, B.producer.{name} or A.admin.{name}")
        }
        Some(Place::Cluster) => format!("A.{name}"),
        Some(Place::FlowOnly | Place::Flow) => format!("A->B.{name}"),
        Some(Place::Top) | None => format!("{name} alone"),
    };
    format!("has no effect in this place; write {places}")
}

/// Splits `source.consumer.fetch.max.bytes` into namespace and setting; the namespace is empty for other keys.
fn client(name: &str) -> (&str, Group, &str) {
    let bare = name.strip_prefix("source.").or_else(|| name.strip_prefix("target.")).unwrap_or(name);
    for (prefix, group) in [
        ("consumer.override.", Group::Consumer),
        ("producer.override.", Group::Producer),
        ("admin.override.", Group::Admin),
        ("consumer.", Group::Consumer),
        ("producer.", Group::Producer),
        ("admin.", Group::Admin),
    ] {
        if let Some(local) = bare.strip_prefix(prefix)
            && !Group::Mirror.knows(name)
        {
            return (name.split_at(name.len() - local.len()).0, group, local);
        }
    }
    ("", Group::Mirror, name)
}

/// `before` is what stands before the name in the file.
fn client_setting(before: &str, group: Group, name: &str) -> String {
    if group.knows(name) { known(name) } else { unknown(before, name, group.names()) }
}

fn mirror(before: &str, name: &str) -> String {
    if keys::is_used(name) {
        return wrong_place(name);
    }
    if Group::Mirror.knows(name) {
        return known(name);
    }
    for (group, word) in [(Group::Producer, "producer"), (Group::Consumer, "consumer"), (Group::Admin, "admin client")]
    {
        if group.knows(name) {
            let text = format!("a setting of Kafka's {word}, not used here");
            return remark(name).map_or_else(|| text.clone(), |remark| format!("{text} ({remark})"));
        }
    }
    let used = keys::USED.iter().map(|key| key.name);
    unknown(before, name, Group::Mirror.names().chain(used))
}

fn known(name: &str) -> String {
    let text = "known to MirrorMaker, not yet used here";
    remark(name).map_or_else(|| text.to_owned(), |remark| format!("{text} ({remark})"))
}

/// MirrorMaker users have always written these, and they have never worked.
const NEVER_VALID: [(&str, &str); 2] = [("topics.whitelist", "topics"), ("groups.whitelist", "groups")];

fn unknown(before: &str, name: &str, names: impl Iterator<Item = &'static str>) -> String {
    let near =
        NEVER_VALID.iter().find(|(never, _)| *never == name).map(|(_, right)| *right).or_else(|| nearest(name, names));
    near.map_or_else(
        || "unknown, so it has no effect".to_owned(),
        |near| format!("unknown, so it has no effect; did you mean {before}{near}?"),
    )
}

/// The name with the fewest slips to this one, if there are few for its length.
fn nearest(name: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let limit = match name.len() {
        0..=4 => 1,
        5..=10 => 2,
        _ => 3,
    };
    names.map(|known| (distance(name, known), known)).filter(|(slips, _)| *slips <= limit).min().map(|(_, known)| known)
}

/// Edit distance: characters to insert, drop or replace, and neighbours to swap.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut slips = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                slips = slips.min(before[j - 1] + 1);
            }
            row.push(slips);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        for (a, b, slips) in [
            ("topics", "topics", 0),
            ("topic", "topics", 1),
            ("tpoics", "topics", 1),
            ("topics.exlude", "topics.exclude", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), slips, "{a} {b}");
            assert_eq!(distance(b, a), slips, "{b} {a}");
        }
    }
}
