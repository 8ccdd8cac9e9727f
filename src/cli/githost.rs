//! `linesman githost`: the keys that clusters know their Git host by.

mod accept;
mod drop;
mod rotate;

use anyhow::Result;
use time::OffsetDateTime;

use super::connect::Connect;
use super::output::{Column, Format, Output, ago, document, emit, list, rows_text};
use crate::clock;
use crate::wire::api::{ToldGitHost, ToldGitHostCluster, Via};
use crate::wire::id::ClusterName;

/// The Git host that every hub has.
const BUILTIN: &str = "builtin";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// List Git hosts
    List(ListArgs),
    /// Show a Git host: its keys, what clusters have of them, what they meet
    Show(ShowArgs),
    /// Trust a key that clusters met and do not know, or those of a known_hosts file
    AcceptHostKey(accept::Args),
    /// Let the hub's own Git server show another key, without a fetch of a cluster that fails
    RotateHostKey(rotate::Args),
    /// Let clusters forget an old key
    DropHostKey(drop::Args),
}

const LIST: &str = "\
Examples:
  linesman githost list -o wide";

#[derive(Debug, clap::Args)]
#[command(after_help = LIST)]
pub(super) struct ListArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const SHOW: &str = "\
A cluster whose Git host shows another key than it was told offers it no credential and fetches nothing; both
fingerprints are here.

Examples:
  linesman githost show
  linesman githost show builtin -o json";

#[derive(Debug, clap::Args)]
#[command(after_help = SHOW)]
pub(super) struct ShowArgs {
    /// The Git host's name
    #[arg(default_value = BUILTIN)]
    name: String,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<ToldGitHost>; 6] = [
    Column::new("NAME", |h, _| h.name.clone()),
    Column::new("URL", |h, _| h.url.clone()),
    Column::new("KEYS", |h, _| h.keys.len().to_string()),
    Column::new("CLUSTERS", |h, _| h.clusters_total.to_string()),
    Column::new("MISMATCH", |h, _| mismatches(h).to_string()),
    Column::wide("KIND", |h, _| h.kind.clone()),
];

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::List(args) => {
            let hosts = args.connect.client().await?.githosts().await?;
            let name = |h: &ToldGitHost| h.name.clone();
            list(args.output.output, &hosts, &COLUMNS, name, "")
        }
        Verb::Show(args) => {
            let host = args.connect.client().await?.githost(&args.name).await?;
            print(args.output.output, &host)
        }
        Verb::AcceptHostKey(args) => accept::run(args).await,
        Verb::RotateHostKey(args) => rotate::run(args).await,
        Verb::DropHostKey(args) => drop::run(args).await,
    }
}

fn print(format: Format, host: &ToldGitHost) -> Result<()> {
    emit(&match format {
        Format::Json | Format::Yaml => document(format, host)?,
        Format::Name => format!("{}\n", host.name),
        Format::Table => describe(host, false, clock::now()),
        Format::Wide => describe(host, true, clock::now()),
    })
}

fn mismatches(host: &ToldGitHost) -> usize {
    host.clusters.iter().filter(|c| c.mismatch).count()
}

