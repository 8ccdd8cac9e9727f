//! `linesman cluster show`: all that the hub knows of one cluster, its latest heals among it, for people.

use anyhow::Result;
use serde::Serialize;
use time::OffsetDateTime;

use super::list::{labels, millis, seen};
use super::{engines, git};
use crate::cli::connect::Connect;
use crate::cli::engine::whence;
use crate::cli::heal;
use crate::cli::output::{Format, Output, ago, document, emit, kind, phase, rows_text, status};
use crate::cli::progress;
use crate::client::HealFilter;
use crate::clock;
use crate::wire::api::{AgentCopyStanding, OtherWay, RegistryView, ToldCluster, ToldHeal};
use crate::wire::id::ClusterName;
use crate::wire::report::ConditionType;

const EXAMPLES: &str = "\
Examples:
  linesman cluster show eu1
  linesman cluster show eu1 -o json | jq -r .phase";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// The latest heals are shown with a cluster, this many of them.
const HEALS: usize = 5;

/// The hub's record, and the latest heals.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[serde(flatten)]
    cluster: ToldCluster,
    heals: Vec<ToldHeal>,
    /// None = of a hub that does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_registry: Option<RegistryView>,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let cluster = client.cluster(&args.name).await?;
    let its = HealFilter {
        cluster: Some(&args.name),
        ..HealFilter::default()
    };
    let heals = client.heals(&its, HEALS).await?;
    let image_registry = client.registry(Some(&args.name)).await.ok();
    let shown = Shown {
        cluster,
        heals,
        image_registry,
    };
    let people = |wide| {
        let now = clock::now();
        let mut heals = shown.heals.clone();
        heal::hold_back(&shown.cluster, &mut heals);
        describe(&shown, wide, now) + &heals_text(&heals, now)
    };
    emit(&match args.output.output {
        format @ (Format::Json | Format::Yaml) => document(format, &shown)?,
        Format::Name => format!("{}\n", shown.cluster.name),
        Format::Table => people(false),
        Format::Wide => people(true),
    })
}

fn heals_text(heals: &[ToldHeal], now: OffsetDateTime) -> String {
    let rows = heals.iter().map(|view| {
        let heal = &view.heal;
        vec![
            heal::short_id(&heal.id),
            ago(&heal.detected_at, now),
            heal.class.clone(),
            heal.object.clone(),
            heal::result(&heal.result),
            heal::seconds(view.took.restore_ms),
            heal::next(heal),
        ]
    });
    let mut text = String::new();
    section(
        &mut text,
        [
            "HEAL", "AGE", "FAULT", "OBJECT", "RESULT", "RESTORED", "NEXT",
        ],
        rows.collect(),
    );
    // Who wrote it, by which commit, and each step have no room in a row.
    if !heals.is_empty() {
        text.push_str("\nthe whole story of one: linesman heal show ID\n");
    }
    text
}

fn describe(shown: &Shown, wide: bool, now: OffsetDateTime) -> String {
    let cluster = &shown.cluster;
    let mut text = record(cluster, shown.image_registry.as_ref(), now);
    if wide || progress::current(&cluster.steps).is_some() {
        let steps = cluster.steps.iter();
        let rows = steps.map(|s| {
            vec![
                s.step.to_string(),
                progress::state(&s.state),
                ago(&s.at, now),
                s.reason.clone(),
            ]
        });
        section(
            &mut text,
            ["STEP", "STATE", "SINCE", "REASON"],
            rows.collect(),
        );
    }
    let rows = cluster.conditions.iter().map(|c| {
        vec![
            kind(&c.kind),
            status(&c.status),
            ago(&c.since, now),
            c.reason.clone(),
            c.message.clone(),
        ]
    });
    let later = cluster.later_conditions.iter().map(|c| {
        let message = format!(
            "{} (a word of an agent that is newer than the hub)",
            c.message
        );
        vec![
            c.kind.clone(),
            c.status.clone(),
            ago(&c.since, now),
            c.reason.clone(),
            message.trim_start().to_owned(),
        ]
    });
    let rows = rows.chain(later);
    section(
        &mut text,
        ["CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"],
        rows.collect(),
    );
    let shown = cluster.keys.iter().filter(|k| wide || k.state != "revoked");
    let rows = shown.map(|k| {
        let made = k.created_at.as_deref();
        vec![
            k.kind.clone(),
            k.state.clone(),
            made.map(|at| ago(at, now)).unwrap_or_default(),
            k.fingerprint.clone(),
        ]
    });
    section(
        &mut text,
        ["KEY", "STATE", "AGE", "FINGERPRINT"],
        rows.collect(),
    );
    let rows = cluster
        .facts
        .iter()
        .map(|(key, value)| vec![key.clone(), value.clone()]);
    section(&mut text, ["FACT", "VALUE"], rows.collect());
    text
}

