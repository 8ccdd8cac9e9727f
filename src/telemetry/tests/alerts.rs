//! `docs/alerts.yaml`, and *Watching the hub* in `docs/operating.md`: both name the metrics that there are, and the same alerts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::wire::report::Phase;
use crate::yaml;

/// Names of metrics as `/metrics` has them, with those of their labels.
type Named = BTreeMap<String, BTreeSet<String>>;

/// What `/metrics` has of a hub in which each that has labels was counted once: without that it is not told of.
fn metrics() -> String {
    let hub = HubMetrics::default();
    hub.answered(200);
    hub.refused("Connections");
    hub.joined("ok");
    hub.heal_refused("room");
    hub.noticed("url", "dropped");
    hub.audit_behind("file").set(1);
    // Named as the hub counts them.
    hub.fleet(&[Phase::Offline, Phase::Conflict, Phase::Broken].map(|p| (format!("{p:?}"), 1)));
    let heal = json!({
        "id": "1", "class": "BadEngineCommit", "object": "Deployment a", "evidence": "", "steps": [],
        "detectedAt": "2026-01-01T00:00:00.000Z", "restoredAt": "2026-01-01T00:00:03.000Z",
        "result": "healed",
    });
    hub.heals().ended(&serde_json::from_value(heal).unwrap());
    hub.heals().faults([("BadEngineCommit", 1)]);
    let second = Duration::from_secs(1);
    let lines = Lines {
        streams: vec![("api", 1)],
        rtt: vec![("1", second)],
        classes: vec![("bulk", ClassBytes::default())],
        delays: vec![("bulk", vec![("1", second)])],
        ends: vec![("Draining".to_owned(), 1)],
        ..Lines::default()
    };
    // The number of tasks is told of where there is a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap();
    let _inside = runtime.enter();
    hub.text(&lines).unwrap()
}

fn exported() -> Named {
    let text = metrics();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    gathered(samples.flat_map(named))
}

/// One entry a metric, with all labels that it was named with.
fn gathered(all: impl IntoIterator<Item = (String, BTreeSet<String>)>) -> Named {
    let mut named = Named::new();
    for (name, labels) in all {
        named.entry(name).or_default().extend(labels);
    }
    named
}

/// Each metric of ours that a text names, with the labels in its braces.
fn named(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let starts = text.match_indices("linesman_");
    let all = starts.map(|(at, _)| {
        let rest = &text[at..];
        let outside = |c: char| !c.is_ascii_lowercase() && c != '_';
        let end = rest.find(outside).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let labels = labels.map_or("", |(labels, _)| labels).split(',');
        let keys = labels.filter_map(|label| label.split(['=', '!']).next());
        let keys = keys.filter(|key| !key.is_empty()).map(str::to_owned);
        let keys: BTreeSet<String> = keys.collect();
        (name.to_owned(), keys)
    });
    all.collect()
}

fn page() -> String {
    std::fs::read_to_string("docs/operating.md").unwrap()
}

/// *Watching the hub*, with the names of metrics written out.
fn section(page: &str) -> String {
    let (_, rest) = page.split_once("\n## Watching the hub\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    // The table says so above.
    let short = "(`…` = `linesman_hub`)";
    assert!(section.contains(short), "{section}");
    section.replace(short, "").replace("…_", "linesman_hub_")
}

/// What is not exported under a name, with that name; a histogram is told of by its parts.
fn unknown(all: &Named, exported: &Named) -> Vec<String> {
    let known = |name: &str, labels: &BTreeSet<String>| {
        let parts = [name.to_owned(), format!("{name}_sum")];
        let mut of = parts.iter().filter_map(|part| exported.get(part));
        of.any(|there| labels.is_subset(there))
    };
    let unknown = all.iter().filter(|(name, labels)| !known(name, labels));
    unknown
        .map(|(name, labels)| format!("{name}{labels:?}"))
        .collect()
}

#[test]
fn the_page_has_each_metric_of_the_hub_and_no_other() {
    let exported = exported();
    let documented = gathered(named(&section(&page())));
    assert_eq!(unknown(&documented, &exported), Vec::<String>::new());
    let whole = |name: &String| {
        let parts = ["_bucket", "_sum", "_count"];
        let mut of = parts.iter().filter_map(|part| name.strip_suffix(*part));
        documented.contains_key(name) || of.any(|base| documented.contains_key(base))
    };
    let lacks: Vec<&String> = exported.keys().filter(|name| !whole(name)).collect();
    assert_eq!(lacks, Vec::<&String>::new());
}

fn rules() -> Vec<Value> {
    let text = std::fs::read_to_string("docs/alerts.yaml").unwrap();
    let all = yaml::documents(&text).unwrap();
    let groups = all.iter().flat_map(|document| list(&document["groups"]));
    groups.flat_map(|group| list(&group["rules"])).collect()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().unwrap().clone()
}

fn text<'a>(rule: &'a Value, at: &str) -> &'a str {
    let text = rule.pointer(at).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no {at} in {rule}"))
}

/// A rule for what nothing counts never fires, and nobody notices.
#[test]
fn alerts_are_of_metrics_that_the_hub_exports() {
    let (exported, metrics) = (exported(), metrics());
    for rule in rules() {
        let expression = text(&rule, "/expr");
        let own = gathered(named(expression));
        assert_eq!(unknown(&own, &exported), Vec::<String>::new(), "{rule}");
        // The others are of a prober, as the file says above.
        let probed = expression.contains("probe_success{job=\"linesman-hub-");
        assert!(!own.is_empty() || probed, "{rule}");
        // A class that has another name by now is counted as another one.
        let quoted = expression.split('"').skip(1).step_by(2);
        for value in quoted.filter(|_| !probed).flat_map(|all| all.split('|')) {
            let sample = format!("=\"{value}\"");
            assert!(metrics.contains(&sample), "{value} of {rule}");
        }
    }
}

#[test]
fn alerts_say_how_bad_they_are_and_lead_to_the_page() {
    let page = page();
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let anchors: BTreeSet<String> = headings.map(anchor).collect();
    for rule in rules() {
        let severity = text(&rule, "/labels/severity");
        assert!(["critical", "warning"].contains(&severity), "{rule}");
        assert!(text(&rule, "/for").ends_with(['s', 'm']), "{rule}");
        let summary = text(&rule, "/annotations/summary");
        let (_, leads) = summary.split_once(" docs/operating.md#").expect(summary);
        assert!(anchors.contains(leads), "{leads} of {rule}");
    }
}

/// As Git hosts make it of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The page has the shorter form of an expression; what is beside it in the file is said there.
#[test]
fn the_page_and_the_rules_have_the_same_alerts() {
    let page = page();
    let (_, table) = page.split_once("**Worth an alert**").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table
        .lines()
        .filter_map(|row| row.strip_prefix("| `Linesman"));
    let rows: Vec<Vec<String>> = rows
        .map(|row| {
            let (cell, _) = row.split_once(" | ").unwrap();
            let cell = format!("`Linesman{}", cell.replace("\\|", "|"));
            let quoted = cell.split('`').skip(1).step_by(2);
            quoted.map(str::to_owned).collect()
        })
        .collect();
    let rules = rules();
    let names: Vec<&str> = rules.iter().map(|rule| text(rule, "/alert")).collect();
    let told: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(told, names);
    for (row, rule) in rows.iter().zip(&rules) {
        let expression = text(rule, "/expr");
        let ours = row[1..].iter().find(|part| part.contains("linesman_"));
        let has = ours.is_none_or(|part| expression.starts_with(part.as_str()));
        assert!(has, "{row:?} and {expression}");
    }
}
