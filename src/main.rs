//! The contextd command: the guard of the embedded PostgreSQL, or one command of the command line.

use std::process::ExitCode;

use clap::Parser;
use contextd::cli::Cli;
use contextd::postgres;

/// Gives memory back to the system some seconds after a burst, also that of threads with nothing to do;
/// glibc keeps it. `docs/benchmarks.md` has both numbers.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What contextd calls itself with to watch over the PostgreSQL that it runs.
const GUARD: &str = "__postgres-guard";

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|command| command == GUARD).is_some() {
        return postgres::guard_main(args);
    }
    run(Cli::parse())
}

fn run(cli: Cli) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => {
            let code = runtime.block_on(cli.run());
            // To drop the runtime is to wait for what its blocking threads do, and counting the tokens
            // of a long prompt must not hold the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("contextd: cannot start the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}
