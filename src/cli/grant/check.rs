//! `linesman grant check`: whether a user gets through, and which grant says so.

use anyhow::Result;

use super::{ActAsArgs, above, clusters, joined, limits, unbound};
use crate::cli::connect::Connect;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{Format, Output, document, emit, progress_line, rows_text};
use crate::wire::api::GrantCheck;
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Ends with 0 where the user gets through, with 4 where not.

Examples:
  linesman grant check ada eu1
  linesman grant check ada eu1 --method DELETE --path /api/v1/namespaces/shop/pods/web-0";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The user's name
    user: String,
    /// The cluster's name
    cluster: ClusterName,
    /// A path of the Kubernetes API: whether this very request would pass
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The request's method
    #[arg(long, value_name = "METHOD", default_value = "GET", requires = "path")]
    method: String,
    #[command(flatten)]
    acting: ActAsArgs,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let request = args
        .path
        .as_deref()
        .map(|path| (args.method.as_str(), path));
    let names: Vec<String> = args.acting.names().into_iter().collect();
    let act_as = (!names.is_empty()).then(|| names.join(","));
    let answer = client
        .check_grant(&args.user, &args.cluster, request, act_as)
        .await?;
    emit(&match args.output.output {
        Format::Json | Format::Yaml => document(args.output.output, &answer)?,
        Format::Name => format!("{}\n", if answer.allowed { "yes" } else { "no" }),
        Format::Table | Format::Wide => explained(&answer),
    })?;
    let (cluster, access) = (&answer.cluster, answer.access.as_deref());
    let acts_in = answer.acts_in.iter();
    let groups = acts_in.filter_map(|group| {
        let group = group.strip_prefix("linesman:")?;
        unbound(group).or_else(|| above(group, cluster, access))
    });
    for warning in groups {
        progress_line(&format!("warning: {warning}"));
    }
    if answer.allowed {
        return Ok(());
    }
    let next = if answer.next.is_empty() {
        // A hub of before.
        "ask a hub admin for a grant".to_owned()
    } else {
        answer.next
    };
    Err(Failure::new(
        Code::Denied,
        format!("{} does not get through: {}", answer.user, answer.reason),
        next,
    )
    .into())
}

fn explained(answer: &GrantCheck) -> String {
    let verdict = if answer.allowed { "yes" } else { "no" };
    let facts = [
        ("allowed", format!("{verdict}, {}", answer.reason)),
        ("in groups", in_groups(answer)),
        ("acts as", answer.acts_as.clone().unwrap_or_default()),
        ("acts in", answer.acts_in.join(", ")),
    ];
    let facts = facts
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| vec![key.to_owned(), value]);
    let mut text = rows_text(None, facts);
    if !answer.opinions.is_empty() {
        let header = ["GRANT", "SUBJECT", "CLUSTERS", "GROUPS", "LIMITS", "SAYS"];
        let rows = answer.opinions.iter().map(|o| {
            let says = if o.says {
                "yes".to_owned()
            } else {
                format!("no: {}", o.why)
            };
            vec![
                o.grant.id.clone(),
                o.grant.subject.clone(),
                clusters(&o.grant.clusters),
                joined(&o.grant.groups),
                limits(&o.grant),
                says,
            ]
        });
        text += "\n";
        text += &rows_text(Some(header.map(str::to_owned).to_vec()), rows);
    }
    text
}

fn in_groups(answer: &GrantCheck) -> String {
    match &answer.groups_lapsed {
        Some(why) => format!("none: {why}"),
        None => answer.user_groups.join(", "),
    }
}
