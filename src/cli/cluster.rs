//! `linesman cluster`: add clusters to the hub, look at them, let them go.

mod accept;
mod add;
mod agent_copy;
mod argocd_secret;
mod engine;
mod git;
mod label;
mod lift;
mod list;
mod pause;
mod proxy;
mod readopt;
mod remove;
mod revoke;
mod rotate;
mod show;
mod upgrade;
pub(super) mod wait;

pub(super) use add::Covered;
pub(super) use list::revision;

use anyhow::Result;
use clap::ValueEnum;

use super::output::{Format, document, emit};
use crate::client::Client;
use crate::clock::parse_rfc3339;
use crate::wire::api::{AccessLevel, EngineKind, ToldCluster};
use crate::wire::id::ClusterName;
use crate::wire::report::{ENGINE_IN_FORCE, Phase};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Record a cluster and print the YAML that adopts it
    Add(Box<add::Args>),
    /// List clusters, the worst first
    List(list::Args),
    /// Show one cluster: phase, steps, conditions, keys, facts
    Show(show::Args),
    /// Wait until a cluster is adopted or healthy, telling each step
    Wait(wait::Args),
    /// Print new adoption YAML for a cluster that the hub knows
    Readopt(Box<readopt::Args>),
    /// Set and remove labels, by which grants and rollouts choose clusters
    Label(label::Args),
    /// Choose a cluster's way to the Git host: over the line, directly, or as its agent finds
    Git(git::Args),
    /// Show which engine a cluster has, or let the other one take its place
    Engine(Box<engine::Args>),
    /// Let a cluster's agent run another image; undone where that is not heard of in time
    Upgrade(upgrade::Args),
    /// Keep a copy of the agent in the catalog, from which the engine brings it back
    AgentCopy(agent_copy::Args),
    /// Open a maintenance window: the agent only looks, and mends nothing
    Pause(pause::Pause),
    /// End a cluster's maintenance window
    Resume(pause::Resume),
    /// Give back to Git what the agent holds back because its commit broke the engine
    Lift(lift::Args),
    /// Let a cluster replace its keys, without a failed fetch or request
    Rotate(rotate::Args),
    /// Revoke a cluster's keys: the hub takes nothing from it until it is adopted again
    Revoke(revoke::Args),
    /// Let in an agent whose key the hub does not know, as the cluster that it claims
    Accept(Box<accept::Args>),
    /// Print the Secret with which an Argo CD elsewhere uses a cluster through the line
    ArgocdSecret(argocd_secret::Args),
    /// Let a cluster go; its engine and workloads stay
    Remove(remove::Args),
}

pub(super) async fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Add(args) => add::run(*args).await,
        Verb::List(args) => list::run(args).await,
        Verb::Show(args) => show::run(args).await,
        Verb::Wait(args) => wait::run(args).await,
        Verb::Readopt(args) => readopt::run(*args).await,
        Verb::Label(args) => label::run(args).await,
        Verb::Git(args) => git::run(args).await,
        Verb::Engine(args) => engine::run(*args).await,
        Verb::Upgrade(args) => upgrade::run(args).await,
        Verb::AgentCopy(args) => agent_copy::run(args).await,
        Verb::Pause(args) => pause::pause(args).await,
        Verb::Resume(args) => pause::resume(args).await,
        Verb::Lift(args) => lift::run(args).await,
        Verb::Rotate(args) => rotate::run(args).await,
        Verb::Revoke(args) => revoke::run(args).await,
        Verb::Accept(args) => accept::run(*args).await,
        Verb::ArgocdSecret(args) => argocd_secret::run(args).await,
        Verb::Remove(args) => remove::run(args).await,
    }
}

/// For programs, after a verb that changed a cluster or waited for it: the cluster as it stands then. What people want to
/// know is on stderr.
pub(super) async fn stands(client: &Client, name: &ClusterName, format: Format) -> Result<()> {
    match format {
        Format::Table | Format::Wide => Ok(()),
        Format::Name => emit(&format!("{name}\n")),
        Format::Json | Format::Yaml => emit(&document(format, &client.cluster(name).await?)?),
    }
}

/// The engine in force, where the agent has said so: another one may be wished.
pub(super) fn in_force(cluster: &ToldCluster) -> Option<EngineKind> {
    let told = cluster.facts.get(ENGINE_IN_FORCE)?;
    EngineKind::parse(told)
}

/// The engine and its version, as people are shown them; where the other one is in force still, or again, behind that one.
fn engines(cluster: &ToldCluster) -> String {
    let wished = format!("{} {}", cluster.engine, cluster.engine_version);
    let wished = wished.trim_end();
    match in_force(cluster).filter(|engine| cluster.engine != *engine) {
        Some(in_force) => format!("{in_force} → {wished}"),
        None => wished.to_owned(),
    }
}

