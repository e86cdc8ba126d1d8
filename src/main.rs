//! The `towpath` program: everything lives in the library.

fn main() -> std::process::ExitCode {
    towpath::cli::main()
}
