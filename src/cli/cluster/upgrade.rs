//! `linesman cluster upgrade`: another image for a cluster's agent, and how that goes.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::follow::{self, Wish};
use crate::cli::output::progress_line;
use crate::wire::api::AgentImageRequest;
use crate::wire::id::ClusterName;
use crate::wire::report::ConditionType;

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
    let name = &args.name;
    let wish = Wish {
        kind: ConditionType::AgentCurrent,
        about: format!("{image}: "),
        until: "the new agent is heard",
        undone: format!(
            "mend what it says; to try the same image again: linesman cluster upgrade {name} --withdraw, then --image"
        ),
    };
    follow::follow(&client, name, &wish, args.wait).await
}
