//! `linesman grant revoke`: a grant is taken back.

use anyhow::Result;

use super::{clusters, joined, limits, until};
use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Output, done, progress_line};
use crate::wire::api::GrantView;

const EXAMPLES: &str = "\
What runs by it through the hub is cut. It cannot be put in force again, but another one can be given:
linesman grant add.

Examples:
  linesman grant revoke 0197a1b2-…             # its id: linesman grant list
  linesman grant revoke 0197a1b2-… --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The grant's id
    id: String,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let grant = client.grant(&args.id).await?;
    if !args.asks.yes {
        ask(&grant, &args)?;
    }
    client.revoke_grant(&grant.id, grant.rev).await?;
    progress_line(&format!(
        "grant {} of {} on {} revoked",
        grant.id,
        grant.subject,
        clusters(&grant.clusters)
    ));
    done(args.output.output, &grant.id, &grant)
}

fn ask(grant: &GrantView, args: &Args) -> Result<()> {
    let id = &grant.id;
    confirm(&Question {
        doing: format!("revoking grant {id}"),
        means: means(grant),
        word: (
            &grant.subject,
            "whom it is for, as user:NAME or group:NAME,",
        ),
        unasked: whole_command(&["grant", "revoke", id], &args.connect, &args.output),
    })
}

fn means(grant: &GrantView) -> Vec<String> {
    let end = match &grant.expires_at {
        Some(_) if !grant.over => format!("until {}", until(grant)),
        _ => until(grant),
    };
    let parts = [
        ("clusters ", clusters(&grant.clusters)),
        ("groups ", joined(&grant.groups)),
        ("as ", joined(&grant.act_as)),
        ("", limits(grant)),
        ("", end),
        ("reason ", grant.reason.clone()),
    ];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    let parts: Vec<String> = parts
        .map(|(what, value)| format!("{what}{value}"))
        .collect();
    vec![
        format!("This takes from {}: {}.", grant.subject, parts.join("; ")),
        "What runs by it through the hub is cut.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::grant;
    use super::*;
    use crate::wire::api::ClusterChoice;

    #[test]
    fn what_a_grant_gave_is_shown() {
        let all = grant("group:sre");
        assert_eq!(
            means(&all)[0],
            "This takes from group:sre: clusters all; no end."
        );
        let some = GrantView {
            clusters: ClusterChoice::Labels("env=prod".to_owned()),
            groups: ["edit".to_owned(), "view".to_owned()].into(),
            act_as: ["user:bob".to_owned()].into(),
            namespaces: Some(["shop".to_owned()].into()),
            read_only: true,
            reason: "TICKET-1".to_owned(),
            ..all
        };
        assert_eq!(
            means(&some)[0],
            "This takes from group:sre: clusters with env=prod; groups edit,view; as user:bob; read-only, in shop; \
             no end; reason TICKET-1."
        );
    }
}
