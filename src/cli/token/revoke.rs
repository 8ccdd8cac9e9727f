//! `linesman token revoke`: a token ends.

use anyhow::Result;
use serde_json::json;

use super::clusters;
use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Output, done, progress_line};
use crate::wire::api::ApiTokenView;

const EXAMPLES: &str = "\
Whoever has it is refused from then on; it cannot be put in force again, but another one can be made:
linesman token create.

Examples:
  linesman token revoke aB_9xQ             # its id: linesman token list
  linesman token revoke aB_9xQ --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The token's id
    // Random base64url: one in 64 begins with a hyphen.
    #[arg(allow_hyphen_values = true)]
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
    if !args.asks.yes {
        ask(&client.token(&args.id).await?, &args)?;
    }
    client.revoke_token(&args.id).await?;
    progress_line(&format!("token {} revoked", args.id));
    done(args.output.output, &args.id, &json!({"id": args.id}))
}

fn ask(token: &ApiTokenView, args: &Args) -> Result<()> {
    let id = &token.id;
    confirm(&Question {
        doing: format!("revoking token {id}"),
        means: means(token),
        word: (&token.user, "the name of its user"),
        unasked: whole_command(&["token", "revoke", id], &args.connect, &args.output),
    })
}

fn means(token: &ApiTokenView) -> Vec<String> {
    let scopes = match token.scopes.as_slice() {
        [] => "all that the user may".to_owned(),
        scopes => scopes.join(", "),
    };
    let end = match &token.expires_at {
        Some(at) => format!("until {at}"),
        None => "without an end".to_owned(),
    };
    vec![
        format!(
            "This ends token {} of {}, '{}': {scopes}, clusters {}, {end}.",
            token.id,
            token.user,
            token.title,
            clusters(token.clusters.as_ref()),
        ),
        "Whoever has it is refused from then on, and what runs by it through the hub is cut."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_was_good_for_is_shown() {
        let mut token = ApiTokenView {
            id: "aB_9xQ".to_owned(),
            user: "ci".to_owned(),
            title: "deploy".to_owned(),
            scopes: vec!["kube".to_owned()],
            clusters: Some(["eu1".parse().unwrap()].into()),
            created_by: "admin".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            expires_at: Some("2026-02-01T00:00:00Z".to_owned()),
            vouched_until: None,
        };
        assert_eq!(
            means(&token)[0],
            "This ends token aB_9xQ of ci, 'deploy': kube, clusters eu1, until 2026-02-01T00:00:00Z."
        );
        (token.scopes, token.clusters, token.expires_at) = (Vec::new(), None, None);
        assert_eq!(
            means(&token)[0],
            "This ends token aB_9xQ of ci, 'deploy': all that the user may, clusters all, without an end."
        );
    }
}
