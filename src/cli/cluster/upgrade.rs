//! `linesman cluster upgrade`: another image for a cluster's agent, and how that goes.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::progress_line;
use crate::cli::wait::{self, Found, Patience};
use crate::client::Client;
use crate::wire::api::{AgentImageRequest, ClusterView};
use crate::wire::id::ClusterName;
use crate::wire::report::{ConditionType, Status};

const EXAMPLES: &str = "\
The agent gives its Deployment the new image and goes on with its work, the line up, until a Pod of that image asks for it.
Where the hub has not acknowledged a report of the new one in time, the image of before is back within 120 s, whether the hub
is there or not, and 'linesman cluster show' tells why (AgentCurrent). An image that was taken back so is not tried again
until the wish is another: withdraw it, and give it anew.

Examples:
  linesman cluster upgrade eu1 --image registry.example.org/linesman@sha256:4f1c… --wait
  linesman cluster upgrade eu1 --withdraw";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// The image that its agent shall run, REPOSITORY@sha256:…
    #[arg(long, value_name = "REF", required_unless_present = "withdraw")]
    image: Option<String>,
    /// Take an image by its tag, which can come to name another one
    #[arg(long, requires = "image")]
    allow_tag: bool,
    /// No image is wished any more: the agent stays with the one that it runs
    #[arg(long, conflicts_with = "image")]
    withdraw: bool,
    /// Then wait until the new agent is heard
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration::parse, requires = "image")]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let asked = AgentImageRequest {
        image: args.image,
        allow_tag: args.allow_tag,
    };
    let told = client.set_agent_image(&args.name, &asked).await?;
    let Some(image) = told.image else {
        progress_line(&format!(
            "the agent of cluster {} stays with the image that it runs",
            args.name
        ));
        return Ok(());
    };
    progress_line(&format!(
        "the agent of cluster {} is to run {image}",
        args.name
    ));
    follow(&client, &args.name, &image, args.wait).await
}

async fn follow(
    client: &Client,
    name: &ClusterName,
    image: &str,
    wait: Option<Duration>,
) -> Result<()> {
    let Some(limit) = wait else {
        progress_line(&format!("see how it goes: linesman cluster show {name}"));
        return Ok(());
    };
    let next = format!("it goes on by itself; look closer: linesman cluster show {name}");
    let patience = Patience { limit, next: &next };
    let asked = wait::until("the new agent is heard", patience, async || {
        Ok(match state(&client.cluster(name).await?, image) {
            State::Done(told) => Found::Over(told),
            State::Waits(lack) => Found::Waits(lack),
            State::Undone(told) => {
                let next = format!(
                    "mend what it says; to try the same image again: linesman cluster upgrade {name} --withdraw, then --image"
                );
                Found::Never(Failure::new(Code::Failed, told, next))
            }
        })
    });
    let (told, took) = asked.await?;
    progress_line(&format!("{told} ({took:.1} s)"));
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Done(String),
    Undone(String),
    Waits(String),
}

/// What the agent last said of this image.
fn state(cluster: &ClusterView, image: &str) -> State {
    let mut told = cluster.conditions.iter();
    let about = format!("{image}: ");
    let told =
        told.find(|c| c.kind == ConditionType::AgentCurrent && c.message.starts_with(&about));
    let Some(told) = told else {
        let name = &cluster.name;
        return State::Waits(if cluster.line.up {
            format!("cluster {name} has not begun yet")
        } else {
            format!("the line of cluster {name} is down")
        });
    };
    let text = told.message.clone();
    match (told.status, told.reason.as_str()) {
        (Status::True, _) => State::Done(text),
        (_, "Returned") => State::Undone(text),
        (Status::False | Status::Unknown, _) => State::Waits(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::report::{Condition, Phase};

    #[test]
    fn only_the_word_about_this_image_counts() {
        let says = |status, reason: &str, image: &str| {
            let told = Condition {
                kind: ConditionType::AgentCurrent,
                status,
                reason: reason.to_owned(),
                message: format!("{image}: so it is"),
                since: String::new(),
            };
            let mut cluster = wait::tests::cluster(Phase::Healthy, &[], vec![told]);
            cluster.line.up = true;
            state(&cluster, "b")
        };
        let waits = says(Status::True, "InForce", "a");
        assert!(matches!(waits, State::Waits(text) if text.contains("not begun")));
        let text = "b: so it is".to_owned();
        assert_eq!(
            says(Status::True, "InForce", "b"),
            State::Done(text.clone())
        );
        assert_eq!(
            says(Status::False, "Changing", "b"),
            State::Waits(text.clone())
        );
        assert_eq!(says(Status::False, "Returned", "b"), State::Undone(text));
    }
}
