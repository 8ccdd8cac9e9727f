//! `linesman cluster list`: the fleet, worst first.

use anyhow::Result;

use super::engines;
use crate::cli::connect::Connect;
use crate::cli::output::{Column, Format, Output, ago, list, phase, progress_line, short};
use crate::hub::selector::{Selector, SelectorError};
use crate::wire::api::{ToldCluster, ToldCondition, UnknownAgentView};
use crate::wire::report::{ConditionType, Phase, Status, Weight, weights};

const EXAMPLES: &str = "\
Phases, the worst first:
  Conflict     an agent that would join as it was refused: condition JoinConflict says why
  Offline      its agent is not heard, 15s after its line ended at the latest; the cluster heals itself
  Broken       its engine does not work, or its agent lacks a right
  Healing      its agent mends something now: linesman heal list NAME
  Degraded     it works, but not all is well: Git is out of reach, say, or a commit is held back
  Installing, Joining   its adoption is under way: linesman cluster wait NAME
  Pending      its YAML was not applied yet
  Paused       its agent only looks: a maintenance window, or another manager of the engine
  Unknown      not heard since the hub started, a moment ago
  Healthy      it works and follows the catalog. What is only worth knowing, such as safe heals by somebody's
               choice or a snapshot that is still to come, is in 'cluster show', and fails a check of 'doctor'

Examples:
  linesman cluster list
  linesman cluster list -l env=prod -o wide      # with WHY: the conditions that are not as they should be
  linesman cluster list -l 'env in (prod,stage),region!=us,!frozen'
  linesman cluster list --unknown      # agents whose keys the hub does not know";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only clusters whose labels match, as for kubectl -l; may be given again, and all have to match
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = selector)]
    selector: Vec<Selector>,
    /// Instead: agents whose signature is valid, by keys that the hub does not know
    #[arg(long, conflicts_with = "selector")]
    unknown: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// The most characters of [`why`].
const MAX_WHY: usize = 80;

const COLUMNS: [Column<ToldCluster>; 11] = [
    Column::new("NAME", |c, _| c.name.to_string()),
    Column::new("PHASE", |c, _| standing(c)),
    Column::new("LINE", |c, _| {
        if c.line.up { "up" } else { "down" }.to_owned()
    }),
    Column::new("SEEN", seen),
    Column::new("ENGINE", |c, _| engines(c)),
    Column::new("REVISION", |c, _| revision(c.revision.as_deref())),
    Column::new("AGE", |c, now| ago(&c.created_at, now)),
    Column::wide("AGENT", |c, _| c.agent_version.clone().unwrap_or_default()),
    Column::wide("RTT", |c, _| {
        c.line.rtt_micros.map(millis).unwrap_or_default()
    }),
    Column::wide("WHY", |c, _| why(c)),
    Column::wide("LABELS", |c, _| labels(c)),
];

const UNKNOWN: [Column<UnknownAgentView>; 6] = [
    Column::new("FINGERPRINT", |a, _| a.fingerprint.clone()),
    Column::new("CLAIMS", |a, _| a.cluster.to_string()),
    Column::new("WHY", |a, _| a.reason.clone()),
    Column::new("FIRST", |a, now| ago(&a.first_seen, now)),
    Column::new("SEEN", |a, now| ago(&a.last_seen, now)),
    Column::new("ADDRESS", |a, _| a.address.clone()),
];

async fn unknown(args: Args) -> Result<()> {
    let agents = args.connect.client().await?.unknown_agents().await?;
    list(
        args.output.output,
        &agents,
        &UNKNOWN,
        |a| a.fingerprint.clone(),
        "no agent whose key is not known has come",
    )?;
    if !agents.is_empty() && matches!(args.output.output, Format::Table | Format::Wide) {
        progress_line(
            "let one in, when you know that it is yours: linesman cluster accept FINGERPRINT",
        );
    }
    Ok(())
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    if args.unknown {
        return unknown(args).await;
    }
    let mut clusters = args.connect.client().await?.clusters().await?;
    let all = clusters.len();
    clusters.retain(|c| fits(c, &args.selector));
    // A phase that is not known here may be the worst of all.
    clusters.sort_by(|a, b| (a.phase.known(), &a.name).cmp(&(b.phase.known(), &b.name)));
    let empty = nothing(&args.selector, all);
    list(
        args.output.output,
        &clusters,
        &COLUMNS,
        |c| c.name.to_string(),
        &empty,
    )
}

