//! `linesman cluster pause|resume`: a maintenance window, in which the agent only looks.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::client::Client;
use crate::clock::parse_rfc3339;
use crate::wire::api::{PauseRequest, ToldCluster};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status, hub_window};

const EXAMPLES: &str = "\
In the window the agent shows what is wrong and mends nothing; it ends by itself. One thing it does all the
same: where somebody deletes the engine's CRDs or Namespace, it keeps the engine from pruning what it brought.
An agent that is out of reach learns of it when it is back; in the cluster itself, the annotation
linesman.dev/maintenance-until=UNTIL on the engine's Namespace, or on one object, does the same. UNTIL is a
time in RFC 3339, at most 24h ahead: $(date -u -d +2hour +%FT%TZ), on macOS $(date -u -v+2H +%FT%TZ).
Anything else opens no window: see that 'linesman cluster show' has condition Paused.

Examples:
  linesman cluster pause eu1 --for 2h --reason 'node upgrade' --wait   # returns when it mends nothing
  linesman cluster resume eu1";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Pause {
    /// The cluster's name
    name: ClusterName,
    /// For how long, from now: 1m to 24h
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse)]
    length: Duration,
    /// Why, for those who look at the cluster meanwhile
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Then wait until the agent mends nothing any more: 1m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const RESUME: &str = "\
This ends the hub's own window. One that an annotation or ConfigMap linesman-policy opened in the cluster
stays, and is ended there: condition Paused of 'linesman cluster show' names it.

Examples:
  linesman cluster resume eu1
  linesman cluster resume eu1 --wait      # returns when the agent mends again";

#[derive(Debug, clap::Args)]
#[command(after_help = RESUME)]
pub(in crate::cli) struct Resume {
    /// The cluster's name
    name: ClusterName,
    /// Then wait until the agent knows that the window is over: 1m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// What is said where no agent can have heard it yet.
const LATER: &str = "its line is down, and its agent learns of it when it is heard again";
/// The same of one that is heard by HTTPS alone.
const REPORTS: &str = "its line is down, and its agent takes it with its next report by HTTPS";

pub(in crate::cli) async fn pause(args: Pause) -> Result<()> {
    let seconds = u32::try_from(args.length.as_secs()).unwrap_or(u32::MAX);
    if !(60..=86_400).contains(&seconds) {
        return Err(Failure::new(
            Code::Usage,
            format!(
                "a cluster is paused for 1m to 24h, not {}",
                duration::show(args.length)
            ),
            "give another length with --for",
        )
        .into());
    }
    let asked = PauseRequest {
        seconds,
        reason: args.reason,
    };
    let client = args.connect.client().await?;
    let (name, format) = (&args.name, args.output.output);
    let policy = client.pause(name, &asked).await?;
    let until = policy.paused_until.unwrap_or_default();
    let later = later(&client, name).await;
    let later = later.map_or_else(String::new, |later| format!(" {later};"));
    progress_line(&format!(
        "cluster {name} is paused until {until};{later} end it with: linesman cluster resume {name}"
    ));
    if let Some(limit) = args.wait {
        follow(&client, name, limit, |cluster| paused(cluster, &until)).await?;
    }
    super::stands(&client, name, format).await
}

pub(in crate::cli) async fn resume(args: Resume) -> Result<()> {
    let client = args.connect.client().await?;
    let (name, format) = (&args.name, args.output.output);
    client.resume(name).await?;
    let later = later(&client, name).await;
    let agent = later.unwrap_or("its agent mends what it finds");
    progress_line(&format!("cluster {name} is no longer paused; {agent}"));
    if let Some(limit) = args.wait {
        follow(&client, name, limit, resumed).await?;
    }
    super::stands(&client, name, format).await
}

/// What is said of an agent that cannot have heard it yet, as far as the caller may see that.
async fn later(client: &Client, name: &ClusterName) -> Option<&'static str> {
    let cluster = client.cluster(name).await.ok()?;
    lineless(&cluster)
}

fn lineless(cluster: &ToldCluster) -> Option<&'static str> {
    if cluster.line.up {
        None
    } else if super::is_heard_by_https(cluster) {
        Some(REPORTS)
    } else {
        Some(LATER)
    }
}

