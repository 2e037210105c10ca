//! The `tracebyte` binary.

fn main() -> std::process::ExitCode {
    tracebyte::cli::main()
}
