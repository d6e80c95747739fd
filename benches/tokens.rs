//! Counting tokens, side by side with `tiktoken-rs` on the same texts in the same run.
//!
//! Goals: at least 3 times as fast on prose that was met before, 25 times on one letter repeated, and twice the text takes at most
//! 2.2 times as long. All in processor time. `cargo bench --bench tokens` prints the ratios, and exits with an error where one is missed.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::{fs, hint::black_box, process::ExitCode, time::Instant};

use contextd::context::tokens::{Counter, Vocabulary};

const MEGABYTE: usize = 1 << 20;

/// How often each is measured; the quickest counts.
const TRIES: usize = 3;

/// How long each measurement takes at least: the system counts processor time in steps of milliseconds.
const LEAST_SECONDS: f64 = 0.1;

fn main() -> ExitCode {
    let ours = Vocabulary::O200k.counter().expect("always in the build");
    let theirs = tiktoken_rs::o200k_base_singleton();
    let count_theirs = |text: &str| theirs.encode_ordinary(text).len();
    let prose = prose();
    let letter = "a".repeat(MEGABYTE);
    assert_eq!(ours.text(&prose) as usize, count_theirs(&prose), "both count the same");
    let (prose_ours, prose_theirs) = (quickest(|| ours.text(&prose)), quickest(|| count_theirs(&prose)));
    let (letter_ours, letter_theirs) = (quickest(|| ours.text(&letter)), quickest(|| count_theirs(&letter)));
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

/// Prints how time grows with the text, on texts that are hard for simpler counters.
fn grows_linearly(counter: &dyn Counter) -> bool {
    let texts =
        [("a", "a"), ("space", " "), ("ab", "ab"), ("\u{8a9e}", "\u{8a9e}"), ("prose", "It was a dark night. ")];
    let mut worst: f64 = 0.0;
    print!("{:<20}", counter.name());
    for (name, unit) in texts {
        let text = |bytes: usize| unit.repeat(bytes / unit.len());
        let (once, twice) = (text(MEGABYTE), text(2 * MEGABYTE));
        let growth = quickest(|| counter.text(&twice)) / quickest(|| counter.text(&once));
        print!(" {name} {growth:.2}");
        worst = worst.max(growth);
    }
    println!();
    worst <= 2.2
}

/// Seconds of processor time of the quickest of several tries.
fn quickest<T>(work: impl Fn() -> T) -> f64 {
    let epoch = Instant::now();
    let tries = (0..TRIES).map(|_| {
        let (begun, mut rounds) = (processor_seconds(epoch), 0.0);
        loop {
            black_box(work());
            rounds += 1.0;
            let spent = processor_seconds(epoch) - begun;
            if spent >= LEAST_SECONDS {
                return spent / rounds;
            }
        }
    });
    tries.fold(f64::INFINITY, f64::min)
}

/// Processor time of this thread, so that what else the machine does is not measured; where the system does not tell, the time since
/// the epoch.
fn processor_seconds(epoch: Instant) -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| epoch.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

/// A megabyte of English: the licences and the manual of this repository, over and over.
fn prose() -> String {
    let texts = [include_str!("../LICENSE"), include_str!("../README.md"), include_str!("../ARCHITECTURE.md")];
    texts.iter().copied().cycle().flat_map(str::chars).take(MEGABYTE).collect()
}
