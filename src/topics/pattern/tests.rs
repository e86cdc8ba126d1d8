//! Java's answers (`java-answers.tsv`, made by `dev/oracle/Patterns.java`) against ours.

use super::*;

/// The names that the Java program asks about; in the same order.
const NAMES: [&str; 40] = [
    "a",
    "b",
    "A",
    "B",
    "x",
    "h",
    "3",
    "_",
    "-",
    ".",
    "+",
    ":",
    "&",
    "~",
    "{",
    "}",
    "]",
    "aa",
    "ab",
    "aaaa",
    "a}",
    "a]",
    "a{1",
    "orders",
    "orders.eu",
    "orders-eu",
    "orders_eu",
    "payments",
    "test.orders",
    "ORDERS",
    "a.b",
    "a-b",
    "abab",
    "orders.dlq",
    "x.y.z",
    "topic1",
    "topic12",
    "__x",
    "a|b",
    "",
];

/// What Java takes and is refused here, with the remedy in the message.
const REFUSED_HERE: [&str; 5] = [r"\p{javaLowerCase}", r"\X", "[a-z--x]", "[+--]", "(?x) a b"];

#[test]
fn every_pattern_means_what_it_means_to_java() {
    let mut faults = Vec::new();
    for line in include_str!("java-answers.tsv").lines() {
        let mut columns = line.split('\t');
        let pattern = columns.next().expect("every line has a pattern");
        let java_takes_it = columns.next() == Some("ok");
        let ours = JavaPattern::any_of(&[pattern]);
        if !java_takes_it || REFUSED_HERE.contains(&pattern) {
            if ours.is_ok() {
                faults.push(format!("{pattern} is taken, but refused by Java"));
            }
            continue;
        }
        let expected: Vec<&str> = columns.map(|name| if name == "<empty>" { "" } else { name }).collect();
        match ours {
            Err(error) => faults.push(error.to_string()),
            Ok(ours) => {
                let names = NAMES.into_iter();
                let found: Vec<&str> = names.filter(|name| ours.matches(name) == Some(true)).collect();
                if found != expected {
                    faults.push(format!("{pattern}: Java {expected:?}, here {found:?}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is taken means what it means to Java, and nothing is taken that Java refuses.
#[test]
fn random_patterns_are_refused_or_mean_what_they_mean_to_java() {
    let name = |text: &'static str| if text == "<empty>" { "" } else { text };
    let mut lines = include_str!("java-random.tsv").lines();
    let head = lines.next().expect("the first line holds the names");
    let names: Vec<&str> = head.split('\t').skip(1).map(name).collect();
    let (mut taken, mut faults) = (0, Vec::new());
    for line in lines {
        let mut columns = line.split('\t');
        let pattern = columns.next().expect("every line has a pattern");
        let java_takes_it = columns.next() == Some("ok");
        let Ok(ours) = JavaPattern::any_of(&[pattern]) else {
            continue;
        };
        taken += 1;
        let expected: Vec<&str> = columns.map(name).collect();
        let matches = |name: &&str| ours.matches(name) == Some(true);
        let found: Vec<&str> = names.iter().copied().filter(matches).collect();
        if !java_takes_it || found != expected {
            faults.push(format!("{pattern}: Java {expected:?}, here {found:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(taken > 400, "only {taken} patterns were taken");
}

#[test]
fn ordinary_patterns_use_the_engine_without_backtracking() {
    for pattern in [".*", r"\Qa.b\E", r"[\w-.]+", "(?i)a|b"] {
        let compiled = JavaPattern::any_of(&[pattern]).unwrap();
        assert!(matches!(compiled.engine, Engine::Linear(_)), "{pattern}");
    }
}

#[test]
fn errors_name_the_item_and_the_remedy() {
    let error = |items: &[&str]| JavaPattern::any_of(items).unwrap_err().to_string();
    assert_eq!(error(&["orders", "*"]), r#"pattern "*": nothing to repeat before *; for any name write .*"#);
    let split = error(&["a{1", "3}"]);
    assert!(split.contains("\"a{1\"") && split.contains("split at commas"), "{split}");
    assert!(error(&[r"\p{javaLowerCase}"]).contains(r"\p{Lower}"));
}

#[test]
fn items_are_joined_as_java_joins_them() {
    let joined = JavaPattern::any_of(&["(?i)a", "b"]).unwrap();
    assert_eq!(joined.matches("B"), Some(true));
    let group = JavaPattern::any_of(&["(a", "b)c"]).unwrap();
    assert_eq!(group.matches("bc"), Some(true));
}

#[test]
fn posix_brackets_are_warned_about() {
    assert_eq!(JavaPattern::any_of(&["[[:alpha:]]+"]).unwrap().warnings().len(), 1);
    assert!(JavaPattern::any_of(&["[a:]+"]).unwrap().warnings().is_empty());
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    #[test]
    fn no_pattern_panics(pattern in r"([a-z\\\[\](){}?*+|^$.&:<>=!#,0-9QEpxu-]|\PC){0,12}", name: String) {
        if let Ok(pattern) = JavaPattern::any_of(&[pattern]) {
            pattern.matches(&name);
        }
    }
}
