//! `linesman cluster argocd-secret`: how an Argo CD elsewhere uses a cluster through the line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{emit, progress_line};
use crate::cli::session::Replacement;
use crate::wire::api::{ApiTokenView, NewApiToken};
use crate::wire::id::ClusterName;

const EXAMPLES: &str = "\
Examples:
  linesman user add deployer
  linesman grant add user:deployer --cluster eu1 --group admin
  linesman cluster argocd-secret eu1 --user deployer | kubectl apply -f -    # where that Argo CD runs

An Application of that Argo CD then has 'destination.name: eu1'. The Secret holds a token of the user for this
cluster only; the user's grants say what Argo CD may do there; 'linesman token revoke ID' ends it.

Run it again before the token's end, and apply what it prints. The previous token goes on until its own end,
so that nothing is lost in between, and its id is shown: revoke it once the new Secret is applied. The hub
tells of the end 14 days and 2 days before it (hub --notify-url), and 'linesman doctor' from 14 days on.

Argo CD watches each kind that there is in a cluster, all the time, and the hub counts these requests by user,
over all clusters: for many clusters take several users, or raise the hub's --max-requests-per-user.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The cluster to use
    name: ClusterName,
    /// As whom; a user of its own is best. Without it, yourself
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How long the token lives, 366d at most
    #[arg(long = "for", value_name = "TIME", default_value = "90d", value_parser = duration::parse)]
    lasts: Duration,
    /// A token that only reads: Argo CD then shows differences and syncs nothing
    #[arg(long)]
    read_only: bool,
    /// The namespace of that Argo CD
    #[arg(long, value_name = "NAME", default_value = "argocd")]
    namespace: String,
    /// Write the Secret to this file (0600) instead of stdout
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    client.cluster(&args.name).await?;
    let file = args.file.as_deref().map(Replacement::open).transpose()?;
    let scope = if args.read_only { "kube-read" } else { "kube" };
    let made = client
        .create_token(&NewApiToken {
            user: args.user,
            title: NewApiToken::argocd_title(&args.name),
            lasts: args.lasts.as_secs(),
            scopes: [scope.to_owned()].into(),
            clusters: Some([args.name.clone()].into()),
        })
        .await?;
    // Without this list the Secret is as good.
    let of_user = client.tokens(Some(made.view.user.as_str())).await;
    for line in told(&made.view, &of_user.unwrap_or_default()) {
        progress_line(&line);
    }
    let (name, namespace) = (&args.name, &args.namespace);
    let secret = secret(
        &access.hub,
        access.ca.as_deref(),
        name,
        namespace,
        &made.token,
    );
    let text = crate::yaml::print(&secret)?;
    match file {
        Some(file) => file.write(text.as_bytes()),
        None => emit(&text),
    }
}

/// The token that was made, and those of before, of all tokens of its user, that it is to take the place of.
fn told(made: &ApiTokenView, of_user: &[ApiTokenView]) -> Vec<String> {
    let until = |token: &ApiTokenView| token.expires_at.clone().unwrap_or_default();
    let former = of_user
        .iter()
        .filter(|token| token.id != made.id)
        .filter(|token| token.title == made.title && token.clusters == made.clusters);
    let (id, user) = (&made.id, &made.user);
    let mut lines = vec![format!(
        "token {id} of {user} until {}; end it with: linesman token revoke {id}",
        until(made)
    )];
    lines.extend(former.map(|token| {
        format!(
            "the previous token {} goes on until {}; once this Secret is applied, end it with: linesman token revoke {}",
            token.id,
            until(token),
            token.id
        )
    }));
    lines
}

/// Argo CD's declarative form of a cluster.
fn secret(hub: &str, ca: Option<&str>, name: &ClusterName, namespace: &str, token: &str) -> Value {
    let mut tls = json!({"insecure": false});
    if let Some(ca) = ca {
        tls["caData"] = json!(STANDARD.encode(ca));
    }
    let config = json!({"bearerToken": token, "tlsClientConfig": tls});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": format!("linesman-{name}"), "namespace": namespace,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {
            "name": name.as_str(),
            "server": format!("{hub}/clusters/{name}"),
            "config": config.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_names_the_line_the_token_and_the_hubs_ca() {
        let hub = "https://hub.example.org:8443";
        let eu1 = "eu1".parse().unwrap();
        let made = secret(hub, Some("PEM"), &eu1, "gitops", "TOKEN");
        assert_eq!(
            made["stringData"],
            json!({
                "name": "eu1",
                "server": "https://hub.example.org:8443/clusters/eu1",
                "config": r#"{"bearerToken":"TOKEN","tlsClientConfig":{"caData":"UEVN","insecure":false}}"#,
            })
        );
        assert_eq!(
            made["metadata"],
            json!({
                "name": "linesman-eu1", "namespace": "gitops",
                "labels": {"argocd.argoproj.io/secret-type": "cluster"},
            })
        );
    }

    /// The former Secret stays in use until somebody applies the new one.
    #[test]
    fn the_token_of_before_goes_on_and_is_named() {
        let token = |id: &str, title: &str| ApiTokenView {
            id: id.to_owned(),
            user: "deployer".to_owned(),
            title: title.to_owned(),
            scopes: vec!["kube".to_owned()],
            clusters: Some(["eu1".parse().unwrap()].into()),
            created_by: "admin".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            expires_at: Some(format!("2026-0{}-01T00:00:00Z", id.len())),
            vouched_until: None,
        };
        let title = NewApiToken::argocd_title(&"eu1".parse().unwrap());
        let (made, former) = (token("newer", &title), token("old", &title));
        let all = [made.clone(), token("ci", "deploy"), former];
        let first = "token newer of deployer until 2026-05-01T00:00:00Z; end it with: linesman token revoke newer";
        let second = "the previous token old goes on until 2026-03-01T00:00:00Z; once this Secret is applied, end it with: \
                      linesman token revoke old";
        assert_eq!(told(&made, &all), [first, second]);
        assert_eq!(told(&made, &[]), [first]);
    }
}