/// Its phase. What is wrong in a window stays so until that ends, and whoever sees it should not wait for its mending.
fn standing(cluster: &ToldCluster) -> String {
    let phase = phase(&cluster.phase);
    let mut all = cluster.conditions.iter();
    let paused = all.any(|c| c.kind == ConditionType::Paused && c.status == Status::True);
    match cluster.phase.known() {
        Some(Phase::Broken | Phase::Degraded) if paused => format!("{phase} (paused)"),
        _ => phase,
    }
}

/// What keeps a cluster from being Healthy: its conditions with their reasons, the worst first.
fn why(cluster: &ToldCluster) -> String {
    let said = cluster.conditions.iter().map(ToldCondition::known);
    let weighed = said.clone().zip(weights(said));
    let wrong = weighed.filter_map(|(said, weight)| {
        let ((kind, _, reason), rank) = (said?, rank(weight?)?);
        Some((rank, format!("{kind:?}: {reason}")))
    });
    let mut wrong: Vec<(u8, String)> = wrong.collect();
    wrong.sort_by_key(|(rank, _)| *rank);
    let words: Vec<String> = wrong.into_iter().map(|(_, words)| words).collect();
    short(&words.join(", "), MAX_WHY)
}

/// Lower for what is worse; what is only noted is no reason for any phase.
fn rank(weight: Weight) -> Option<u8> {
    match weight {
        Weight::Conflict => Some(0),
        Weight::Broken => Some(1),
        Weight::Degraded => Some(2),
        Weight::Paused => Some(3),
        Weight::Noted => None,
    }
}

/// Why the list is empty.
fn nothing(selectors: &[Selector], all: usize) -> String {
    if all == 0 {
        return "no clusters; run: linesman cluster add NAME".to_owned();
    }
    let are = if all == 1 { "is" } else { "are" };
    format!(
        "no cluster matches {}; there {are} {all}",
        written(selectors)
    )
}

/// What clusters are chosen by, in the syntax of grants and of kubectl.
pub(super) fn selector(text: &str) -> Result<Selector, SelectorError> {
    text.parse()
}

/// Whether each of them takes it.
pub(super) fn fits(cluster: &ToldCluster, selectors: &[Selector]) -> bool {
    selectors
        .iter()
        .all(|wanted| wanted.matches(&cluster.labels))
}

/// As they were written.
pub(super) fn written(selectors: &[Selector]) -> String {
    let words: Vec<String> = selectors.iter().map(ToString::to_string).collect();
    words.join(", ")
}

pub(super) fn seen(cluster: &ToldCluster, now: time::OffsetDateTime) -> String {
    cluster
        .last_seen
        .as_deref()
        .map_or_else(|| "never".to_owned(), |at| ago(at, now))
}