/// Waits until the agent has taken it, and tells what the agent does then.
async fn follow(
    client: &Client,
    name: &ClusterName,
    limit: Duration,
    taken: impl Fn(&ToldCluster) -> Result<String, String>,
) -> Result<()> {
    let next = format!(
        "an agent that is out of reach learns of it when it is back; look closer: linesman cluster show {name}"
    );
    let patience = Patience { limit, next: &next };
    let followed = wait::until("the agent knows it", patience, async || {
        Ok(match taken(&client.cluster(name).await?) {
            Ok(does) => Found::Over(does),
            Err(lack) => Found::Waits(lack),
        })
    });
    let (does, took) = followed.await?;
    progress_line(&format!("the agent of cluster {name} {does} ({took:.1} s)"));
    Ok(())
}

/// What the agent does when it mends nothing until then, else what that waits for.
fn paused(cluster: &ToldCluster, until: &str) -> Result<String, String> {
    if let Some(foreign) = holds(cluster, ConditionType::ObserveOnly) {
        return Ok(format!("mends nothing in any case: {foreign}"));
    }
    match holds(cluster, ConditionType::Paused) {
        Some(told) if told.starts_with(&hub_window(until)) => Ok("mends nothing now".to_owned()),
        // Of several windows the one that lasts longest is told of, and the hub's before is not that.
        Some(told)
            if !is_hubs(told) && ends(told).is_none_or(|end| Some(end) >= parse_rfc3339(until)) =>
        {
            Ok(format!("mends nothing in any case: {told}"))
        }
        Some(_) | None => Err(not_yet(cluster)),
    }
}

/// What the agent does when the hub's window is over, else what that waits for.
fn resumed(cluster: &ToldCluster) -> Result<String, String> {
    match holds(cluster, ConditionType::Paused) {
        Some(told) if is_hubs(told) => Err(not_yet(cluster)),
        Some(told) => Ok(format!("still mends nothing: {told}")),
        None if says(cluster) => Ok("mends what it finds".to_owned()),
        None => Err(not_yet(cluster)),
    }
}

/// The agent's words on a condition that is true.
fn holds(cluster: &ToldCluster, kind: ConditionType) -> Option<&str> {
    let mut told = cluster.conditions.iter();
    let told = told.find(|c| c.kind == kind && c.status == Status::True)?;
    Some(&told.message)
}

/// Whether it is known what the agent does.
fn says(cluster: &ToldCluster) -> bool {
    let mut told = cluster.conditions.iter();
    told.any(|c| c.kind == ConditionType::Paused && c.status == Status::False)
}

/// Whether the window that is told of is the hub's, whichever one.
fn is_hubs(told: &str) -> bool {
    written_end(told).is_some_and(|end| told.starts_with(&hub_window(end)))
}

/// When the window that is told of ends by itself.
fn ends(told: &str) -> Option<time::OffsetDateTime> {
    parse_rfc3339(written_end(told)?)
}

fn written_end(told: &str) -> Option<&str> {
    let word = told.strip_prefix("until ")?.split(' ').next()?;
    Some(word.trim_end_matches([':', ';']))
}

