//! `linesman heal show`: one heal as people read it: evidence, times, steps, and what was around the fault.

use anyhow::Result;

use super::{ask, named, next, result, seconds};
use crate::cli::connect::Connect;
use crate::cli::output::{Format, Output, document, emit, rows_text, tame};
use crate::clock;
use crate::wire::api::{HubWrite, ToldHeal, ToldHealRecord, Took};
use crate::wire::report::{Remade, Scene};

const EXAMPLES: &str = "\
Examples:
  linesman heal show 26b5e3      # as 'heal list' prints it";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The heal's id, or its beginning or end as far as it names one
    id: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let mut heal = named(&client, &args.id).await?;
    emit(&match args.output.output {
        format @ (Format::Json | Format::Yaml) => document(format, &heal)?,
        Format::Name => format!("{}\n", heal.heal.id),
        Format::Table | Format::Wide => {
            ask(&client, std::slice::from_mut(&mut heal)).await;
            describe(&heal)
        }
    })
}

/// Seconds since the fault, as far as the cluster told when that was, else since its detection; empty before it.
fn after(heal: &ToldHealRecord, at: Option<&str>) -> String {
    let from = heal.fault_at.as_deref().unwrap_or(&heal.detected_at);
    match (
        clock::parse_rfc3339(from),
        at.and_then(clock::parse_rfc3339),
    ) {
        (Some(from), Some(at)) if at >= from => {
            format!("{:.1}s", (at - from).as_seconds_f64())
        }
        _ => String::new(),
    }
}

/// `F3 ScaledToZero: a controller has no replicas`.
fn called(heal: &ToldHealRecord) -> String {
    let number = match heal.number {
        0 => String::new(),
        n => format!("F{n} "),
    };
    let meaning = match heal.meaning.as_str() {
        "" => String::new(),
        meaning => format!(": {meaning}"),
    };
    format!("{number}{}{meaning}", heal.class)
}

fn commit(view: &ToldHeal) -> String {
    match (&view.author, view.heal.commit.as_str()) {
        (Some(made), _) => {
            format!(
                "{} by {} at {}: {}",
                made.id, made.author, made.at, made.subject
            )
        }
        (None, "") => "none: it did not come from Git".to_owned(),
        (None, revision) => revision.to_owned(),
    }
}

fn took(took: &Took) -> String {
    let parts = [
        ("detect", took.detect_ms),
        ("act", took.act_ms),
        ("restore", took.restore_ms),
    ];
    let known = parts.into_iter().filter(|(_, ms)| ms.is_some());
    let known: Vec<String> = known
        .map(|(part, ms)| format!("{part} {}", seconds(ms)))
        .collect();
    known.join(", ")
}

fn describe(view: &ToldHeal) -> String {
    let heal = &view.heal;
    let mut text = rows_text(
        None,
        [
            ("id", heal.id.clone()),
            ("cluster", view.cluster.to_string()),
            ("fault", called(heal)),
            ("object", heal.object.clone()),
            ("uid", heal.scene.uid.clone()),
            ("result", result(&heal.result)),
            ("written by", heal.writer.clone()),
        ]
        .into_iter()
        .chain(through(view).map(|write| ("through hub", write)))
        .chain([
            ("commit", commit(view)),
            ("catalog then", heal.revision.clone()),
            ("catalog after", heal.scene.revision_after.clone()),
            ("made again", made_again(&heal.scene.remade)),
            ("took", took(&view.took)),
            ("next", next(heal)),
        ])
        .map(|(key, value)| vec![key.to_owned(), value]),
    );
    text.push_str("\nevidence\n");
    for line in heal.evidence.lines() {
        text.extend(["  ", &*tame(line), "\n"]);
    }
    text.push_str(&around(&heal.scene));
    text.push('\n');
    let header = ["TIME", "SINCE", "WHAT"].map(str::to_owned).to_vec();
    let rows = view.story.iter().map(|line| {
        // What came before the fault, such as its commit, is not measured from it.
        let since = after(heal, Some(&line.at));
        vec![line.at.clone(), since, line.text.clone()]
    });
    text.push_str(&rows_text(Some(header), rows));
    text
}

/// Who wrote to the object through the hub, where that may be known: a row for each request.
fn through(view: &ToldHeal) -> impl Iterator<Item = String> {
    let writes = view.through_hub.as_deref();
    let none = writes.is_some_and(<[HubWrite]>::is_empty);
    let none = none.then(|| "no, or it is not on record".to_owned());
    let told = writes.unwrap_or_default().iter().map(|write| {
        let HubWrite {
            at,
            actor,
            action,
            target,
            request_id,
        } = write;
        format!("{actor} {action} {target} at {at} (request {request_id})")
    });
    told.chain(none)
}

/// How much the engine had to make again after a collapse. Which, is a list of its own.
fn made_again(remade: &Remade) -> String {
    match remade.count {
        0 => String::new(),
        1 => "1 object that was gone".to_owned(),
        count => format!("{count} objects that were gone"),
    }
}

/// What the object said of itself, and the cluster of it.
fn around(scene: &Scene) -> String {
    let mut text = String::new();
    let conditions = scene.conditions.iter().map(|c| {
        [&c.kind, &c.status, &c.since, &c.reason, &c.message]
            .map(Clone::clone)
            .to_vec()
    });
    let events = scene.events.iter().map(|e| {
        let times = format!("{} x", e.count);
        [&e.at, &e.kind, &times, &e.object, &e.reason, &e.message]
            .map(Clone::clone)
            .to_vec()
    });
    let log = scene.log.iter().map(|line| vec![line.clone()]);
    let mut remade: Vec<Vec<String>> = scene
        .remade
        .objects
        .iter()
        .map(|name| vec![name.clone()])
        .collect();
    let named = u32::try_from(remade.len()).unwrap_or(u32::MAX);
    if scene.remade.count > named {
        remade.push(vec![format!("and {} more", scene.remade.count - named)]);
    }
    let sections = [
        (
            &["CONDITION THEN", "STATUS", "SINCE", "REASON", "MESSAGE"][..],
            conditions.collect::<Vec<_>>(),
        ),
        (
            &[
                "EVENT BEFORE",
                "TYPE",
                "COUNT",
                "OBJECT",
                "REASON",
                "MESSAGE",
            ],
            events.collect(),
        ),
        (&["LOG BEFORE"], log.collect()),
        (&["MADE AGAIN"], remade),
    ];
    for (header, rows) in sections.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        text.push('\n');
        text.push_str(&rows_text(Some(header), rows));
    }
    text
}

#[cfg(test)]
mod tests;
