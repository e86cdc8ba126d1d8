//! The fault simulation: the whole mirror against embedded clusters, on a simulated network and clock.
//!
//! Each seed is a schedule: clusters, traffic, settings and faults. [`world`] lives through it, [`oracle`] looks at both
//! logs all the while. A failing seed is printed with its schedule, shrunk to the faults that are needed; to see it again:
//! `TOWPATH_SIM_SEED=n cargo test --profile simulation --test protocol sim::replay -- --ignored --nocapture`.

mod acts;
mod losses;
mod measure;
mod network;
mod oracle;
mod random;
mod schedule;
mod shrink;
mod traffic;
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use towpath::simulation::Planted;

use self::{
    measure::Most,
    schedule::Schedule,
    world::{Failure, run},
};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// Lives through seeds on all cores; the failures, and how often each kind of fault was seen.
fn many(first: u64, count: u64) -> (Vec<(u64, Failure)>, BTreeMap<String, u64>, Most) {
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    let kinds = Mutex::new(BTreeMap::new());
    let most = Mutex::new(Most::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failures.lock().expect("no panic while locked").len() >= 5 {
                        return;
                    }
                    let schedule = Schedule::of(seed);
                    for (_, fault) in &schedule.faults {
                        *kinds.lock().expect("no panic while locked").entry(fault.kind()).or_default() += 1;
                    }
                    match run(&schedule, None) {
                        Ok(told) => most.lock().expect("no panic while locked").join(told.most),
                        Err(failure) => failures.lock().expect("no panic while locked").push((seed, failure)),
                    }
                }
            });
        }
    });
    let most = most.into_inner().expect("no panic while locked");
    (failures.into_inner().expect("no panic while locked"), kinds.into_inner().expect("no panic while locked"), most)
}

fn report(failures: &[(u64, Failure)]) {
    for (seed, failure) in failures {
        println!("seed {seed} failed at {:.3} s: {}", failure.at.as_secs_f64(), failure.what);
    }
    if let Some((seed, _)) = failures.first() {
        let (schedule, failure) = shrink::shrink(Schedule::of(*seed));
        println!("the least that fails:\n{schedule}  fails at {:.3} s: {}", failure.at.as_secs_f64(), failure.what);
    }
}

/// `TOWPATH_SIM_SCHEDULES` seeds from `TOWPATH_SIM_SEED` on.
#[test]
#[ignore = "takes minutes: dev/test and dev/soak run it"]
fn schedules_lose_and_double_nothing() {
    let (first, count) = (number("TOWPATH_SIM_SEED").unwrap_or(1), number("TOWPATH_SIM_SCHEDULES").unwrap_or(2_000));
    let (failures, kinds, most) = many(first, count);
    println!("{count} schedules from seed {first}, faults:");
    for (kind, count) in kinds {
        println!("{count:8}  {kind}");
    }
    println!("{most:?}");
    report(&failures);
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
}

#[test]
fn some_schedules_lose_and_double_nothing() {
    let (failures, ..) = many(1, 3);
    report(&failures);
    assert!(failures.is_empty());
}

/// One seed, shrunk first if `TOWPATH_SIM_SHRINK` is set, with the log of the mirror if `TOWPATH_LOG` is.
#[test]
#[ignore = "for people: shows one seed"]
fn replay() {
    let seed = number("TOWPATH_SIM_SEED").expect("TOWPATH_SIM_SEED names the seed");
    let mut schedule = Schedule::of(seed);
    if std::env::var_os("TOWPATH_SIM_SHRINK").is_some() {
        (schedule, _) = shrink::shrink(schedule);
    }
    if let Ok(filter) = std::env::var("TOWPATH_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    println!("{schedule}");
    match run(&schedule, None) {
        Ok(told) => println!("{told:?}"),
        Err(failure) => panic!("failed at {:.3} s: {}", failure.at.as_secs_f64(), failure.what),
    }
}

#[test]
fn a_seed_is_lived_through_twice_alike() {
    for seed in [5, 6] {
        let schedule = Schedule::of(seed);
        let lived = || run(&schedule, None).unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.what));
        let (one, two) = (lived(), lived());
        let differ = one.log.iter().zip(&two.log).position(|(one, two)| one != two);
        if let Some(at) = differ {
            println!(
                "{}\n{:#?}\n{:#?}",
                at,
                &one.log[at.saturating_sub(5)..at + 1],
                &two.log[at.saturating_sub(5)..at + 1]
            );
        }
        assert_eq!(one.trace, two.trace, "seed {seed}: TOWPATH_SIM_TRACE=1 shows where they part");
    }
}

/// Each planted fault of the mirror is seen by the oracle, within so many seeds.
#[test]
#[ignore = "takes a minute: dev/test runs it"]
fn planted_faults_are_seen() {
    const SEEDS: u64 = 300;
    for planted in Planted::ALL {
        let seen =
            (1..=SEEDS).find_map(|seed| Some((seed, run(&Schedule::inviting(planted, seed), Some(planted)).err()?)));
        match seen {
            Some((seed, failure)) => println!("{planted:?}: seed {seed}: {}", failure.what),
            None => panic!("{planted:?} is not seen by {SEEDS} schedules"),
        }
    }
}

#[test]
fn faults_end_in_a_bounded_time() {
    // A world in which nothing goes wrong is copied at once.
    let mut schedule = Schedule::of(7);
    schedule.faults.clear();
    let told = run(&schedule, None).unwrap_or_else(|failure| panic!("{}", failure.what));
    assert!(told.caught_up_after < Duration::from_secs(10), "{told:?}");
    assert!(told.records > 0);
}
