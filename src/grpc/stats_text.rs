//! Formats the statistics of a context as text: about 25 lines of 80 columns with a bar.

use std::fmt::Write as _;

use crate::pb;

/// Width of the bar in columns.
const BAR: usize = 78;
/// Maximum width of a name in columns.
const NAME: usize = 28;

/// Formats the statistics. The text contains nothing that is not in `stats`.
pub(super) fn text(stats: &pb::ContextStats, assumed: bool) -> String {
    let used = stats.used.clone().unwrap_or_default();
    let window = stats.context_window;
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(words.trim_end());
        text.push('\n');
    };
    line(format!("Context of {}", stats.model));
    let known = if assumed { ", window size assumed" } else { "" };
    line(format!(
        "{} of {} tokens ({}){}{known}",
        number(used.tokens),
        number(window),
        percent(used.tokens, window),
        estimated(&used, stats.size_basis.as_ref()),
    ));
    line(bar(used.tokens, stats.auto_compact_buffer, window));
    line(String::new());
    for share in stats.categories.iter().filter(|share| share.in_total) {
        line(row(&name(share), share.tokens, window));
    }
    line(row("Free", stats.free_tokens, window));
    line(row("Auto-compact buffer", stats.auto_compact_buffer, window));
    for share in stats.categories.iter().filter(|share| !share.in_total) {
        line(format!("{} (not in the prompt)", row(&name(share), share.tokens, window)));
    }
    line(String::new());
    for words in notes(stats) {
        line(words);
    }
    text
}

fn notes(stats: &pb::ContextStats) -> Vec<String> {
    let mut notes = Vec::new();
    if stats.approaching_limit {
        let room = number(stats.context_window - stats.output_reserve);
        notes.push(format!("Nearly full: the window has room for {room} tokens plus the response"));
    }
    if let Some(basis) = &stats.size_basis
        && basis.last_input_tokens > 0
    {
        notes.push(format!(
            "Computed from {} last input + {} last output + {} new",
            number(basis.last_input_tokens),
            number(basis.last_output_tokens),
            number(basis.new_tokens)
        ));
    }
    if let Some(estimate) = &stats.last_estimate {
        notes.push(format!(
            "Last estimate {} against {} reported: {:+} ({:+.1}%); ratio {:.2}",
            number(estimate.estimated_tokens),
            number(estimate.actual_tokens),
            estimate.error_tokens,
            estimate.error_ratio * 100.0,
            stats.calibration_ratio
        ));
    }
    if stats.compaction_threshold > 0 {
        let steps = stats.steps_until_compaction.map(|steps| format!(", about {} steps", number(steps)));
        notes.push(format!(
            "Compaction starts at {} tokens: {} to go{}",
            number(stats.compaction_threshold),
            number(stats.tokens_until_compaction),
            steps.unwrap_or_default()
        ));
    }
    if stats.pruned_count > 0 {
        let count = number(stats.pruned_count);
        let saved = number(stats.pruned_tokens);
        notes.push(format!("Pruned: {count} tool results, {saved} tokens saved"));
    }
    if stats.compacted_count > 0 {
        notes.push(format!("Compacted: {} messages", number(stats.compacted_count)));
    }
    if stats.categories_adjusted {
        notes.push("The shares are inaccurate: the estimates of tools and instructions exceed the total".to_owned());
    }
    for spent in &stats.usage {
        let totals = spent.usage.unwrap_or_default();
        let what = match spent.purpose() {
            pb::UsagePurpose::Compaction => " on compactions",
            pb::UsagePurpose::Turn | pb::UsagePurpose::Unspecified => "",
        };
        notes.push(format!(
            "Spent{what}: {} calls of {}, {} in ({}), {} out",
            grouped(totals.calls),
            spent.model,
            grouped(totals.input_tokens),
            cached(&totals),
            grouped(totals.output_tokens)
        ));
    }
    notes
}

fn cached(totals: &pb::UsageTotals) -> String {
    let share =
        if totals.input_tokens == 0 { 0.0 } else { totals.cache_read_tokens as f64 / totals.input_tokens as f64 };
    format!("{:.0}% from caches", share * 100.0)
}

/// A suffix that tells how much of the token count is an estimate.
fn estimated(used: &pb::TokenCount, basis: Option<&pb::SizeBasis>) -> String {
    let anchored = basis.is_some_and(|basis| basis.last_input_tokens > 0);
    match used.basis() {
        pb::TokenBasis::Actual => String::new(),
        pb::TokenBasis::Unspecified
        | pb::TokenBasis::Calibrated
        | pb::TokenBasis::Tokenizer
        | pb::TokenBasis::Heuristic => {
            if anchored {
                " (partly estimated)".to_owned()
            } else {
                " (estimated)".to_owned()
            }
        }
    }
}

/// The bar: `#` is used, `.` is free, `x` is the reserved buffer.
fn bar(used: i32, buffer: i32, window: i32) -> String {
    let columns = |tokens: i32| {
        let window = i64::from(window.max(1));
        let columns = (i64::from(tokens.max(0)) * BAR as i64 + window / 2) / window;
        usize::try_from(columns).unwrap_or_default().min(BAR)
    };
    let used = columns(used);
    let buffer = columns(buffer).min(BAR - used);
    format!("[{}{}{}]", "#".repeat(used), ".".repeat(BAR - used - buffer), "x".repeat(buffer))
}

fn row(name: &str, tokens: i32, window: i32) -> String {
    let name: String = name.chars().take(NAME).collect();
    format!("  {name:<NAME$} {:>13} {:>7}", number(tokens), tenths(tokens, window))
}

