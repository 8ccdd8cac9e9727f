//! `linesman heal`: what was broken in a cluster, and how and how fast it was mended.

use anyhow::Result;

use super::connect::Connect;
use super::exit::{Code, Failure};
use super::output::{Column, Format, Output, ago, document, emit, list, rows_text};
use crate::clock;
use crate::wire::api::HealView;
use crate::wire::id::ClusterName;
use crate::wire::report::{HealRecord, HealResult};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List heals, the newest first
    List(ListArgs),
    /// Show one heal: evidence, steps, times
    Show(ShowArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Of this cluster only
    cluster: Option<ClusterName>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// The heal's id, or its beginning or end as far as it names one
    id: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// How far back `heal show` looks.
const HISTORY: usize = 5_000;

const COLUMNS: [Column<HealView>; 10] = [
    Column::new("ID", |h, _| short_id(&h.heal.id)),
    Column::new("CLUSTER", |h, _| h.cluster.to_string()),
    Column::new("AGE", |h, now| ago(&h.heal.detected_at, now)),
    Column::new("FAULT", |h, _| h.heal.class.clone()),
    Column::new("OBJECT", |h, _| h.heal.object.clone()),
    Column::new("RESULT", |h, _| result(h.heal.result).to_owned()),
    Column::new("ACTED", |h, _| after(&h.heal, h.heal.acted_at.as_deref())),
    Column::new("RESTORED", |h, _| {
        after(&h.heal, h.heal.restored_at.as_deref())
    }),
    Column::wide("WRITER", |h, _| h.heal.writer.clone()),
    Column::wide("REVISION", |h, _| h.heal.revision.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let heals = args
                .connect
                .client()
                .await?
                .heals(args.cluster.as_ref(), args.limit)
                .await?;
            list(
                args.output.output,
                &heals,
                &COLUMNS,
                |h| h.heal.id.clone(),
                "nothing had to be healed",
            )
        }
        Verb::Show(args) => {
            let heals = args.connect.client().await?.heals(None, HISTORY).await?;
            let heal = find(&heals, &args.id)?;
            emit(&match args.output.output {
                format @ (Format::Json | Format::Yaml) => document(format, heal)?,
                Format::Name => format!("{}\n", heal.heal.id),
                Format::Table | Format::Wide => describe(heal),
            })
        }
    }
}

fn find<'a>(heals: &'a [HealView], id: &str) -> Result<&'a HealView, Failure> {
    let fits = |h: &&HealView| h.heal.id.starts_with(id) || h.heal.id.ends_with(id);
    let mut found = heals.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(Failure::new(
            Code::Usage,
            format!("'{id}' names more than one heal"),
            "give more of the id: linesman heal list -o name",
        )),
        (None, _) => Err(Failure::new(
            Code::NotFound,
            format!("no heal '{id}'"),
            "see them all: linesman heal list",
        )),
    }
}

/// The random end of a UUIDv7: its beginning is the time, which heals of one moment share.
fn short_id(id: &str) -> String {
    id.rsplit('-').next().unwrap_or(id).to_owned()
}

fn result(result: HealResult) -> &'static str {
    match result {
        HealResult::Open => "open",
        HealResult::Healed => "healed",
        HealResult::Reported => "reported",
        HealResult::Failed => "failed",
    }
}

/// Seconds since the fault, as far as the cluster told when that was, else since its detection.
fn after(heal: &HealRecord, at: Option<&str>) -> String {
    let from = heal.fault_at.as_deref().unwrap_or(&heal.detected_at);
    match (
        clock::parse_rfc3339(from),
        at.and_then(clock::parse_rfc3339),
    ) {
        (Some(from), Some(at)) => format!("{:.1}s", (at - from).as_seconds_f64().max(0.0)),
        _ => String::new(),
    }
}

fn describe(view: &HealView) -> String {
    let heal = &view.heal;
    let timed = |at: &Option<String>| match at {
        Some(text) => format!("{text} (+{})", after(heal, Some(text))),
        None => String::new(),
    };
    let mut text = rows_text(
        None,
        [
            ("id", heal.id.clone()),
            ("cluster", view.cluster.to_string()),
            ("fault", heal.class.clone()),
            ("object", heal.object.clone()),
            ("result", result(heal.result).to_owned()),
            ("writer", heal.writer.clone()),
            ("revision", heal.revision.clone()),
            ("fault at", heal.fault_at.clone().unwrap_or_default()),
            ("detected", timed(&Some(heal.detected_at.clone()))),
            ("acted", timed(&heal.acted_at)),
            ("restored", timed(&heal.restored_at)),
            (
                "next",
                if heal.next.is_empty() {
                    "nothing".to_owned()
                } else {
                    heal.next.clone()
                },
            ),
        ]
        .map(|(key, value)| vec![key.to_owned(), value]),
    );
    text.push_str("\nevidence\n");
    for line in heal.evidence.lines() {
        text.extend(["  ", line, "\n"]);
    }
    if !heal.steps.is_empty() {
        text.push('\n');
        let header = ["STEP", "OBJECT", "AT", "OUTCOME"]
            .map(str::to_owned)
            .to_vec();
        let rows = heal.steps.iter().map(|s| {
            vec![
                s.action.clone(),
                s.object.clone(),
                after(heal, Some(&s.at)),
                s.outcome.clone(),
            ]
        });
        text.push_str(&rows_text(Some(header), rows));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::HealStep;

    fn heal(id: &str) -> HealView {
        HealView {
            cluster: "eu1".parse().unwrap(),
            heal: HealRecord {
                id: id.to_owned(),
                class: "ObjectMissing".to_owned(),
                object: "Deployment flux-system/source-controller".to_owned(),
                evidence: "deleted".to_owned(),
                writer: "kubectl".to_owned(),
                revision: String::new(),
                steps: vec![HealStep {
                    action: "create".to_owned(),
                    object: "Deployment flux-system/source-controller".to_owned(),
                    at: "2026-01-01T00:00:00.300Z".to_owned(),
                    outcome: "ok".to_owned(),
                }],
                fault_at: Some("2026-01-01T00:00:00.000Z".to_owned()),
                detected_at: "2026-01-01T00:00:00.200Z".to_owned(),
                acted_at: Some("2026-01-01T00:00:00.300Z".to_owned()),
                restored_at: Some("2026-01-01T00:00:09.000Z".to_owned()),
                result: HealResult::Healed,
                next: String::new(),
            },
        }
    }

    #[test]
    fn a_heal_is_found_by_a_part_of_its_id_that_names_one() {
        let heals = [heal("0199-a-1111"), heal("0199-b-2222")];
        assert_eq!(find(&heals, "2222").unwrap().heal.id, "0199-b-2222");
        assert_eq!(find(&heals, "0199-a").unwrap().heal.id, "0199-a-1111");
        assert_eq!(find(&heals, "0199").unwrap_err().code, Code::Usage);
        assert_eq!(find(&heals, "3").unwrap_err().code, Code::NotFound);
        assert_eq!(short_id("0199-a-1111"), "1111");
    }

    #[test]
    fn a_heal_is_told_with_its_times_since_the_fault() {
        let text = describe(&heal("0199-a-1111"));
        for part in [
            "(+0.2s)",
            "(+0.3s)",
            "(+9.0s)",
            "evidence\n  deleted\n",
            "create",
            "nothing",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
