//! Medians and spread, as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::json;

use crate::suite::{Kind, Outcome};
use crate::{Options, machine};

/// The rows of one case, a figure each.
pub(crate) fn rows(outcome: &Outcome) -> String {
    let case = outcome.case;
    let mut text = String::new();
    for (n, figure) in case.shown.iter().enumerate() {
        let (name, bar) = if n == 0 {
            (format!("{} ({})", case.what, case.name), case.bar)
        } else {
            ("…".to_owned(), "")
        };
        write!(text, "| {name} | {bar} | {figure} |").unwrap();
        for kind in Kind::ALL {
            write!(text, " {} |", cell(outcome, kind, figure)).unwrap();
        }
        text.push('\n');
    }
    text
}

fn cell(outcome: &Outcome, kind: Kind, figure: &str) -> String {
    let runs: Vec<_> = outcome.runs.iter().filter(|(k, _)| *k == kind).collect();
    let stuck = runs.iter().filter(|(_, figures)| figures.is_none()).count();
    let mut values: Vec<f64> = runs
        .iter()
        .filter_map(|(_, figures)| figures.as_ref()?.get(figure).copied())
        .collect();
    values.sort_by(f64::total_cmp);
    let Some(median) = values.get(values.len() / 2) else {
        return if stuck > 0 {
            "stuck".to_owned()
        } else {
            "–".to_owned()
        };
    };
    let (least, most) = (values[0], values[values.len() - 1]);
    let mut text = format!("{} ({}–{})", number(*median), number(least), number(most));
    if stuck > 0 {
        write!(text, ", stuck {stuck} of {}", runs.len()).unwrap();
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