fn name(share: &pb::CategoryTokens) -> String {
    use pb::ContextCategory as C;
    let name = match share.category() {
        C::Unspecified => return format!("Category {}", share.category),
        C::SystemPrompt => return "System prompt".to_owned(),
        C::Tools => "Tools",
        C::McpTools => "MCP tools",
        C::DeferredTools => "Deferred tools",
        C::Skills => "Skills",
        C::Agents => "Agents",
        C::Memory => "Memory files",
        C::Pinned => "Pinned",
        C::Summary => "Summary",
        C::User => "User messages",
        C::Assistant => "Assistant messages",
        C::Reasoning => "Reasoning",
        C::ToolCalls => "Tool calls",
        C::ToolResults => "Tool results",
        C::Media => "Images and files",
        C::Queued => "Queued messages",
    };
    if share.count > 0 { format!("{name} ({})", number(share.count)) } else { name.to_owned() }
}

fn percent(part: i32, whole: i32) -> String {
    if whole == 0 { "all".to_owned() } else { format!("{}%", i64::from(part) * 100 / i64::from(whole)) }
}

fn tenths(part: i32, whole: i32) -> String {
    let share = if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) };
    format!("{:.1}%", share * 100.0)
}

fn number(number: i32) -> String {
    grouped(number.into())
}

/// Formats a number with thousands separators.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::new();
    if number < 0 {
        grouped.push('-');
    }
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        let _ = write!(grouped, "{digit}");
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(category: pb::ContextCategory, tokens: i32, count: i32) -> pb::CategoryTokens {
        let in_total = category != pb::ContextCategory::DeferredTools;
        pb::CategoryTokens { category: category.into(), tokens, count, in_total }
    }

    fn stats() -> pb::ContextStats {
        use pb::ContextCategory as C;
        pb::ContextStats {
            model: "main/m".to_owned(),
            context_window: 200_000,
            output_reserve: 16_000,
            used: Some(pb::TokenCount {
                tokens: 52_100,
                basis: pb::TokenBasis::Heuristic.into(),
                margin: 10,
                ..Default::default()
            }),
            free_tokens: 131_900,
            auto_compact_buffer: 16_000,
            compaction_threshold: 184_001,
            tokens_until_compaction: 131_891,
            steps_until_compaction: Some(1_319),
            categories: vec![
                share(C::SystemPrompt, 4_000, 1),
                share(C::Tools, 8_000, 12),
                share(C::User, 40_100, 3),
                share(C::DeferredTools, 900, 2),
            ],
            size_basis: Some(pb::SizeBasis { last_input_tokens: 50_000, last_output_tokens: 2_000, new_tokens: 100 }),
            last_estimate: Some(pb::CallEstimate {
                estimated_tokens: 5_120,
                actual_tokens: 5_115,
                error_tokens: 5,
                error_ratio: 5.0 / 5_115.0,
                basis: pb::TokenBasis::Heuristic.into(),
            }),
            calibration_ratio: 1.0,
            ..pb::ContextStats::default()
        }
    }

    /// Row A8
    #[test]
    fn stats_text_shows_the_documented_layout() {
        let expected = "\
Context of main/m
52,100 of 200,000 tokens (26%) (partly estimated)
[####################....................................................xxxxxx]

  System prompt                        4,000    2.0%
  Tools (12)                           8,000    4.0%
  User messages (3)                   40,100   20.1%
  Free                               131,900   66.0%
  Auto-compact buffer                 16,000    8.0%
  Deferred tools (2)                     900    0.4% (not in the prompt)

Computed from 50,000 last input + 2,000 last output + 100 new
Last estimate 5,120 against 5,115 reported: +5 (+0.1%); ratio 1.00
Compaction starts at 184,001 tokens: 131,891 to go, about 1,319 steps
";
        assert_eq!(text(&stats(), false), expected);
        assert!(expected.lines().all(|line| line.chars().count() <= 80));
    }

    /// Row S4
    #[test]
    fn stats_text_begins_with_a_nearly_full_warning() {
        let text = text(&pb::ContextStats { approaching_limit: true, ..stats() }, false);
        let notes = text.split("\n\n").nth(2).unwrap_or_default();
        assert!(
            notes.starts_with("Nearly full: the window has room for 184,000 tokens plus the response\n"),
            "{notes}"
        );
    }

    /// Row A7
    #[test]
    fn stats_text_marks_estimates_and_an_assumed_window() {
        let second =
            |stats: &pb::ContextStats, assumed| text(stats, assumed).lines().nth(1).map(str::to_owned).unwrap();
        let never_called = pb::ContextStats { size_basis: None, ..stats() };
        assert_eq!(second(&never_called, false), "52,100 of 200,000 tokens (26%) (estimated)");
        assert!(second(&never_called, true).ends_with("window size assumed"));
        let mut reported = stats();
        reported.used = Some(pb::TokenCount { tokens: 7, basis: pb::TokenBasis::Actual.into(), ..Default::default() });
        assert_eq!(second(&reported, false), "7 of 200,000 tokens (0%)");
    }

    #[test]
    fn stats_text_groups_thousands() {
        for (plain, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (-1_234_567, "-1,234,567")] {
            assert_eq!(grouped(plain), expected);
        }
    }

    #[test]
    fn stats_bar_has_a_constant_width() {
        for (used, buffer, window) in
            [(0, 0, 0), (300_000, 16_000, 200_000), (-1, i32::MAX, 1), (i32::MAX, i32::MAX, i32::MAX)]
        {
            assert_eq!(bar(used, buffer, window).len(), 80, "{used} {buffer} {window}");
        }
    }
}
