//! Rewrites a Java pattern so that Rust's engines give it the meaning Java does.
//!
//! Written for topic names: ASCII without blanks or line ends. Where the languages differ only on other characters
//! (`\d` and `\w` beyond ASCII, `$` before a line end) nothing is changed.

use std::iter::Peekable;
use std::str::Chars;

/// A rewritten pattern.
pub(super) struct Translation {
    pub(super) pattern: String,
    /// Whether it needs an engine that backtracks.
    pub(super) backtracking: bool,
    /// What it means to Java where its author may have meant something else.
    pub(super) warnings: Vec<String>,
}

/// Rewrites `java`, or says why it cannot be used.
pub(super) fn translate(java: &str) -> Result<Translation, String> {
    let mut translator = Translator {
        rest: java.chars().peekable(),
        out: Translation { pattern: String::with_capacity(java.len()), backtracking: false, warnings: Vec::new() },
        depth: 0,
        before: Before::Nothing,
    };
    while let Some(c) = translator.rest.next() {
        translator.outside(c)?;
    }
    if translator.depth > 0 {
        return Err("a group is not closed".to_owned());
    }
    Ok(translator.out)
}

struct Translator<'a> {
    rest: Peekable<Chars<'a>>,
    out: Translation,
    depth: usize,
    before: Before,
}

/// What a quantifier would apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Item,
    Quantified,
}

/// One escape sequence, as far as a class needs to know.
enum Escaped {
    /// A single character: may begin a range.
    Char(char),
    /// The inside of a class: stands as it is in a class, in brackets outside.
    Set(&'static str),
    /// Stands as it is anywhere.
    Raw(String),
    /// Literal text.
    Quote(String),
    /// Only outside of a class: a place, a reference or a sequence.
    Outside(String),
}

/// Java's ASCII classes under the names of Rust's.
const POSIX: [(&str, &str, &str); 13] = [
    ("Lower", "[:lower:]", "[:^lower:]"),
    ("Upper", "[:upper:]", "[:^upper:]"),
    ("ASCII", "[:ascii:]", "[:^ascii:]"),
    ("Alpha", "[:alpha:]", "[:^alpha:]"),
    ("Digit", "[:digit:]", "[:^digit:]"),
    ("Alnum", "[:alnum:]", "[:^alnum:]"),
    ("Punct", "[:punct:]", "[:^punct:]"),
    ("Graph", "[:graph:]", "[:^graph:]"),
    ("Print", "[:print:]", "[:^print:]"),
    ("Blank", "[:blank:]", "[:^blank:]"),
    ("Cntrl", "[:cntrl:]", "[:^cntrl:]"),
    ("XDigit", "[:xdigit:]", "[:^xdigit:]"),
    ("Space", "[:space:]", "[:^space:]"),
];

impl Translator<'_> {
    fn push(&mut self, text: &str) {
        self.out.pattern.push_str(text);
    }

    /// A character that stands for itself, in a class or outside.
    fn literal(&mut self, c: char) {
        if c.is_ascii_alphanumeric() || !c.is_ascii() || c == '_' {
            self.out.pattern.push(c);
        } else {
            // Never mistaken for syntax by either engine, whatever the place.
            self.push(&format!("\\x{{{:X}}}", u32::from(c)));
        }
    }

