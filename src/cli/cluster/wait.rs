//! `linesman cluster wait`: tells the steps of an adoption as they happen.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use tokio::time::Instant;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::interrupt;
use crate::cli::output::{self, Output};
use crate::cli::progress::{self, Progress};
use crate::cli::wait::{LEAST, Silence};
use crate::client::{Cause, Client, Error};
use crate::keys;
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

When the cluster has just applied a commit, its first one or another, healthy waits for what that brings,
too, a minute at most, and 140 s for Applications of Argo CD that have not applied it yet, or are Progressing
since. What is not Ready then is a fault (condition ChildrenReady). Whether a push has arrived, the revision
says.

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
    /// Leave out what was known when 'cluster readopt' printed this
    #[arg(long, value_name = "MARK", value_parser = Before::parse)]
    after: Option<Before>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// How a cluster stood when its new YAML was made: nothing of that tells of the YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Before {
    /// The join that the YAML is for raises it.
    rev: i64,
    /// Of the last join's refusal: [`words`].
    conflict: Option<String>,
}

impl Before {
    pub(super) fn of(cluster: &ToldCluster) -> Self {
        Self {
            rev: cluster.rev,
            conflict: condition(cluster, ConditionType::JoinConflict).map(words),
        }
    }

    /// What `Display` wrote.
    fn parse(text: &str) -> Result<Self, String> {
        let (rev, conflict) = match text.split_once('-') {
            Some((rev, conflict)) => (rev, Some(conflict.to_owned())),
            None => (text, None),
        };
        let rev = rev.parse::<i64>();
        let rev = rev.map_err(|_| format!("'{text}' is none that 'cluster readopt' prints"))?;
        Ok(Self { rev, conflict })
    }

    /// Whether it has not joined since.
    fn holds(&self, cluster: &ToldCluster) -> bool {
        cluster.rev == self.rev
    }
}

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rev)?;
        match &self.conflict {
            Some(conflict) => write!(f, "-{conflict}"),
            None => Ok(()),
        }
    }
}

/// Short for what a refusal says, the same for the same agent's next try: that comes from another port.
fn words(conflict: &ToldCondition) -> String {
    let said = conflict.message.split_whitespace().map(portless);
    let all: Vec<&str> = [conflict.reason.as_str()].into_iter().chain(said).collect();
    keys::sha256_hex(all.join(" ").as_bytes())[..12].to_owned()
}

fn portless(word: &str) -> &str {
    match word.rsplit_once(':') {
        Some((address, port)) if port.parse::<u16>().is_ok() => address,
        _ => word,
    }
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.patient_client()?;
    let goal = (args.goal, args.after.as_ref());
    until(&client, &args.name, goal, args.timeout).await?;
    super::stands(&client, &args.name, args.output.output).await
}

/// Returns when the cluster is there, by what came after [`Before`]; a hub that is away for a moment is waited for as well.
pub(super) async fn until(
    client: &Client,
    name: &ClusterName,
    goal: (For, Option<&Before>),
    limit: Duration,
) -> Result<()> {
    let mut progress = Progress::start(&format!(
        "waiting for cluster {name}, at most {}",
        duration::show(limit)
    ));
    let result = watch(client, name, goal, limit, &mut progress).await;
    let took = progress.finish().as_secs_f64();
    let cluster = result?;
    output::progress_line(&there(&cluster, goal.0, took));
    Ok(())
}

async fn watch(
    client: &Client,
    name: &ClusterName,
    (goal, before): (For, Option<&Before>),
    limit: Duration,
    progress: &mut Progress,
) -> Result<ToldCluster> {
    let began = Instant::now();
    let ends = began + limit;
    // Also where there is hardly any time: the first answer is worth a moment.
    let mut until = ends.max(began + LEAST);
    let (mut last, mut silence) = (None, None);
    let mut asked = began;
    loop {
        match interrupt::cut_at(until, client.cluster(name)).await {
            Ok(Ok(cluster)) => {
                // Steps tell of themselves, unless they are of before; what they do not tell is said.
                let of_before = before.is_some_and(|before| before.holds(&cluster));
                if !of_before {
                    progress.steps(&cluster.steps);
                }
                let untold = of_before || is_untold(&cluster);
                match verdict(&cluster, goal, before) {
                    Verdict::There => return Ok(cluster),
                    Verdict::Never(failure) => return Err(failure.into()),
                    Verdict::NotYet(why) if untold => progress.say(&why),
                    Verdict::NotYet(_) => {}
                }
                (last, silence) = (Some(cluster), None);
            }
            Ok(Err(e)) if e.is_passing() && (last.is_some() || may_come(&e)) => {
                progress.say(&format!("{e}; asking again"));
                silence = Some(Silence::of(&e));
            }
            Ok(Err(e)) => return Err(e.into()),
            // One that had no time to answer says nothing of the hub, whatever came to its end behind that.
            Err(_) if until.duration_since(asked) < LEAST => {}
            Err(_) => silence = silence.or_else(|| Some(Silence::whole(&client.hub()))),
        }
        until = ends;
        let now = Instant::now();
        if now >= ends {
            let failure = match silence {
                Some(silence) => silence.failure(limit),
                None => timed_out(name, last.as_ref(), (goal, before), limit),
            };
            return Err(failure.into());
        }
        tokio::time::sleep(EVERY.min(ends - now)).await;
        asked = Instant::now();
    }
}

