//! The contextd command.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|command| command == "__postgres-guard") {
        return contextd::postgres::guard_main(args);
    }
    ExitCode::SUCCESS
}
