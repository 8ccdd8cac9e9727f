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
use crate::clock;
use crate::wire::api::{AgentCopyStanding, RegistryView, ToldCluster, ToldHeal};
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
    let heals = client.heals(Some(&args.name), HEALS).await?;
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
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::api::{ScopeOptions, ToldCondition};
    use crate::wire::report::{Phase, Status};

    /// W27
    #[test]
    fn how_the_copy_of_the_agent_stands_is_said() {
        let copy_of = |kept, current, proposed: Option<&str>, trouble: Option<&str>| {
            copy(Some(&AgentCopyStanding {
                kept,
                current,
                proposed: proposed.map(str::to_owned),
                trouble: trouble.map(str::to_owned),
                applied: None,
            }))
        };
        let applied = |applied| {
            copy(Some(&AgentCopyStanding {
                kept: true,
                current: true,
                applied: Some(applied),
                ..AgentCopyStanding::default()
            }))
        };
        let waits = "in the catalog, old; the new one waits on branch a/b for a signature";
        for (said, expected) in [
            (copy(None), ""),
            (copy_of(false, false, None, None), "none in the catalog"),
            (copy_of(false, false, None, Some("not read")), "not read"),
            (
                copy_of(true, true, None, None),
                "in the catalog, as it has to be",
            ),
            (applied(true), "in the catalog, as it has to be"),
            (
                applied(false),
                "in the catalog, as it has to be; the engine has not applied it yet",
            ),
            (copy_of(true, false, Some("a/b"), None), waits),
            (
                copy_of(true, false, None, Some("no space")),
                "in the catalog, old; not renewed: no space",
            ),
            (
                copy_of(true, false, None, None),
                "in the catalog, old; the hub renews it",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    /// The hub has the new YAML's word as soon as its token is redeemed, and the agent of before may be the one that did.
    #[test]
    fn some_namespaces_are_covered_once_the_agent_of_that_yaml_runs() {
        let mut cluster = wait::tests::cluster(Phase::Healthy, &[], Vec::new());
        assert_eq!(covered(&cluster), "the whole cluster");
        cluster.scope = Some(ScopeOptions {
            namespaces: vec!["cart".to_owned(), "shop".to_owned()],
            strict: false,
        });
        let begins = "namespaces cart, shop, once the agent of that YAML runs";
        assert_eq!(covered(&cluster), begins);
        cluster.conditions.push(ToldCondition {
            kind: ConditionType::Uncovered.into(),
            status: Status::False.into(),
            reason: "Covered".to_owned(),
            message: String::new(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        });
        assert_eq!(covered(&cluster), "namespaces cart, shop");
    }

    #[test]
    fn whence_images_come_is_said_with_whose_word_it_is() {
        let view = |registry: &str, own| RegistryView {
            registry: registry.to_owned(),
            pull_secret: None,
            change: 0,
            own,
        };
        let private = |registry: &str| RegistryView {
            pull_secret: Some("regcred".to_owned()),
            ..view(registry, false)
        };
        for (view, expected) in [
            (view("", false), "from the registries that they name"),
            (
                view("", true),
                "from the registries that they name (said for this cluster)",
            ),
            (view("r.org", true), "from r.org (said for this cluster)"),
            (view("r.org", false), "from r.org (the hub's word for all)"),
            (
                private("r.org"),
                "from r.org, with Secret regcred (the hub's word for all)",
            ),
            (
                private(""),
                "from the registries that they name, with Secret regcred (the hub's word for all)",
            ),
        ] {
            assert_eq!(images(Some(&view)), expected);
        }
        assert_eq!(images(None), "");
    }
}
