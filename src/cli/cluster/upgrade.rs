//! `linesman cluster upgrade`: another image for the agents of clusters, and how that goes.

use std::time::Duration;

use anyhow::Result;

use self::rollout::Rollout;
use super::list;
use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::follow::{self, Wish};
use crate::cli::output::{Format, Output, document, emit, progress_line};
use crate::client::Client;
use crate::hub::selector::Selector;
use crate::wire::api::AgentImageRequest;
use crate::wire::id::ClusterName;
use crate::wire::report::ConditionType;

mod rollout;

const EXAMPLES: &str = "\
The agent gives its Deployment the new image and goes on with its work, the line up, until a Pod of that image
asks for it. Where the hub has not acknowledged a report of the new one in time, the previous image is back
within 120 s, whether the hub is there or not, and 'linesman cluster show' tells why (AgentCurrent). An image
that was taken back so is not tried again until another is requested: --withdraw it, then give it anew.

Of several clusters one is upgraded after the other, by name. The first whose new agent is not heard ends it
(exit code 6, or 1 where the image was taken back): the clusters behind it keep what they run. Those that are
not there now (offline, or not adopted yet), and those where nothing begins (a maintenance window, or
heal: off), are left out and named at the end (exit code 1). Run again, it goes on where it stopped. With
-o json or yaml, one list has the clusters that were upgraded, also where one ended it.

Examples:
  linesman cluster upgrade eu1 --image registry.example.org/linesman-agent@sha256:4f1c… --wait
  linesman cluster upgrade -l stage=test --image registry.example.org/linesman-agent@sha256:4f1c…
  linesman cluster upgrade -l 'stage!=test,!frozen' --image registry.example.org/linesman-agent@sha256:4f1c…
  linesman cluster upgrade --all --image registry.example.org/linesman-agent@sha256:4f1c…
  linesman cluster upgrade eu1 --withdraw";

/// How long each of several clusters has where nobody said.
const EACH: Duration = Duration::from_mins(5);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// The image that their agents shall run, REPOSITORY@sha256:…
    #[arg(long, value_name = "REF", required_unless_present = "withdraw")]
    image: Option<String>,
    /// Take an image by its tag, which can come to name another one
    #[arg(long, requires = "image", conflicts_with = "withdraw")]
    allow_tag: bool,
    /// No image is requested any more: an agent stays with the one that it runs, and there is nothing to wait for
    #[arg(long, conflicts_with = "image")]
    withdraw: bool,
    /// Then wait until the new agent is heard: 5m at most, or TIME; of several clusters, each is waited for in any case
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration::parse, requires = "image", conflicts_with = "withdraw")]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

/// Which clusters are meant.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Whom {
    /// The cluster's name
    name: Option<ClusterName>,
    /// All clusters whose labels match, as for kubectl -l, one after the other; may be given again, and all have to match
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = list::selector)]
    selector: Vec<Selector>,
    /// All clusters of the hub, one after the other
    #[arg(long)]
    all: bool,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let format = args.output.output;
    let asked = AgentImageRequest {
        image: args.image,
        allow_tag: args.allow_tag,
    };
    if let Some(name) = &args.whom.name {
        upgrade(&client, name, &asked, args.wait).await?;
        return super::stands(&client, name, format).await;
    }
    let clusters = client.clusters().await?;
    let wait = asked.image.as_ref().map(|_| args.wait.unwrap_or(EACH));
    let rollout = Rollout::of(clusters, &args.whom.selector, wait.is_some());
    if rollout.is_empty() {
        let what = if args.whom.all {
            "the hub has no clusters".to_owned()
        } else {
            format!("no cluster matches {}", list::written(&args.whom.selector))
        };
        let next = "see them: linesman cluster list -o wide";
        return Err(Failure::new(Code::NotFound, what, next).into());
    }
    let mut stand = Vec::new();
    let ended = rollout.run(async |name| {
        upgrade(&client, name, &asked, wait).await?;
        // It is upgraded, whatever comes of this.
        let told: Result<()> = match format {
            Format::Json | Format::Yaml => match client.cluster(name).await {
                Ok(cluster) => {
                    stand.push(cluster);
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
            Format::Table | Format::Wide | Format::Name => {
                super::stands(&client, name, format).await
            }
        };
        Ok(told)
    });
    let ended = ended.await;
    // One list, also of those before the one that ended it.
    let told = match format {
        Format::Json | Format::Yaml => document(format, &stand).and_then(|text| emit(&text)),
        Format::Table | Format::Wide | Format::Name => Ok(()),
    };
    ended.and(told)
}

async fn upgrade(
    client: &Client,
    name: &ClusterName,
    asked: &AgentImageRequest,
    wait: Option<Duration>,
) -> Result<()> {
    let told = client.set_agent_image(name, asked).await?;
    let Some(image) = told.image else {
        progress_line(&format!(
            "the agent of cluster {name} stays with the image that it runs"
        ));
        return Ok(());
    };
    progress_line(&format!("the agent of cluster {name} is to run {image}"));
    let wish = Wish {
        kind: ConditionType::AgentCurrent,
        about: format!("{image}: "),
        number: told.wish,
        until: "the new agent is heard",
        undone: format!(
            "mend what it says; to try the same image again: linesman cluster upgrade {name} --withdraw, then --image"
        ),
    };
    follow::follow(client, name, &wish, wait).await
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// They were taken, and meant nothing.
    #[test]
    fn what_is_said_of_an_image_is_refused_where_none_is_wished_any_more() {
        let read = |given: &[&str]| {
            let words = ["upgrade", "eu1"].iter().chain(given).copied();
            let line = Line::try_parse_from(words);
            line.map(|Line { args }| args.withdraw)
                .map_err(|error| error.kind())
        };
        for beside in ["--wait", "--wait=1m", "--allow-tag"] {
            let refused = Err(ErrorKind::ArgumentConflict);
            assert_eq!(read(&["--withdraw", beside]), refused, "{beside}");
            assert_eq!(read(&["--image", "a:1", beside]), Ok(false), "{beside}");
        }
        assert_eq!(read(&["--withdraw"]), Ok(true));
    }
}
