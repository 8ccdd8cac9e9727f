//! `linesman cluster wait`: tells the steps of an adoption as they happen.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use tokio::time::{Instant, timeout_at};

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{self, Output};
use crate::cli::progress::{self, Progress};
use crate::cli::wait::{LEAST, Silence};
use crate::client::Client;
use crate::wire::api::{ToldCluster, ToldCondition};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Phase, Status, StepName, StepState, Weight, weights};

const EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum For {
    /// The engine applied the catalog's first revision
    Adopted,
    /// The cluster is adopted, works and follows the catalog: phase Healthy of 'cluster list --help'
    Healthy,
}

const EXAMPLES: &str = "\
Examples:
  linesman cluster wait eu1
  linesman cluster wait eu1 --for=healthy --timeout 10m

Ends with 6 when the time is over, naming the step that it waited for, and with 5 where the cluster cannot
join.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// What to wait for
    #[arg(
        long = "for",
        value_enum,
        default_value = "adopted",
        value_name = "STATE"
    )]
    goal: For,
    /// How long at most
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    timeout: Duration,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    until(&client, &args.name, args.goal, args.timeout).await?;
    super::stands(&client, &args.name, args.output.output).await
}

/// Returns when the cluster is there; a hub that is away for a moment is waited for as well.
pub(super) async fn until(
    client: &Client,
    name: &ClusterName,
    goal: For,
    limit: Duration,
) -> Result<()> {
    let mut progress = Progress::start(&format!(
        "waiting for cluster {name}, at most {}",
        duration::show(limit)
    ));
    let result = watch(client, name, goal, limit, &mut progress).await;
    let took = progress.finish().as_secs_f64();
    let cluster = result?;
    output::progress_line(&there(&cluster, goal, took));
    Ok(())
}

async fn watch(
    client: &Client,
    name: &ClusterName,
    goal: For,
    limit: Duration,
    progress: &mut Progress,
) -> Result<ToldCluster> {
    let began = Instant::now();
    let ends = began + limit;
    // Also where there is hardly any time: the first answer is worth a moment.
    let mut until = ends.max(began + LEAST);
    let (mut last, mut silence) = (None, None);
    loop {
        match timeout_at(until, client.cluster(name)).await {
            Ok(Ok(cluster)) => {
                progress.steps(&cluster.steps);
                match verdict(&cluster, goal) {
                    Verdict::There => return Ok(cluster),
                    Verdict::Never(failure) => return Err(failure.into()),
                    // Steps tell of themselves; what they do not tell is said.
                    Verdict::NotYet(why) if progress::current(&cluster.steps).is_none() => {
                        progress.say(&why);
                    }
                    Verdict::NotYet(_) => {}
                }
                (last, silence) = (Some(cluster), None);
            }
            Ok(Err(e)) if e.is_passing() && last.is_some() => {
                progress.say(&format!("{e}; asking again"));
                silence = Some(Silence::of(&e));
            }
            Ok(Err(e)) => return Err(e.into()),
            Err(_) => silence = silence.or_else(|| Some(Silence::whole(&client.hub()))),
        }
        until = ends;
        let now = Instant::now();
        if now >= ends {
            let failure = match silence {
                Some(silence) => silence.failure(limit),
                None => timed_out(name, last.as_ref(), goal, limit),
            };
            return Err(failure.into());
        }
        tokio::time::sleep(EVERY.min(ends - now)).await;
    }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    There,
    NotYet(String),
    Never(Failure),
}

fn verdict(cluster: &ToldCluster, goal: For) -> Verdict {
    if let Some(conflict) = condition(cluster, ConditionType::JoinConflict) {
        return Verdict::Never(Failure::new(
            Code::Conflict,
            format!("cluster {} cannot join: {}", cluster.name, conflict.message),
            format!(
                "make new YAML and apply it: linesman cluster readopt {} --file adopt.yaml",
                cluster.name
            ),
        ));
    }
    let adopted = cluster
        .steps
        .iter()
        .any(|s| s.step == StepName::Adopted && s.state == StepState::Done);
    match goal {
        For::Adopted if adopted => Verdict::There,
        For::Healthy if cluster.phase == Phase::Healthy => Verdict::There,
        For::Healthy if adopted => Verdict::NotYet(format!(
            "cluster {} is {}",
            cluster.name,
            unhealthy(cluster)
        )),
        For::Adopted | For::Healthy => Verdict::NotYet(step(cluster)),
    }
}

