//! `linesman user remove`: a user goes, with all that lets them in.

use anyhow::Result;
use serde_json::json;

use crate::cli::confirm::{Question, Yes, confirm, whole_command};
use crate::cli::connect::Connect;
use crate::cli::output::{Output, counted, done, progress_line};
use crate::client::GrantFilter;
use crate::wire::api::{GrantView, UserView};

const EXAMPLES: &str = "\
The user's sessions, tokens, SSH keys and own grants end for good, and what runs through the hub by them is
cut; whom an identity provider knows is kept out, whatever it says. A user that is added again under the name
has none of that back. Grants of groups stay as they are. To take away a part only: linesman user set, token
revoke, grant revoke.

Examples:
  linesman user remove ada
  linesman user remove ada --yes       # in scripts";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The user's name
    name: String,
    #[command(flatten)]
    asks: Yes,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let mut seen = None;
    if !args.asks.yes {
        let user = client.user(&args.name).await?;
        ask(&user, &client.grants(&GrantFilter::default()).await?, &args)?;
        // What was shown is what goes: a user who was changed meanwhile is looked at again.
        seen = Some(user.rev);
    }
    client.remove_user(&args.name, seen).await?;
    progress_line(&format!("user {} removed", args.name));
    done(args.output.output, &args.name, &json!({"name": args.name}))
}

fn ask(user: &UserView, grants: &[GrantView], args: &Args) -> Result<()> {
    let name = &user.name;
    confirm(&Question {
        doing: format!("removing user {name}"),
        means: means(user, grants),
        word: (name, "the user's name"),
        unasked: whole_command(&["user", "remove", name], &args.connect, &args.output),
    })
}

fn means(user: &UserView, grants: &[GrantView]) -> Vec<String> {
    let name = &user.name;
    let subject = format!("user:{name}");
    let own = grants.iter().filter(|g| g.subject == subject && !g.over);
    let roles = match super::roles(user).as_slice() {
        [] => "no role".to_owned(),
        roles => roles.join(", "),
    };
    let mut lines = vec![
        format!(
            "This ends user {name} ({roles}): {}, {}, all sessions and SSH keys.",
            counted(user.tokens as usize, "token"),
            counted(own.count(), "grant"),
        ),
        "What runs through the hub by them is cut, and none of it comes back with another user of the name."
            .to_owned(),
    ];
    if let Some(provider) = &user.provider {
        lines.push(format!("A login at {provider} lets {name} in no more."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::grant::tests::grant;
    use crate::wire::api::RoleByGroup;

    #[test]
    fn what_a_user_loses_is_counted() {
        let mut user = UserView {
            name: "ada".to_owned(),
            roles: vec!["operator".to_owned(), "auditor".to_owned()],
            roles_by_group: Vec::new(),
            groups: vec!["sre".to_owned()],
            tokens: 2,
            provider: None,
            vouched_at: None,
            rev: 3,
        };
        let over = GrantView {
            over: true,
            ..grant("user:ada")
        };
        let grants = [
            grant("user:ada"),
            over,
            grant("user:adam"),
            grant("group:sre"),
        ];
        assert_eq!(
            means(&user, &grants),
            [
                "This ends user ada (operator, auditor): 2 tokens, 1 grant, all sessions and SSH keys.",
                "What runs through the hub by them is cut, and none of it comes back with another user of the name.",
            ]
        );
        user.roles_by_group = [("admin", true), ("viewer", false)]
            .map(|(role, in_force)| RoleByGroup {
                role: role.to_owned(),
                group: "sre".to_owned(),
                in_force,
            })
            .into();
        assert_eq!(
            super::super::roles(&user),
            [
                "operator",
                "auditor",
                "admin (by sre)",
                "viewer (by sre, not in force)"
            ]
        );
        user.roles.clear();
        user.roles_by_group.clear();
        user.provider = Some("https://id.example.org".to_owned());
        let lines = means(&user, &[]);
        assert!(
            lines[0].contains("(no role): 2 tokens, 0 grants"),
            "{lines:?}"
        );
        assert_eq!(
            lines[2],
            "A login at https://id.example.org lets ada in no more."
        );
    }
}