/// Whether a hub that did not answer yet is late rather than wrong, as a name that nobody knows is, or a proxy that carries nothing.
fn may_come(error: &Error) -> bool {
    let wrong = |cause: &Cause| matches!(cause, Cause::Dns(_) | Cause::Proxy(_));
    !matches!(error, Error::Unreachable { cause, .. } if wrong(cause))
}

#[derive(Debug, PartialEq)]
enum Verdict {
    There,
    NotYet(String),
    Never(Failure),
}

fn verdict(cluster: &ToldCluster, goal: For, before: Option<&Before>) -> Verdict {
    let before = before.filter(|before| before.holds(cluster));
    let known = before.and_then(|before| before.conflict.as_deref());
    let conflict = condition(cluster, ConditionType::JoinConflict);
    if let Some(conflict) = conflict.filter(|c| known != Some(words(c).as_str())) {
        return Verdict::Never(Failure::new(
            Code::Conflict,
            format!("cluster {} cannot join: {}", cluster.name, conflict.message),
            mends(conflict, &cluster.name),
        ));
    }
    if before.is_some() {
        return Verdict::NotYet(format!(
            "cluster {} has not joined anew yet; waiting for its new YAML to be applied",
            cluster.name
        ));
    }
    let adopted = is_adopted(cluster);
    match goal {
        For::Adopted if adopted => Verdict::There,
        For::Healthy if cluster.phase == Phase::Healthy => {
            waits(cluster).map_or(Verdict::There, Verdict::NotYet)
        }
        For::Healthy if adopted => Verdict::NotYet(format!(
            "cluster {} is {}",
            cluster.name,
            unhealthy(cluster)
        )),
        For::Adopted | For::Healthy => Verdict::NotYet(step(cluster)),
    }
}

fn is_adopted(cluster: &ToldCluster) -> bool {
    let mut steps = cluster.steps.iter();
    steps.any(|s| s.step == StepName::Adopted && s.state == StepState::Done)
}

/// Whether none of its steps tells what is waited for. Between two of them there is nothing to tell.
fn is_untold(cluster: &ToldCluster) -> bool {
    let told = progress::current(&cluster.steps).is_some();
    !told && (cluster.steps.is_empty() || is_adopted(cluster))
}

/// What a person does about a join that was refused.
fn mends(conflict: &ToldCondition, name: &ClusterName) -> String {
    // New YAML voids the one that the condition may say to apply again, and for a cluster that was made anew it has to say so.
    if matches!(conflict.reason.as_str(), "KeyKnown" | "IncarnationChanged") {
        return format!("see what the condition says: linesman cluster show {name}");
    }
    format!("make new YAML and apply it: linesman cluster readopt {name} --file adopt.yaml")
}

/// What a Healthy cluster does not know yet of a commit that it has just applied.
fn waits(cluster: &ToldCluster) -> Option<String> {
    let mut all = cluster.conditions.iter();
    let children =
        all.find(|c| c.kind == ConditionType::ChildrenReady && c.status == Status::Unknown)?;
    let (name, why) = (&cluster.name, &children.message);
    Some(format!(
        "cluster {name} is Healthy, and what the catalog brought is not known to be Ready yet: {why}"
    ))
}

/// What stands in the way, in words.
fn step(cluster: &ToldCluster) -> String {
    match (progress::current(&cluster.steps), cluster.steps.last()) {
        (None, None) => format!(
            "no word from cluster {} yet; waiting for its YAML to be applied",
            cluster.name
        ),
        (None, Some(last)) => {
            format!("step {} is done, and the next has not begun", last.step)
        }
        (Some(step), _) if step.reason.is_empty() => {
            format!("step {} is {}", step.step, progress::state(&step.state))
        }
        (Some(step), _) => format!(
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
    (goal, before): (For, Option<&Before>),
    limit: Duration,
) -> Failure {
    let unheard = |cluster: &ToldCluster| {
        cluster.steps.is_empty() || before.is_some_and(|before| before.holds(cluster))
    };
    let why = last.map_or_else(
        || "the hub did not answer".to_owned(),
        |cluster| match verdict(cluster, goal, before) {
            Verdict::NotYet(why) => why,
            Verdict::There | Verdict::Never(_) => output::phase(&cluster.phase),
        },
    );
    let next = match last {
        Some(cluster) if unheard(cluster) => {
            "apply the YAML in the cluster (again, where a former agent was just leaving it), then look at: \
             kubectl -n linesman logs deploy/linesman-agent"
                .to_owned()
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
pub(in crate::cli) mod tests;