/// What stands in the way, in words.
fn step(cluster: &ToldCluster) -> String {
    match progress::current(&cluster.steps) {
        None if cluster.steps.is_empty() => {
            format!(
                "no word from cluster {} yet; waiting for its YAML to be applied",
                cluster.name
            )
        }
        None => format!("cluster {} is between two steps", cluster.name),
        Some(step) if step.reason.is_empty() => {
            format!("step {} is {}", step.step, progress::state(&step.state))
        }
        Some(step) => format!(
            "step {} is {}: {}",
            step.step,
            progress::state(&step.state),
            step.reason
        ),
    }
}

/// Its phase, and what keeps it from being Healthy.
fn unhealthy(cluster: &ToldCluster) -> String {
    let said = cluster.conditions.iter().map(ToldCondition::known);
    let weighed = cluster.conditions.iter().zip(weights(said));
    let in_the_way = weighed.filter(|(_, weight)| weight.is_some_and(|w| w != Weight::Noted));
    let wrong: Vec<String> = in_the_way
        .map(|(c, _)| {
            let why = if c.message.is_empty() {
                &c.reason
            } else {
                &c.message
            };
            format!(
                "{} is {} ({why})",
                output::kind(&c.kind),
                output::status(&c.status)
            )
        })
        .collect();
    let phase = output::phase(&cluster.phase);
    if wrong.is_empty() {
        phase
    } else {
        format!("{phase}: {}", wrong.join("; "))
    }
}

/// A condition that is true.
fn condition(cluster: &ToldCluster, kind: ConditionType) -> Option<&ToldCondition> {
    cluster
        .conditions
        .iter()
        .find(|c| c.kind == kind && c.status == Status::True)
}

fn there(cluster: &ToldCluster, goal: For, took: f64) -> String {
    let what = match goal {
        For::Adopted => "adopted",
        For::Healthy => "healthy",
    };
    let at = match super::list::revision(cluster.revision.as_deref()) {
        revision if revision.is_empty() => String::new(),
        revision => format!(" at {revision}"),
    };
    format!("cluster {} is {what}{at} ({took:.1} s)", cluster.name)
}