/// Whether its agent is heard, over its line or by HTTPS alone: where a WebSocket is blocked there is no line. Of a cluster in
/// Conflict without one that is not known, since that hides an outage.
fn is_heard(cluster: &ToldCluster) -> bool {
    let heard = |phase: &Phase| match phase {
        Phase::Broken
        | Phase::Healing
        | Phase::Degraded
        | Phase::Installing
        | Phase::Joining
        | Phase::Paused
        | Phase::Healthy => true,
        Phase::Conflict | Phase::Offline | Phase::Pending | Phase::Unknown => false,
    };
    cluster.line.up || cluster.phase.known().is_some_and(heard)
}

/// Whether its agent is heard by HTTPS alone: there is no line, and a word came after its end. Where that was just now, the phase
/// calls nobody away yet.
fn is_heard_by_https(cluster: &ToldCluster) -> bool {
    let at = |told: Option<&str>| told.and_then(parse_rfc3339);
    let (ended, seen) = (
        at(cluster.line.since.as_deref()),
        at(cluster.last_seen.as_deref()),
    );
    let since = ended.is_none_or(|ended| seen.is_some_and(|seen| seen > ended));
    !cluster.line.up && since && is_heard(cluster)
}

/// What a wait for the agent's word lacks: `lack`, and where there is no line, whether the agent hears of orders all the same.
pub(super) fn awaits(cluster: &ToldCluster, lack: String) -> String {
    if cluster.line.up {
        return lack;
    }
    let down = format!("the line of cluster {} is down", cluster.name);
    if is_heard_by_https(cluster) {
        format!("{lack}; {down}, and its agent takes orders with its reports by HTTPS")
    } else {
        down
    }
}

/// [`EngineKind`] as a flag's value.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Engine {
    Flux,
    Argocd,
}

impl From<Engine> for EngineKind {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Flux => Self::Flux,
            Engine::Argocd => Self::Argocd,
        }
    }
}

/// [`AccessLevel`] as a flag's value.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Level {
    Off,
    View,
    Edit,
    Admin,
}

impl From<Level> for AccessLevel {
    fn from(level: Level) -> Self {
        match level {
            Level::Off => Self::Off,
            Level::View => Self::View,
            Level::Edit => Self::Edit,
            Level::Admin => Self::Admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::word::Word;

    /// H10: the agent of a cluster whose line is blocked was said to be away.
    #[test]
    fn an_agent_without_a_line_is_heard_where_its_phase_says_so() {
        let heard = |phase: Word<Phase>, up: bool| {
            let mut cluster = wait::tests::cluster(Phase::Healthy, &[], Vec::new());
            (cluster.phase, cluster.line.up) = (phase, up);
            is_heard(&cluster)
        };
        for (phase, by_https) in [
            (Phase::Conflict, false),
            (Phase::Offline, false),
            (Phase::Broken, true),
            (Phase::Healing, true),
            (Phase::Degraded, true),
            (Phase::Installing, true),
            (Phase::Joining, true),
            (Phase::Pending, false),
            (Phase::Paused, true),
            (Phase::Unknown, false),
            (Phase::Healthy, true),
        ] {
            let found = [true, false].map(|up| heard(phase.into(), up));
            assert_eq!(found, [true, by_https], "{phase:?}");
        }
        let later = || Word::Later("Hibernating".to_owned());
        assert_eq!([true, false].map(|up| heard(later(), up)), [true, false]);
    }

    /// H10: what was ordered was said to wait for the line, where the agent hears of it without one.
    #[test]
    fn a_wait_says_of_an_agent_that_is_heard_by_https_how_it_takes_orders() {
        let said = |(up, phase): (bool, Phase), ended: Option<&str>, seen: Option<&str>| {
            let mut cluster = wait::tests::cluster(phase, &[], Vec::new());
            cluster.line.up = up;
            cluster.line.since = ended.map(str::to_owned);
            cluster.last_seen = seen.map(str::to_owned);
            awaits(&cluster, "not yet".to_owned())
        };
        let end = Some("2026-01-01T00:00:00.000Z");
        let behind = Some("2026-01-01T00:00:10.000Z");
        let down = "the line of cluster eu1 is down";
        let by_https = "not yet; the line of cluster eu1 is down, and its agent takes orders with its reports by HTTPS";
        for (up, phase, ended, seen, expected) in [
            (true, Phase::Healthy, end, behind, "not yet"),
            (false, Phase::Healthy, end, behind, by_https),
            // No line of it was seen.
            (false, Phase::Joining, None, behind, by_https),
            // The last word is the line's.
            (false, Phase::Healthy, end, end, down),
            (false, Phase::Offline, end, behind, down),
            (false, Phase::Pending, None, None, down),
        ] {
            let found = said((up, phase), ended, seen);
            assert_eq!(found, expected, "{phase:?} {ended:?} {seen:?}");
        }
    }
}