fn describe(host: &ToldGitHost, wide: bool, now: OffsetDateTime) -> String {
    let owned = |row: [&str; 2]| row.map(str::to_owned).to_vec();
    let meet = match (mismatches(host), host.clusters_total) {
        (0, all) => format!("{all}; none meets another key"),
        (some, all) => format!("{all}; {some} meet a key that they do not know"),
    };
    let mut rows = vec![
        owned(["name", &host.name]),
        owned(["kind", &host.kind]),
        owned(["url", &host.url]),
        owned(["clusters", &meet]),
    ];
    if !host.waits_for.is_empty() {
        let names: Vec<&str> = host.waits_for.iter().map(ClusterName::as_str).collect();
        let waits = format!("waits for {}", names.join(", "));
        rows.push(owned(["rotation", &waits]));
    }
    let mut text = rows_text(None, rows);
    let rows = host.keys.iter().map(|k| {
        let state = if k.served {
            format!("{}, served", k.state)
        } else {
            k.state.clone()
        };
        vec![
            k.fingerprint.clone(),
            k.kind.clone(),
            state,
            ago(&k.added_at, now),
            format!("{} ({})", k.source, k.added_by),
        ]
    });
    section(
        &mut text,
        ["KNOWN KEY", "TYPE", "STATE", "AGE", "FROM"],
        rows.collect(),
    );
    let rows = host.offered.iter().map(|o| {
        vec![
            o.fingerprint.clone(),
            o.kind.clone(),
            o.since
                .as_deref()
                .map(|at| ago(at, now))
                .unwrap_or_default(),
            o.seen_by.join(","),
        ]
    });
    section(
        &mut text,
        ["NOT KNOWN", "TYPE", "SINCE", "MET BY"],
        rows.collect(),
    );
    let shown = host.clusters.iter().filter(|c| wide || c.mismatch);
    section(
        &mut text,
        ["CLUSTER", "GIT", "ENGINE HAS", "HOST SHOWS", "SAID"],
        shown.map(|c| cluster(c, now)).collect(),
    );
    if !host.offered.is_empty() {
        text.push_str(
            "\nCompare the fingerprint with the Git host's own word, on another way than the network between. If it was\n\
             changed on purpose: linesman githost accept-host-key\n",
        );
    }
    text
}

fn cluster(cluster: &ToldGitHostCluster, now: OffsetDateTime) -> Vec<String> {
    let via = cluster.git.via.shown(|via| match via {
        Via::Direct => "direct",
        Via::Line => "line",
    });
    vec![
        cluster.name.to_string(),
        via,
        cluster.trusted.join(","),
        cluster.shown.clone().unwrap_or_default(),
        cluster
            .reported_at
            .as_deref()
            .map_or_else(|| "never".to_owned(), |at| ago(at, now)),
    ]
}

fn section<const N: usize>(text: &mut String, header: [&str; N], rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&rows_text(Some(header.map(str::to_owned).to_vec()), rows));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::wire::api::{GitRoute, HostKeyView, OfferedKey, ToldGitRoute};

    pub(in crate::cli::githost) fn host() -> ToldGitHost {
        let at = "2026-01-01T00:00:00Z".to_owned();
        ToldGitHost {
            name: "builtin".to_owned(),
            kind: "builtin".to_owned(),
            url: "ssh://git@hub:2222/catalog.git".to_owned(),
            known_hosts: String::new(),
            keys: vec![HostKeyView {
                kind: "ssh-ed25519".to_owned(),
                fingerprint: "SHA256:known".to_owned(),
                key: "ssh-ed25519 AAAA".to_owned(),
                state: "current".to_owned(),
                served: false,
                source: "hub".to_owned(),
                added_by: "hub".to_owned(),
                added_at: at.clone(),
            }],
            waits_for: Vec::new(),
            offered: vec![OfferedKey {
                kind: "ssh-ed25519".to_owned(),
                fingerprint: "SHA256:other".to_owned(),
                key: "ssh-ed25519 BBBB".to_owned(),
                seen_by: vec!["eu1".to_owned()],
                since: Some(at.clone()),
            }],
            clusters: vec![ToldGitHostCluster {
                name: "eu1".parse().unwrap(),
                git: ToldGitRoute {
                    route: GitRoute::Auto.into(),
                    via: Via::Direct.into(),
                },
                trusted: vec!["SHA256:known".to_owned()],
                shown: Some("SHA256:other".to_owned()),
                mismatch: true,
                reported_at: Some(at),
            }],
            clusters_total: 3,
        }
    }

    /// H18
    #[test]
    fn both_fingerprints_are_shown_and_the_way_out() {
        let now = clock::parse_rfc3339("2026-01-01T00:01:00Z").unwrap();
        let text = describe(&host(), false, now);
        for words in [
            "3; 1 meet a key that they do not know",
            "SHA256:known",
            "SHA256:other",
            "eu1",
            "linesman githost accept-host-key",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
