//! All targets in one program: `TOWPATH_FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TOWPATH_FUZZ_TARGET").unwrap_or_default();
    let found = towpath_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    found.expect("TOWPATH_FUZZ_TARGET names a target of fuzz/lib.rs").1
});

fuzz_target!(|data: &[u8]| (*TARGET)(data));
