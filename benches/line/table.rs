//! Medians and spread, as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::json;

use crate::suite::{Kind, Outcome};
use crate::{Options, machine};

/// The rows of one case, a figure each, with its bars.
pub(crate) fn rows(outcome: &Outcome) -> String {
    let case = outcome.case;
    let mut text = String::new();
    for (n, figure) in case.shown.iter().enumerate() {
        let name = match n {
            0 => format!("{} ({})", case.what, case.name),
            _ => "…".to_owned(),
        };
        let bars: Vec<_> = case.bars.iter().filter(|b| b.figure == *figure).collect();
        let words: Vec<_> = bars.iter().map(|bar| bar.words()).collect();
        write!(text, "| {name} | {} | {figure} |", words.join(", ")).unwrap();
        let missed = outcome.misses(figure);
        for kind in Kind::ALL {
            let cell = cell(outcome, kind, figure);
            if missed && kind == Kind::Line {
                write!(text, " **{cell}, beyond the bar** |").unwrap();
            } else {
                write!(text, " {cell} |").unwrap();
            }
        }
        text.push('\n');
    }
    text
}

fn cell(outcome: &Outcome, kind: Kind, figure: &str) -> String {
    let (runs, stuck) = outcome.stuck(kind);
    let values = outcome.values(kind, figure);
    let Some(median) = outcome.median(kind, figure) else {
        return if stuck > 0 {
            "stuck".to_owned()
        } else {
            "–".to_owned()
        };
    };
    let (least, most) = (values[0], values[values.len() - 1]);
    let mut text = format!("{} ({}–{})", number(median), number(least), number(most));
    if stuck > 0 {
        write!(text, ", stuck {stuck} of {runs}").unwrap();
    }
    text
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `line.md` for docs/benchmarks.md, `line.json` with every run.
pub(crate) fn write(options: &Options, outcomes: &[Outcome]) {
    let shape = machine::shape();
    let words: Vec<String> = shape
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let mut text = format!(
        "{}; TLS 1.3, both ends on this machine.\nMedian (least–most) of {} runs of {} s.\n\n",
        words.join(", "),
        options.runs,
        options.seconds
    );
    let kinds = Kind::ALL.map(Kind::name).join(" | ");
    writeln!(text, "| what | bar | figure | {kinds} |").unwrap();
    writeln!(text, "|---|---|---|{}", "---|".repeat(Kind::ALL.len())).unwrap();
    for outcome in outcomes {
        text.push_str(&rows(outcome));
    }
    std::fs::write(options.out.join("line.md"), text).unwrap();
    let cases: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let runs: Vec<_> = outcome
                .runs
                .iter()
                .map(|(kind, figures)| json!({ "kind": kind.name(), "figures": figures }))
                .collect();
            json!({ "case": outcome.case.name, "what": outcome.case.what, "runs": runs })
        })
        .collect();
    let all = json!({
        "machine": shape.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "seconds": options.seconds,
        "cases": cases,
    });
    let json = serde_json::to_string_pretty(&all).unwrap();
    std::fs::write(options.out.join("line.json"), json).unwrap();
}