pub(super) fn labels(cluster: &ToldCluster) -> String {
    cluster
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

pub(super) fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// `main@sha1:0123456789abcdef…`, or the commit alone, as Argo CD has it, with as many digits as Git shows.
pub(in crate::cli) fn revision(revision: Option<&str>) -> String {
    let Some(revision) = revision else {
        return String::new();
    };
    match revision.split_once("@sha1:") {
        Some((branch, commit)) => format!("{branch}@{}", commit.get(..8).unwrap_or(commit)),
        None if is_commit(revision) => revision.chars().take(8).collect(),
        None => short(revision, 24),
    }
}

/// Whether it is a whole one, of SHA-1 or SHA-256.
fn is_commit(revision: &str) -> bool {
    matches!(revision.len(), 40 | 64) && revision.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::ENGINE_IN_FORCE;

    /// A fleet that is not well said nowhere why, cluster by cluster.
    #[test]
    fn a_wide_list_says_what_keeps_a_cluster_from_being_healthy() {
        use crate::wire::report::{ConditionType as C, Status};
        let says = |kind: C, status: Status, reason: &str| ToldCondition {
            kind: kind.into(),
            status: status.into(),
            reason: reason.to_owned(),
            message: "at length".to_owned(),
            since: "2026-01-01T00:00:00Z".to_owned(),
        };
        let told = |conditions| {
            let cluster = super::super::wait::tests::cluster(Phase::Broken, &[], conditions);
            why(&cluster)
        };
        let conditions = vec![
            says(C::Paused, Status::True, "Maintenance"),
            says(C::Synced, Status::False, "NotSynced"),
            says(C::Guarded, Status::True, "Refuses"),
            says(C::SnapshotFresh, Status::False, "NoneYet"),
            says(C::EngineHealthy, Status::False, "CrashLoop"),
            says(C::GitReachable, Status::Unknown, "Fetched"),
        ];
        assert_eq!(
            told(conditions),
            "EngineHealthy: CrashLoop, Synced: NotSynced, Paused: Maintenance"
        );
        assert_eq!(told(vec![]), "");
        // Nothing of the agent's is missed there.
        let observed = vec![
            says(C::Guarded, Status::False, "Missing"),
            says(C::ObserveOnly, Status::True, "ForeignManager"),
        ];
        assert_eq!(told(observed), "ObserveOnly: ForeignManager");
        let long = says(C::Quarantined, Status::True, &"x".repeat(200));
        assert_eq!(told(vec![long]).chars().count(), MAX_WHY);
    }

    #[test]
    fn what_is_broken_in_a_window_is_not_taken_for_what_is_being_mended() {
        use crate::wire::report::ConditionType as C;
        let told = |phase, status: Status| {
            let paused = ToldCondition {
                kind: C::Paused.into(),
                status: status.into(),
                reason: "Maintenance".to_owned(),
                message: String::new(),
                since: "2026-01-01T00:00:00Z".to_owned(),
            };
            standing(&super::super::wait::tests::cluster(
                phase,
                &[],
                vec![paused],
            ))
        };
        for (phase, status, expected) in [
            (Phase::Broken, Status::True, "Broken (paused)"),
            (Phase::Degraded, Status::True, "Degraded (paused)"),
            (Phase::Paused, Status::True, "Paused"),
            (Phase::Broken, Status::False, "Broken"),
        ] {
            assert_eq!(told(phase, status), expected);
        }
    }

    /// The one that is to come was shown as if it were there.
    #[test]
    fn the_engine_in_force_stands_before_the_one_that_is_to_take_its_place() {
        let mut cluster = super::super::wait::tests::cluster(Phase::Degraded, &[], vec![]);
        for (in_force, expected) in [
            (None, "flux 2.9.4"),
            (Some("flux"), "flux 2.9.4"),
            (Some("argocd"), "argocd → flux 2.9.4"),
        ] {
            let fact = |engine: &str| (ENGINE_IN_FORCE.to_owned(), engine.to_owned());
            cluster.facts = in_force.map(fact).into_iter().collect();
            assert_eq!(engines(&cluster), expected);
        }
    }

    #[test]
    fn an_empty_list_says_whether_there_are_others() {
        let wanted = ["env=prod", "site!=eu"].map(|text| selector(text).unwrap());
        assert_eq!(
            nothing(&wanted[..1], 3),
            "no cluster matches env=prod; there are 3"
        );
        assert_eq!(
            nothing(&wanted, 1),
            "no cluster matches env=prod, site!=eu; there is 1"
        );
        assert_eq!(
            nothing(&wanted, 0),
            "no clusters; run: linesman cluster add NAME"
        );
    }

    /// `env!=prod` was the label `env!`, which no cluster has.
    #[test]
    fn clusters_are_chosen_by_selectors_as_grants_choose_them() {
        let mut cluster = super::super::wait::tests::cluster(Phase::Healthy, &[], vec![]);
        let labels = [("env", "stage"), ("ring", "")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        cluster.labels.extend(labels);
        for (texts, expected) in [
            (&[][..], true),
            (&["env!=prod"], true),
            (&["env==stage"], true),
            (&["env=stage,ring="], true),
            (&["env=stage,ring=canary"], false),
            (&["env in (prod,stage)", "!frozen"], true),
            (&["env", "frozen"], false),
        ] {
            let chosen: Result<Vec<_>, _> = texts.iter().map(|text| selector(text)).collect();
            assert_eq!(fits(&cluster, &chosen.unwrap()), expected, "{texts:?}");
        }
        for wrong in ["", "=prod", "env=prod=eu"] {
            assert!(selector(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn revisions_and_times_are_short() {
        assert_eq!(
            revision(Some("main@sha1:0123456789abcdef0123")),
            "main@01234567"
        );
        assert_eq!(revision(Some("main@sha1:01")), "main@01");
        let commit = "2b34d60fd86c896afd7bf8300123456789abcdef";
        assert_eq!(revision(Some(commit)), "2b34d60f");
        let branch = "a-branch-with-a-name-of-40-characters-xx";
        assert_eq!(revision(Some(branch)), "a-branch-with-a-name-of…");
        assert_eq!(revision(None), "");
        assert_eq!(millis(1_250), "1.2 ms");
    }
}
