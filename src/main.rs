//! The `towpath` program: everything lives in the library.

/// musl's own allocator is several times slower with two threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    towpath::cli::main()
}