/// What stands above the tables.
fn record(cluster: &ToldCluster, from: Option<&RegistryView>, now: OffsetDateTime) -> String {
    let revoked = revoked(cluster, now).map(|text| ("revoked", text));
    let other_way = cluster.other_way.as_ref();
    let other_way = other_way.map(|other| ("applications", elsewhere(other)));
    rows_text(
        None,
        [
            ("name", cluster.name.to_string()),
            ("phase", phase(&cluster.phase)),
            ("line", line(cluster, now)),
            ("seen", seen(cluster, now)),
            ("engine", engines(cluster)),
            ("images", images(from)),
            ("revision", cluster.revision.clone().unwrap_or_default()),
            ("catalog path", cluster.catalog_path.clone()),
            ("git", git::words(&cluster.git)),
            ("agent", cluster.agent_version.clone().unwrap_or_default()),
            ("agent copy", copy(cluster.agent_copy.as_ref())),
            ("covers", covered(cluster)),
            ("access", cluster.access.clone().unwrap_or_default()),
            ("labels", labels(cluster)),
            ("added", cluster.created_at.clone()),
        ]
        .into_iter()
        .chain(other_way)
        .chain(revoked)
        .map(|(key, value)| vec![key.to_owned(), value]),
    )
}

/// Whether the catalog has a copy of the agent, and that of now.
fn copy(standing: Option<&AgentCopyStanding>) -> String {
    let Some(copy) = standing else {
        return String::new();
    };
    let why = copy.trouble.as_deref();
    match (copy.kept, copy.current, &copy.proposed) {
        (false, _, _) => why.unwrap_or("none in the catalog").to_owned(),
        (true, true, _) if copy.applied == Some(false) => {
            "in the catalog, as it has to be; the engine has not applied it yet".to_owned()
        }
        (true, true, _) => "in the catalog, as it has to be".to_owned(),
        (true, false, Some(branch)) => {
            format!("in the catalog, old; the new one waits on branch {branch} for a signature")
        }
        (true, false, None) => match why {
            Some(why) => format!("in the catalog, old; not renewed: {why}"),
            None => "in the catalog, old; the hub renews it".to_owned(),
        },
    }
}

/// Which Applications name the catalog by a URL that their Argo CD has no key for, and what to do.
fn elsewhere(other: &OtherWay) -> String {
    let theirs = (!other.files.is_empty()).then(|| {
        format!(
            "those of {} name the catalog by the URL of the other way; put {} there",
            other.files.join(", "),
            other.url
        )
    });
    let own = other
        .proposed
        .as_ref()
        .map(|branch| format!("the hub's own wait for a signature on branch {branch}; merge it"));
    let told: Vec<String> = theirs.into_iter().chain(own).collect();
    told.join("; ")
}

/// Whence the engine's images come, and whose word that is.
fn images(from: Option<&RegistryView>) -> String {
    let Some(from) = from else {
        return String::new();
    };
    let whose = match (from.own, from.registry.as_str()) {
        (true, _) => " (said for this cluster)",
        (false, "") if from.pull_secret.is_none() => "",
        (false, _) => " (the hub's word for all)",
    };
    format!("from {}{whose}", whence(from))
}

/// Since when, by whom, why, and the way back.
fn revoked(cluster: &ToldCluster, now: OffsetDateTime) -> Option<String> {
    let mut conditions = cluster.conditions.iter();
    let revoked = conditions.find(|c| c.kind == ConditionType::IdentityRevoked)?;
    Some(format!(
        "{} ago {}",
        ago(&revoked.since, now),
        revoked.message
    ))
}

/// What the YAML was made for; what is in force is the cluster's to say.
fn covered(cluster: &ToldCluster) -> String {
    let Some(scope) = &cluster.scope else {
        return "the whole cluster".to_owned();
    };
    let named = match scope.namespaces.as_slice() {
        [] => "the engine's namespace and the agent's own".to_owned(),
        [one] => format!("namespace {one}"),
        all => format!("namespaces {}", all.join(", ")),
    };
    let strict = if scope.strict { ", strict" } else { "" };
    // Only the agent of such YAML says so; while it is on its way, the one of before covers all.
    let mut said = cluster.conditions.iter();
    let begun = said.any(|c| c.kind == ConditionType::Uncovered);
    let begins = if begun {
        ""
    } else {
        ", once the agent of that YAML runs"
    };
    format!("{named}{strict}{begins}")
}

fn line(cluster: &ToldCluster, now: OffsetDateTime) -> String {
    let line = &cluster.line;
    if !line.up {
        return "down".to_owned();
    }
    let since = line
        .since
        .as_deref()
        .map(|at| format!(" for {}", ago(at, now)))
        .unwrap_or_default();
    let remote = line
        .remote
        .as_deref()
        .map(|r| format!(", from {r}"))
        .unwrap_or_default();
    let rtt = line
        .rtt_micros
        .map(|m| format!(", round trip {}", millis(m)))
        .unwrap_or_default();
    format!(
        "up{since}{remote}{rtt}, {} streams, epoch {}",
        line.streams, line.epoch
    )
}

fn section<const N: usize>(text: &mut String, header: [&str; N], rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&rows_text(Some(header.map(str::to_owned).to_vec()), rows));
    }
}

#[cfg(test)]
mod tests;
