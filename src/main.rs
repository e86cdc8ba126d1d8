//! The `towpath` program: everything lives in the library.

fn main() {}
