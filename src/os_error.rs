//! The operating system's reason as people read it.

use std::{fmt, io};

/// Prints an error of the operating system without Rust's `(os error 111)`.
#[derive(Debug, Clone, Copy)]
pub struct Reason<'a>(pub &'a io::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(text.split_once(" (os error ").map_or(text.as_str(), |(words, _)| words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_operating_system_are_left_out() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(Reason(&refused).to_string(), "Connection refused");
        let own = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        assert_eq!(Reason(&own).to_string(), "the host name has no address");
    }
}