fn timed_out(
    name: &ClusterName,
    last: Option<&ToldCluster>,
    goal: For,
    limit: Duration,
) -> Failure {
    let why = last.map_or_else(
        || "the hub did not answer".to_owned(),
        |cluster| match verdict(cluster, goal) {
            Verdict::NotYet(why) => why,
            Verdict::There | Verdict::Never(_) => output::phase(&cluster.phase),
        },
    );
    let next = match last {
        Some(cluster) if cluster.steps.is_empty() => {
            "apply the YAML in the cluster, then look at: kubectl -n linesman logs deploy/linesman-agent".to_owned()
        }
        _ => format!("look closer: linesman doctor --cluster {name}"),
    };
    Failure::new(
        Code::Timeout,
        format!("{} passed and {why}", duration::show(limit)),
        next,
    )
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::wire::api::{EngineKind, GitRoute, LineView, ToldGitRoute, ToldStep, Via};

    pub(in crate::cli) fn cluster(
        phase: Phase,
        steps: &[(StepName, StepState, &str)],
        conditions: Vec<ToldCondition>,
    ) -> ToldCluster {
        let steps = steps.iter().map(|(step, state, reason)| ToldStep {
            step: (*step).into(),
            state: (*state).into(),
            reason: (*reason).to_owned(),
            at: "2026-01-01T00:00:00Z".to_owned(),
        });
        ToldCluster {
            name: "eu1".parse().unwrap(),
            id: "i".to_owned(),
            phase: phase.into(),
            engine: EngineKind::Flux.into(),
            engine_version: "2.9.4".to_owned(),
            labels: BTreeMap::new(),
            line: LineView::default(),
            last_seen: None,
            revision: Some("main@sha1:0123456789ab".to_owned()),
            agent_version: None,
            catalog_path: "clusters/eu1".to_owned(),
            git: ToldGitRoute {
                route: GitRoute::Auto.into(),
                via: Via::Direct.into(),
            },
            scope: None,
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            steps: steps.collect(),
            conditions,
            later_conditions: Vec::new(),
            facts: BTreeMap::new(),
            agent_copy: None,
            keys: Vec::new(),
            rev: 1,
        }
    }

    fn says(kind: ConditionType, status: Status, message: &str) -> ToldCondition {
        let since = "2026-01-01T00:00:00Z".to_owned();
        ToldCondition {
            kind: kind.into(),
            status: status.into(),
            reason: "Why".to_owned(),
            message: message.to_owned(),
            since,
        }
    }

    /// H59
    #[test]
    fn the_waiting_reason_is_named() {
        let fresh = cluster(Phase::Pending, &[], vec![]);
        let not_yet = "no word from cluster eu1 yet; waiting for its YAML to be applied";
        assert_eq!(
            verdict(&fresh, For::Adopted),
            Verdict::NotYet(not_yet.to_owned())
        );
        let git = cluster(
            Phase::Joining,
            &[
                (StepName::Join, StepState::Done, ""),
                (StepName::Git, StepState::Waiting, "auth refused"),
            ],
            vec![],
        );
        assert_eq!(
            verdict(&git, For::Healthy),
            Verdict::NotYet("step git is waiting: auth refused".to_owned())
        );
        let failure = timed_out(&git.name, Some(&git), For::Adopted, Duration::from_mins(5));
        assert_eq!(failure.code, Code::Timeout);
        assert_eq!(
            failure.message,
            "5m passed and step git is waiting: auth refused"
        );
    }

    #[test]
    fn adopted_and_healthy_are_different_goals() {
        let done = [(StepName::Adopted, StepState::Done, "")];
        let sick = cluster(
            Phase::Degraded,
            &done,
            vec![says(ConditionType::Synced, Status::False, "no fetch")],
        );
        assert_eq!(verdict(&sick, For::Adopted), Verdict::There);
        let why = "cluster eu1 is Degraded: Synced is False (no fetch)";
        assert_eq!(
            verdict(&sick, For::Healthy),
            Verdict::NotYet(why.to_owned())
        );
        let unguarded = cluster(
            Phase::Degraded,
            &done,
            vec![
                says(ConditionType::Synced, Status::True, ""),
                says(ConditionType::SnapshotFresh, Status::False, "none yet"),
                says(ConditionType::EngineInstalled, Status::False, "1 of 30"),
                says(ConditionType::Guarded, Status::False, "it is missing"),
            ],
        );
        let why = "cluster eu1 is Degraded: Guarded is False (it is missing)";
        assert_eq!(
            verdict(&unguarded, For::Healthy),
            Verdict::NotYet(why.to_owned())
        );
        assert_eq!(
            verdict(&cluster(Phase::Healthy, &done, vec![]), For::Healthy),
            Verdict::There
        );
        assert_eq!(
            there(&sick, For::Adopted, 12.34),
            "cluster eu1 is adopted at main@01234567 (12.3 s)"
        );
    }

    #[test]
    fn a_conflict_ends_the_wait() {
        let conflict = vec![says(
            ConditionType::JoinConflict,
            Status::True,
            "token used by SHA256:x",
        )];
        let Verdict::Never(failure) =
            verdict(&cluster(Phase::Conflict, &[], conflict), For::Adopted)
        else {
            panic!("a conflict does not pass by itself");
        };
        assert_eq!(failure.code, Code::Conflict);
    }
}
