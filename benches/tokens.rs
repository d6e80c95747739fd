//! Measures token counting, compared with `tiktoken-rs` on the same texts in the same run.
//!
//! Goals: at least 3 times as fast on prose that was counted before, 25 times on one letter repeated; and twice the
//! text takes at most 2.2 times as long. `cargo bench --bench tokens` prints the ratios and exits with an error if a
//! goal is missed.
//!
//! All values are the CPU time of the counting thread, and the minimum of several interleaved rounds. Counting is the
//! same work each time; other load on the machine (evicted caches, a throttled core) only adds to it. The minimum is
//! therefore the best estimate of the work, while a mean or median would also reflect the load of the machine.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::{hint::black_box, process::ExitCode, time::Duration};

use contextd::context::tokens::{Counter, Vocabulary};
use nix::time::{ClockId, clock_gettime};

const MEGABYTE: usize = 1 << 20;

/// Minimum number of rounds. The first round warms up the caches.
const ROUNDS: usize = 12;

/// Minimum CPU time of all rounds in seconds: a text that takes a millisecond needs many rounds.
const LEAST_SECONDS: f64 = 1.0;

/// Maximum ratio of the time for twice the text to the time for the text.
const MAX_GROWTH: f64 = 2.2;

fn main() -> ExitCode {
    let ours = Vocabulary::O200k.counter().expect("always in the build");
    let theirs = tiktoken_rs::o200k_base_singleton();
    let count_theirs = |text: &str| theirs.encode_ordinary(text).len();
    let prose = prose();
    let letter = "a".repeat(MEGABYTE);
    assert_eq!(ours.text(&prose) as usize, count_theirs(&prose), "both count the same");
    let count_ours = |text: &str| ours.text(text) as usize;
    let [prose_ours, prose_theirs] = least([&|| count_ours(&prose), &|| count_theirs(&prose)]);
    let [letter_ours, letter_theirs] = least([&|| count_ours(&letter), &|| count_theirs(&letter)]);
    let megabytes = |text: &str, seconds: f64| text.len() as f64 / 1e6 / seconds;
    println!("o200k                ours MB/s  tiktoken-rs MB/s   ratio");
    let mut met = true;
    for (name, text, ours, theirs, goal) in [
        ("prose, warm", &prose, prose_ours, prose_theirs, 3.0),
        ("one letter repeated", &letter, letter_ours, letter_theirs, 25.0),
    ] {
        let ratio = theirs / ours;
        println!("{name:<20} {:>9.1} {:>17.1} {ratio:>7.1}", megabytes(text, ours), megabytes(text, theirs));
        met &= ratio >= goal;
    }
    for vocabulary in Vocabulary::ALL {
        if let Some(counter) = vocabulary.counter() {
            met &= grows_linearly(counter);
        }
    }
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints how time grows with the size of the text, for texts that are hard for simpler counters.
fn grows_linearly(counter: &dyn Counter) -> bool {
    let texts =
        [("a", "a"), ("space", " "), ("ab", "ab"), ("\u{8a9e}", "\u{8a9e}"), ("prose", "It was a dark night. ")];
    let mut worst: f64 = 0.0;
    print!("{:<20}", counter.name());
    for (name, unit) in texts {
        let text = |bytes: usize| unit.repeat(bytes / unit.len());
        let once = text(MEGABYTE);
        let twice = text(2 * MEGABYTE);
        let [once, twice] = least([&|| counter.text(&once) as usize, &|| counter.text(&twice) as usize]);
        let growth = twice / once;
        print!(" {name} {growth:.2}");
        worst = worst.max(growth);
    }
    println!();
    worst <= MAX_GROWTH
}

/// The minimum CPU time of each work in seconds, over interleaved rounds.
fn least<const N: usize>(works: [&dyn Fn() -> usize; N]) -> [f64; N] {
    let mut least = [f64::INFINITY; N];
    let mut rounds = 0;
    let mut spent = 0.0;
    while rounds < ROUNDS || spent < LEAST_SECONDS {
        rounds += 1;
        for (least, work) in least.iter_mut().zip(works) {
            let begun = processor_time();
            black_box(work());
            let seconds = (processor_time() - begun).as_secs_f64();
            spent += seconds;
            *least = least.min(seconds);
        }
    }
    least
}

/// CPU time of this thread, so that other load on the machine is not counted.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux and macOS have it").into()
}

/// A megabyte of English: the license and the documents of this repository, repeated.
fn prose() -> String {
    let texts = [include_str!("../LICENSE"), include_str!("../README.md"), include_str!("../ARCHITECTURE.md")];
    texts.iter().copied().cycle().flat_map(str::chars).take(MEGABYTE).collect()
}