    fn outside(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => return self.escape_outside(),
            '[' => {
                self.class()?;
                self.before = Before::Item;
            }
            '(' => return self.group(),
            ')' => {
                self.depth = self.depth.checked_sub(1).ok_or("a ) has no (")?;
                self.push(")");
                self.before = Before::Item;
            }
            '|' => {
                self.push("|");
                self.before = Before::Nothing;
            }
            '*' | '+' | '?' => {
                self.push(&c.to_string());
                return self.quantified(c);
            }
            '{' => {
                let bounds = self.bounds()?;
                self.push(&bounds);
                return self.quantified('{');
            }
            '^' | '$' | '.' => {
                self.push(&c.to_string());
                self.before = Before::Item;
            }
            c => {
                self.literal(c);
                self.before = Before::Item;
            }
        }
        Ok(())
    }

    /// After a quantifier: what it applies to, and whether it is lazy or possessive.
    fn quantified(&mut self, quantifier: char) -> Result<(), String> {
        if self.before != Before::Item {
            let hint = if quantifier == '*' { "; for any name write .*" } else { "" };
            return Err(format!("nothing to repeat before {quantifier}{hint}"));
        }
        match self.rest.peek() {
            Some('?') => {
                self.rest.next();
                self.push("?");
            }
            Some('+') => {
                self.rest.next();
                self.push("+");
                self.out.backtracking = true;
            }
            _ => {}
        }
        self.before = Before::Quantified;
        Ok(())
    }

    /// `{n}`, `{n,}`, `{n,m}`; the brace is read.
    fn bounds(&mut self) -> Result<String, String> {
        let mut text = String::from("{");
        for c in self.rest.by_ref() {
            text.push(c);
            if c == '}' {
                break;
            }
        }
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
        let (low, high) = inner.map_or(("", ""), |t| t.split_once(',').unwrap_or((t, "0")));
        let digits = |t: &str| t.chars().all(|c| c.is_ascii_digit());
        if low.is_empty() || !digits(low) || !digits(high) {
            return Err(format!("{text} is no repetition; for a literal brace write \\{{"));
        }
        Ok(text)
    }

    fn group(&mut self) -> Result<(), String> {
        self.depth += 1;
        self.before = Before::Nothing;
        if self.rest.next_if_eq(&'?').is_none() {
            self.push("(");
            return Ok(());
        }
        let mut head = String::from("(?");
        match self.rest.peek().copied() {
            Some(c @ ('=' | '!' | '>')) => {
                self.rest.next();
                head.push(c);
                self.out.backtracking = true;
            }
            Some('<') => {
                self.rest.next();
                head.push('<');
                if let Some(c) = self.rest.next_if(|c| matches!(c, '=' | '!')) {
                    head.push(c);
                    self.out.backtracking = true;
                } else {
                    head.push_str(&self.until('>')?);
                    head.push('>');
                }
            }
            _ => return self.flags(),
        }
        self.push(&head);
        Ok(())
    }

    /// `(?i)`, `(?i-s:` and the like. Java's `d`, `u` and `U` concern only characters that names do not have, and
    /// mean other things in Rust.
    fn flags(&mut self) -> Result<(), String> {
        let (mut on, mut off, mut minus) = (String::new(), String::new(), false);
        loop {
            match self.rest.next() {
                Some('-') if !minus => minus = true,
                Some(c @ ('i' | 'm' | 's')) => if minus { &mut off } else { &mut on }.push(c),
                Some('d' | 'u' | 'U') => {}
                Some('x') => {
                    return Err("the flag x is not supported; write the pattern without blanks and comments".to_owned());
                }
                Some(end @ (':' | ')')) => {
                    let minus = if off.is_empty() { "" } else { "-" };
                    let flags = format!("{on}{minus}{off}");
                    if end == ')' {
                        self.depth -= 1;
                        if !flags.is_empty() {
                            self.push(&format!("(?{flags})"));
                        }
                    } else {
                        self.push(&format!("(?{flags}:"));
                    }
                    return Ok(());
                }
                other => {
                    let found = other.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
                    return Err(format!("{found} after (? is no flag of Java's"));
                }
            }
        }
    }

    fn escape_outside(&mut self) -> Result<(), String> {
        let before = std::mem::replace(&mut self.before, Before::Item);
        match self.escape()? {
            Escaped::Char(c) => self.literal(c),
            Escaped::Set(set) => self.push(&format!("[{set}]")),
            Escaped::Raw(text) | Escaped::Outside(text) => self.push(&text),
            // Nothing was quoted, so there is nothing new to repeat.
            Escaped::Quote(text) if text.is_empty() => self.before = before,
            Escaped::Quote(text) => text.chars().for_each(|c| self.literal(c)),
        }
        Ok(())
    }

    /// A character class; its opening bracket is read.
    fn class(&mut self) -> Result<(), String> {
        self.push("[");
        if self.rest.next_if_eq(&'^').is_some() {
            self.push("^");
        }
        if self.rest.peek() == Some(&':') {
            self.out.warnings.push(
                "[: inside [ ] is a class of single characters to Java; for letters or digits write \\p{Alpha}, \\p{Digit}"
                    .to_owned(),
            );
        }
        let mut empty = true;
        // Whether a hyphen would begin a range, as after a single character.
        let mut range = false;
        loop {
            let c = self.rest.next().ok_or("a [ is not closed")?;
            match c {
                ']' if !empty => {
                    self.push("]");
                    return Ok(());
                }
                '[' => {
                    self.class()?;
                    range = false;
                }
                '&' if self.rest.next_if_eq(&'&').is_some() => {
                    self.push("&&");
                    range = false;
                }
                '-' if self.rest.peek() == Some(&'-') => {
                    return Err("-- inside [ ] is not supported; write \\- for a hyphen".to_owned());
                }
                // A set cannot begin a range, so this hyphen is one: `[\w-.]`.
                '-' if !range => self.literal('-'),
                '-' => {
                    self.push("-");
                    range = false;
                    continue;
                }
                '\\' => match self.escape()? {
                    Escaped::Char(c) => {
                        self.literal(c);
                        range = true;
                    }
                    Escaped::Set(set) => {
                        self.push(set);
                        range = false;
                    }
                    Escaped::Raw(text) => {
                        self.push(&text);
                        range = false;
                    }
                    Escaped::Quote(text) => {
                        text.chars().for_each(|c| self.literal(c));
                        range = !text.is_empty();
                    }
                    Escaped::Outside(_) => {
                        return Err("an escape that stands for a place cannot be inside [ ]".to_owned());
                    }
                },
                c => {
                    self.literal(c);
                    range = true;
                }
            }
            empty = false;
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<Escaped, String> {
        let c = self.rest.next().ok_or("the pattern ends in a backslash")?;
        Ok(match c {
            'Q' => Escaped::Quote(self.quote()),
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => Escaped::Raw(format!("\\{c}")),
            'b' | 'B' | 'A' | 'z' => Escaped::Outside(format!("\\{c}")),
            'Z' => Escaped::Outside("\\z".to_owned()),
            'G' => Escaped::Outside("\\A".to_owned()),
            'R' => Escaped::Outside("(?:\\r\\n|[\\n\\x0B\\f\\r])".to_owned()),
            'h' => Escaped::Set("[ \\t]"),
            'H' => Escaped::Set("[^ \\t]"),
            'v' => Escaped::Set("[\\n\\x0B\\f\\r]"),
            'V' => Escaped::Set("[^\\n\\x0B\\f\\r]"),
            't' => Escaped::Char('\t'),
            'n' => Escaped::Char('\n'),
            'r' => Escaped::Char('\r'),
            'f' => Escaped::Char('\x0C'),
            'a' => Escaped::Char('\x07'),
            'e' => Escaped::Char('\x1B'),
            'c' => {
                let control = self.rest.next().ok_or("\\c needs a character")?;
                Escaped::Char(char::from_u32(u32::from(control) ^ 64).ok_or("\\c needs a letter")?)
            }
            'x' if self.rest.next_if_eq(&'{').is_some() => {
                let digits = self.until('}')?;
                Escaped::Char(code_point(&digits, 16)?)
            }
            'x' => Escaped::Char(self.digits(2, 16)?),
            'u' => Escaped::Char(self.digits(4, 16)?),
            '0' => Escaped::Char(self.octal()?),
            'p' | 'P' => self.property(c == 'P')?,
            'k' => {
                if self.rest.next() != Some('<') {
                    return Err("\\k needs <name>".to_owned());
                }
                let name = self.until('>')?;
                self.out.backtracking = true;
                Escaped::Outside(format!("\\k<{name}>"))
            }
            '1'..='9' => {
                self.out.backtracking = true;
                Escaped::Outside(format!("\\{c}"))
            }
            c if c.is_ascii_alphabetic() => {
                return Err(format!("\\{c} is not supported; for the letter itself leave the backslash out"));
            }
            c => Escaped::Char(c),
        })
    }

    /// Literal text up to `\E` or the end.
    fn quote(&mut self) -> String {
        let mut text = String::new();
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            text.push(c);
        }
        text
    }

    fn until(&mut self, end: char) -> Result<String, String> {
        let mut text = String::new();
        for c in self.rest.by_ref() {
            if c == end {
                return Ok(text);
            }
            text.push(c);
        }
        Err(format!("{end} is missing"))
    }

    fn digits(&mut self, count: usize, radix: u32) -> Result<char, String> {
        let text: String = self.rest.by_ref().take(count).collect();
        if text.len() < count {
            return Err(format!("{text:?} is too short for a character code"));
        }
        code_point(&text, radix)
    }

    /// `\0n`, `\0nn`, `\0mnn` with m up to 3.
    fn octal(&mut self) -> Result<char, String> {
        let mut text = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_digit(8)) {
            text.push(c);
            let full = if text.starts_with(|c| c <= '3') { 3 } else { 2 };
            if text.len() == full {
                break;
            }
        }
        code_point(&text, 8)
    }

    /// `\pL`, `\p{Name}`, `\P{Name}`.
    fn property(&mut self, negated: bool) -> Result<Escaped, String> {
        let name = match self.rest.next() {
            Some('{') => self.until('}')?,
            Some(c) => c.to_string(),
            None => return Err("\\p needs a name".to_owned()),
        };
        if name.starts_with("java") {
            return Err(format!(
                "\\p{{{name}}} asks a method of Java's and is not supported; write \\p{{Lower}}, \\p{{Upper}}, \\p{{Alpha}} and the like"
            ));
        }
        if let Some((_, set, complement)) = POSIX.iter().find(|(java, ..)| *java == name) {
            return Ok(Escaped::Set(if negated { complement } else { set }));
        }
        let p = if negated { 'P' } else { 'p' };
        Ok(Escaped::Raw(format!("\\{p}{{{name}}}")))
    }
}

fn code_point(digits: &str, radix: u32) -> Result<char, String> {
    u32::from_str_radix(digits, radix)
        .ok()
        .and_then(char::from_u32)
        .ok_or_else(|| format!("{digits:?} is no character code"))
}
