//! The scenarios, in the order in which they are played; those that restart the broker come last.

mod fetching;
mod groups;
mod offsets;
mod sequences;
mod storing;
mod transactions;

use super::run::{Run, Version};

pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) play: fn(&mut Run<'_>),
    since: Version,
    until: Version,
}

const fn every(name: &'static str, play: fn(&mut Run<'_>)) -> Scenario {
    Scenario { name, play, since: Version::V2_8_2, until: Version::V4_3_1 }
}

const ALL: &[Scenario] = &[
    every("s9_versions", fetching::versions),
    every("s1_target_keeps", storing::target_keeps),
    every("s1_recompressed", storing::recompressed),
    every("s2_identity", sequences::identity),
    Scenario { since: Version::V3_9_2, ..every("s2_expiry", sequences::expiry) },
    every("s3_epochs", sequences::epochs),
    every("s4_order", sequences::order),
    every("s5_thinned", storing::thinned),
    every("s5_cleaned", storing::cleaned),
    every("s6_transactions", transactions::of_a_source),
    every("s7_offsets", offsets::filler_and_markers),
    every("s7_own_transactions", transactions::coordinated_from_outside),
    every("s8_anchors", groups::anchors),
    every("s10_sessions", fetching::sessions),
    every("s10_recreated", fetching::recreated),
    every("s11_producers", offsets::producers),
    Scenario { until: Version::V2_8_2, ..every("s12_no_identity", storing::no_identity) },
    Scenario { until: Version::V2_8_2, ..every("s12_formats", storing::formats) },
    every("s13_lease", groups::lease),
    every("z_restart", sequences::restart),
];

pub(super) fn of(version: Version) -> impl Iterator<Item = &'static Scenario> {
    ALL.iter().filter(move |scenario| scenario.since <= version && version <= scenario.until)
}
