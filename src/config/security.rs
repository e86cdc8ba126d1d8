//! `security.protocol`: refused unless it is plain text, wherever it reaches a client of a flow that runs.
//!
//! To go on in plain text where a file asks for TLS would send records and passwords in the clear.

use super::mm2::Pair;
use super::reader::Reader;
use crate::mirror::settings::ClusterAlias;

const NAME: &str = "security.protocol";

/// Looks at every key that ends in the name; those of clusters without a flow are left to the notes.
pub(super) fn check(reader: &mut Reader, clusters: &[ClusterAlias], pairs: &[Pair]) {
    debug_assert!(super::keys::is_used(NAME));
    let entries = reader.entries();
    // Standing alone it is for the clusters that have none of their own.
    let inherited = |alias: &ClusterAlias| {
        let own = format!("{alias}.{NAME}");
        !entries.iter().any(|entry| entry.key == own)
    };
    for entry in &entries {
        let Some(place) = entry.key.strip_suffix(NAME) else {
            continue;
        };
        let concerned = match place.strip_suffix('.') {
            None => place.is_empty() && pairs.iter().any(|p| inherited(&p.source) || inherited(&p.target)),
            Some(place) => concerns(place, clusters, pairs),
        };
        // One that stands alone and is overridden for every cluster in use needs no note either.
        if concerned || place.is_empty() {
            reader.settle(&entry.key);
        }
        if !concerned {
            continue;
        }
        let parse = |text: &str| {
            match text.trim().to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Ok(()),
            protocol @ ("SSL" | "SASL_PLAINTEXT" | "SASL_SSL") => Err(format!(
                "{protocol} is not in this version yet: it speaks PLAINTEXT only, without TLS and SASL; point bootstrap.servers at a PLAINTEXT listener"
            )),
            _ => Err("not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL (and of these only PLAINTEXT works in this version)".to_owned()),
        }
        };
        reader.read(std::slice::from_ref(&entry.key), parse);
    }
}

/// Whether a prefix such as `A`, `A.consumer` or `A->B.source.admin` belongs to a flow that runs.
fn concerns(place: &str, clusters: &[ClusterAlias], pairs: &[Pair]) -> bool {
    let begins = |prefix: &str| place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let longest = clusters.iter().filter(|alias| begins(alias.as_str())).max_by_key(|alias| alias.as_str().len());
    pairs.iter().any(|pair| {
        begins(&format!("{}->{}", pair.source, pair.target))
            || longest.is_some_and(|alias| *alias == pair.source || *alias == pair.target)
    })
}
