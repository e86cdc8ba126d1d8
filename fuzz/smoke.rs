//! A bounded, seeded run of every target over mutations of valid inputs.

use super::*;

/// Changes of each input: fewer of each where there are many.
const ROUNDS: usize = 3_000;
const ROUNDS_IN_ALL: usize = 120_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound.max(1)
    }

    fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            if bytes.is_empty() {
                break;
            }
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.below(256) as u8),
                4 => {
                    bytes.remove(at);
                }
                _ => {
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].fill([0, 0xff][self.below(2)]);
                }
            }
        }
        bytes
    }
}

fn run(target: fn(&[u8]), inputs: &[Vec<u8>]) {
    let mut random = Random(0x5eed_0f70_3a11_ced1);
    let rounds = ROUNDS.min(ROUNDS_IN_ALL / inputs.len());
    for input in inputs {
        target(input);
        (0..input.len()).for_each(|length| target(&input[..length]));
        (0..rounds).for_each(|_| target(&random.mutate(input)));
    }
    for length in 0..300 {
        let noise: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        target(&noise);
    }
}

/// What libFuzzer found once, by target: `fuzz/found/<target>/*`.
fn found(target: &str) -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("found").join(target);
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.map(|file| std::fs::read(file.path()).unwrap()).collect()
}

#[test]
fn no_target_panics() {
    std::thread::scope(|scope| {
        for (name, target) in TARGETS {
            let seeds = seeds::of(name);
            assert!(!seeds.is_empty(), "{name} has no valid input");
            scope.spawn(move || {
                found(name).iter().for_each(|input| target(input));
                run(*target, &seeds);
            });
        }
    });
}

#[test]
fn valid_anchors_and_settings_are_taken() {
    for seed in seeds::of("anchor") {
        let text = std::str::from_utf8(&seed[1..]).unwrap();
        assert!(Record::from_commit(100, text).is_ok(), "{:?}", Record::from_commit(100, text));
    }
    let first = &seeds::of("properties")[0];
    let parsed = config::parse(first, "mm2.properties", &environment());
    assert!(parsed.is_ok(), "{:?}", parsed.err());
}