fn not_yet(cluster: &ToldCluster) -> String {
    let name = &cluster.name;
    super::awaits(
        cluster,
        format!("the agent of cluster {name} has not taken it yet"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait::tests::cluster;
    use crate::wire::api::ToldCondition;
    use crate::wire::report::Phase;

    fn told(up: bool, said: &[(ConditionType, Status, &str)]) -> ToldCluster {
        let said = said.iter().map(|(kind, status, message)| ToldCondition {
            kind: (*kind).into(),
            status: (*status).into(),
            reason: String::new(),
            message: (*message).to_owned(),
            since: String::new(),
        });
        let phase = if up { Phase::Healthy } else { Phase::Offline };
        let mut cluster = cluster(phase, &[], said.collect());
        cluster.line.up = up;
        cluster
    }

    const EARLIER: &str = "2027-01-15T08:00:00.000Z";
    const UNTIL: &str = "2027-01-15T10:00:00.000Z";
    const LATER: &str = "2027-01-15T12:00:00.000Z";

    fn hubs(end: &str) -> String {
        format!("until {end}: node upgrade (ada); end it: linesman cluster resume eu1")
    }

    fn owners(end: &str) -> String {
        format!(
            "until {end}; key pausedUntil of ConfigMap linesman-policy; ask the cluster's owner to take it away"
        )
    }

    #[test]
    fn a_pause_is_taken_when_the_agent_says_so_of_this_one() {
        use ConditionType::{ObserveOnly, Paused};
        let off = "key heal of ConfigMap linesman-policy is off";
        let says = |up, said: &[(ConditionType, Status, &str)]| paused(&told(up, said), UNTIL);
        let yet = Err("the agent of cluster eu1 has not taken it yet".to_owned());
        let down = Err("the line of cluster eu1 is down".to_owned());
        let any = |told: &str| Ok(format!("mends nothing in any case: {told}"));
        let now = Ok("mends nothing now".to_owned());
        for (said, expected) in [
            ((Paused, Status::False, String::new()), yet.clone()),
            ((Paused, Status::True, hubs(UNTIL)), now),
            // The window that this one takes the place of, a longer one as well as a shorter one.
            ((Paused, Status::True, hubs(LATER)), yet.clone()),
            ((Paused, Status::True, hubs(EARLIER)), yet.clone()),
            ((Paused, Status::True, owners(EARLIER)), yet.clone()),
            ((Paused, Status::True, owners(LATER)), any(&owners(LATER))),
            ((Paused, Status::True, off.to_owned()), any(off)),
            ((ObserveOnly, Status::True, "helm".to_owned()), any("helm")),
            // Of an agent that is away the hub says what it knew.
            ((Paused, Status::Unknown, hubs(UNTIL)), yet),
        ] {
            let (kind, status, message) = &said;
            assert_eq!(
                says(true, &[(*kind, *status, message)]),
                expected,
                "{said:?}"
            );
        }
        assert_eq!(says(false, &[(Paused, Status::False, "")]), down);
    }

    #[test]
    fn a_window_is_over_when_the_agent_tells_no_longer_of_the_hubs() {
        let says = |up, status, message: &str| {
            resumed(&told(up, &[(ConditionType::Paused, status, message)]))
        };
        let yet = Err("the agent of cluster eu1 has not taken it yet".to_owned());
        let down = Err("the line of cluster eu1 is down".to_owned());
        let mends = Ok("mends what it finds".to_owned());
        assert_eq!(says(true, Status::True, &hubs(UNTIL)), yet);
        assert_eq!(says(true, Status::False, ""), mends);
        let still = Ok(format!("still mends nothing: {}", owners(LATER)));
        assert_eq!(says(true, Status::True, &owners(LATER)), still);
        assert_eq!(says(false, Status::Unknown, &hubs(UNTIL)), down);
    }

    /// H10: where a WebSocket is blocked there is no line, and the order is taken all the same.
    #[test]
    fn an_agent_that_is_heard_by_https_is_not_said_to_be_away() {
        let heard = |up: bool, phase: Phase, status: Status| {
            let mut cluster = told(up, &[(ConditionType::Paused, status, &hubs(UNTIL))]);
            cluster.phase = phase.into();
            cluster
        };
        let by_https = heard(false, Phase::Healthy, Status::False);
        assert_eq!(lineless(&by_https), Some(REPORTS));
        let yet = "the agent of cluster eu1 has not taken it yet; the line of cluster eu1 is down, and its agent takes orders \
                   with its reports by HTTPS";
        assert_eq!(paused(&by_https, UNTIL), Err(yet.to_owned()));
        let open = heard(false, Phase::Paused, Status::True);
        assert_eq!(resumed(&open), Err(yet.to_owned()));
        // What it says is its word by HTTPS as well.
        assert_eq!(paused(&open, UNTIL), Ok("mends nothing now".to_owned()));
        let away = heard(false, Phase::Offline, Status::Unknown);
        assert_eq!(lineless(&away), Some(super::LATER));
        let up = heard(true, Phase::Healthy, Status::False);
        assert_eq!(lineless(&up), None);
    }
}
