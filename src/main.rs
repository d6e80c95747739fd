//! The contextd program: runs the guard of the embedded PostgreSQL, or a command of the command line.

use std::process::ExitCode;

use clap::Parser;
use contextd::cli::Cli;
use contextd::postgres;

/// Returns memory to the system a few seconds after a burst, including memory of idle threads, which glibc
/// would keep. `docs/benchmarks.md` has both measurements.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The argument with which contextd runs itself as the guard of the embedded PostgreSQL.
const GUARD: &str = "__postgres-guard";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|command| command == GUARD).is_some() {
        return postgres::guard_main(args);
    }
    run(Cli::parse())
}

fn run(cli: Cli) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(cli.run());
            // Dropping the runtime would wait for its blocking threads, and counting the tokens of a long
            // prompt must not delay the exit.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("contextd: cannot start the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}
