//! Makes an answer readable and comparable: its `Debug` text is read back into values, what says nothing is left out, and
//! what differs from run to run gets a name.

use std::fmt::Debug;

/// What `Debug` of Rust's standard library and derives can print.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shown {
    Struct(Vec<(String, Self)>),
    List(Vec<Self>),
    Leaf(String),
}

/// Gives a name to what differs from run to run: first the field's name, then its value.
pub(super) type Rename<'a> = &'a dyn Fn(&str, &str) -> String;

/// Fields that say nothing or never the same.
const LEFT_OUT: &[&str] = &["unknown_tagged_fields", "throttle_time_ms"];
/// Only whether there is one: the wording is nobody's contract.
const MESSAGES: &[&str] = &["error_message", "batch_index_error_message"];
const WIDTH: usize = 116;

impl Shown {
    pub(super) fn of(value: &impl Debug) -> Self {
        let text = format!("{value:?}");
        let mut reader = Reader { rest: &text };
        let shown = reader.value();
        assert!(reader.rest.is_empty(), "not read: {:.60} of {text:.200}", reader.rest);
        shown
    }

    /// Order within a list is nobody's promise (S8), so lists are sorted once all names are replaced.
    pub(super) fn render(&self, rename: Rename<'_>) -> String {
        self.named("", rename).lines(0)
    }

    fn named(&self, field: &str, rename: Rename<'_>) -> Self {
        match self {
            Self::Leaf(text) => Self::Leaf(rename(field, text)),
            Self::List(items) => {
                let mut items: Vec<Self> = items.iter().map(|item| item.named(field, rename)).collect();
                if items.iter().any(|item| matches!(item, Self::Struct(_))) {
                    items.sort_by_key(Self::compact);
                }
                Self::List(items)
            }
            Self::Struct(fields) => {
                let mut named = Vec::new();
                for (name, value) in fields {
                    if LEFT_OUT.contains(&name.as_str()) || value.says_nothing() {
                        continue;
                    }
                    let value = if MESSAGES.contains(&name.as_str()) {
                        Self::Leaf("given".into())
                    } else {
                        value.named(name, rename)
                    };
                    named.push((name.clone(), value));
                }
                Self::Struct(named)
            }
        }
    }

    fn says_nothing(&self) -> bool {
        match self {
            Self::Leaf(text) => {
                matches!(text.as_str(), "None" | "\"\"" | "b\"\"" | "00000000-0000-0000-0000-000000000000")
            }
            Self::List(items) => items.is_empty(),
            // Unset optional structures: a leader that is not named, an epoch that does not diverge.
            Self::Struct(fields) => fields.iter().all(|(name, value)| {
                value.says_nothing() || LEFT_OUT.contains(&name.as_str()) || *value == Self::Leaf("-1".into())
            }),
        }
    }

    fn compact(&self) -> String {
        match self {
            Self::Leaf(text) => text.clone(),
            Self::List(items) => format!("[{}]", items.iter().map(Self::compact).collect::<Vec<_>>().join(", ")),
            Self::Struct(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name} {}", value.compact()));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
        }
    }

    fn lines(&self, depth: usize) -> String {
        let compact = self.compact();
        if compact.len() + 2 * depth <= WIDTH {
            return compact;
        }
        let indent = "  ".repeat(depth + 1);
        match self {
            Self::Leaf(text) => text.clone(),
            Self::List(items) => match &items[..] {
                [only] => format!("[{}]", only.lines(depth)),
                items => {
                    let items = items.iter().map(|item| format!("\n{indent}{}", item.lines(depth + 1)));
                    format!("[{}]", items.collect::<String>())
                }
            },
            Self::Struct(fields) => {
                // Short fields share lines, long ones have their own.
                let (mut text, mut width) = (String::from("{"), WIDTH);
                for (name, value) in fields {
                    let compact = format!("{name} {}", value.compact());
                    let long = compact.len() > WIDTH / 2;
                    if long || width + compact.len() > WIDTH {
                        text.push_str(&format!("\n{indent}"));
                        width = indent.len();
                    } else {
                        text.push_str(", ");
                    }
                    width += compact.len() + 2;
                    text.push_str(&if long { format!("{name} {}", value.lines(depth + 1)) } else { compact });
                    if long {
                        width = WIDTH;
                    }
                }
                text.push('}');
                text
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self) -> Shown {
        self.blank();
        if self.eat("[") {
            return Shown::List(self.items("]"));
        }
        if self.eat("{") {
            // A map; all that we see are empty ones.
            return Shown::List(self.items("}"));
        }
        let quoted = if self.rest.starts_with("b\"") { Some(1) } else { self.rest.starts_with('"').then_some(0) };
        if let Some(prefix) = quoted {
            return Shown::Leaf(self.quoted(prefix));
        }
        let end = self.rest.find([',', ' ', '{', '}', '[', ']', '(', ')']).unwrap_or(self.rest.len());
        let word = self.take(end);
        if self.eat("(") {
            // Newtypes and `Some`: only what is inside counts.
            let mut items = self.items(")");
            return if items.len() == 1 { items.remove(0) } else { Shown::List(items) };
        }
        if self.eat(" {") {
            return Shown::Struct(self.fields());
        }
        Shown::Leaf(word)
    }

    fn items(&mut self, end: &str) -> Vec<Shown> {
        let mut items = Vec::new();
        loop {
            self.blank();
            if self.eat(end) {
                return items;
            }
            items.push(self.value());
            self.blank();
            // Of a map only that it has entries matters.
            if self.eat(":") {
                self.value();
            }
            self.blank();
            self.eat(",");
        }
    }

    fn fields(&mut self) -> Vec<(String, Shown)> {
        let mut fields = Vec::new();
        loop {
            self.blank();
            if self.eat("}") {
                return fields;
            }
            let end = self.rest.find(':').expect("a field has a name");
            let name = self.take(end);
            self.eat(":");
            fields.push((name, self.value()));
            self.blank();
            self.eat(",");
        }
    }

    fn quoted(&mut self, prefix: usize) -> String {
        let mut escaped = false;
        for (at, letter) in self.rest.char_indices().skip(prefix + 1) {
            match letter {
                '"' if !escaped => return self.take(at + 1),
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        panic!("a string without end: {:.80}", self.rest)
    }

    fn take(&mut self, length: usize) -> String {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken.to_owned()
    }

    fn eat(&mut self, word: &str) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[test]
fn an_answer_is_read_back_and_shortened() {
    use kafka_protocol::messages::leave_group_response::MemberResponse;
    use kafka_protocol::messages::{FindCoordinatorResponse, LeaveGroupResponse};
    use kafka_protocol::protocol::StrBytes;
    let member =
        |id: &'static str| MemberResponse::default().with_member_id(StrBytes::from_static_str(id)).with_error_code(25);
    let answer = LeaveGroupResponse::default().with_members(vec![member("b, \"}"), member("a")]);
    let expected = r#"{error_code 0, members [{member_id "A", error_code 25}, {member_id "b, \"}", error_code 25}]}"#;
    let rename = |_: &str, text: &str| text.replace("\"a\"", "\"A\"");
    assert_eq!(Shown::of(&answer).render(&rename), expected);
    let answer = FindCoordinatorResponse::default().with_error_message(Some(StrBytes::from_static_str("no")));
    assert!(Shown::of(&answer).render(&|_, text| text.to_owned()).contains("error_message given"));
}
