//! `linesman cluster rotate`: a cluster replaces its keys.

use std::time::Duration;

use anyhow::Result;

use crate::cli::connect::Connect;
use crate::cli::duration;
use crate::cli::output::{Output, progress_line};
use crate::cli::wait::{self, Found, Patience};
use crate::wire::api::{KeyView, RotateRequest, RotateWish, ToldCluster};
use crate::wire::id::ClusterName;
use crate::wire::report::ConditionType;

const EXAMPLES: &str = "\
The new deploy key is made in the cluster, registered at the Git host, and proven by the agent before the
engine gets it; the old one is deleted there when the engine has fetched with the new one. A new identity key
is signed by the old one; the line moves to it, and the old one ends, without a request that fails. An agent
that is away begins when it is back, one in a maintenance window when that is over. By itself this happens at
the age that the hub was given with --rotate-keys-after.

Examples:
  linesman cluster rotate eu1 --deploy-key --wait
  linesman cluster rotate eu1 --deploy-key --identity --wait=15m";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("keys").required(true).multiple(true).args(["deploy_key", "identity"]))]
pub(in crate::cli) struct Args {
    /// The cluster's name
    name: ClusterName,
    /// Replace the key that the engine reads the catalog with
    #[arg(long)]
    deploy_key: bool,
    /// Replace the key that proves the cluster to the hub
    #[arg(long)]
    identity: bool,
    /// Then wait until the old key is gone: 5m at most, or TIME
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

pub(in crate::cli) async fn run(args: Args) -> Result<()> {
    let client = args.connect.client().await?;
    let asked = RotateRequest {
        deploy_key: args.deploy_key,
        identity: args.identity,
    };
    let replaced = client.rotate(&args.name, asked).await?;
    for (kind, old) in named(&replaced) {
        progress_line(&format!(
            "cluster {} is to replace its {kind} key {old}",
            args.name
        ));
    }
    let Some(limit) = args.wait else {
        progress_line(&format!(
            "see how it goes: linesman cluster show {}",
            args.name
        ));
        return super::stands(&client, &args.name, args.output.output).await;
    };
    let next = format!(
        "the rotation goes on by itself; look closer: linesman doctor --cluster {}",
        args.name
    );
    let patience = Patience { limit, next: &next };
    let asked = wait::until("it is done", patience, async || {
        let cluster = client.cluster(&args.name).await?;
        let lack = lacks(&cluster, &replaced);
        Ok(Found::of(cluster, lack))
    });
    let (cluster, took) = asked.await?;
    for (kind, _) in named(&replaced) {
        let new = in_force(&cluster, kind).next();
        let new = new.map_or("", |key| key.fingerprint.as_str());
        progress_line(&format!("the {kind} key is {new} now ({took:.1} s)"));
    }
    super::stands(&client, &args.name, args.output.output).await
}

fn named(wish: &RotateWish) -> impl Iterator<Item = (&'static str, &String)> {
    [("deploy", &wish.deploy_key), ("identity", &wish.identity)]
        .into_iter()
        .filter_map(|(kind, key)| Some((kind, key.as_ref()?)))
}

fn in_force<'a>(cluster: &'a ToldCluster, kind: &'a str) -> impl Iterator<Item = &'a KeyView> {
    let of_kind = cluster.keys.iter().filter(move |k| k.kind == kind);
    of_kind.filter(|k| k.state != "revoked")
}

/// What a rotation still waits for; None = it is over.
fn lacks(cluster: &ToldCluster, replaced: &RotateWish) -> Option<String> {
    let (kind, old) = named(replaced)
        .find(|(kind, old)| in_force(cluster, kind).any(|k| k.fingerprint == **old))?;
    let new = in_force(cluster, kind).find(|k| k.fingerprint != *old);
    Some(match new {
        None => {
            let lack = format!("the {kind} key {old} has no successor yet");
            super::awaits(cluster, lack)
        }
        Some(new) => {
            let told = cluster
                .conditions
                .iter()
                .find(|c| c.kind == ConditionType::DeployKeyRegistered && c.reason == "Rotating");
            match told.filter(|_| kind == "deploy") {
                Some(told) => told.message.clone(),
                None => format!("{} is registered and {old} still stands", new.fingerprint),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::cluster::wait;
    use crate::wire::report::Phase;

    fn key(kind: &str, fingerprint: &str, state: &str) -> KeyView {
        KeyView {
            kind: kind.to_owned(),
            fingerprint: fingerprint.to_owned(),
            public: String::new(),
            state: state.to_owned(),
            created_at: None,
        }
    }

    #[test]
    fn a_rotation_is_over_when_the_old_key_is_gone() {
        let replaced = RotateWish {
            deploy_key: Some("SHA256:old".to_owned()),
            identity: None,
        };
        let lack = |up: bool, keys: &[KeyView]| {
            let mut cluster = wait::tests::cluster(Phase::Healthy, &[], Vec::new());
            cluster.line.up = up;
            cluster.keys = keys.to_vec();
            lacks(&cluster, &replaced)
        };
        let identity = key("identity", "SHA256:id", "active");
        let [old, new] = ["old", "new"].map(|k| key("deploy", &format!("SHA256:{k}"), "active"));
        let before = [identity.clone(), old.clone()];
        let by_https = "the deploy key SHA256:old has no successor yet; the line of cluster eu1 is down, and its agent takes orders \
                        with its reports by HTTPS";
        assert_eq!(lack(false, &before).unwrap(), by_https);
        assert!(lack(true, &before).unwrap().contains("no successor"));
        let retiring = KeyView {
            state: "retiring".to_owned(),
            ..old.clone()
        };
        let both = [identity.clone(), retiring, new.clone()];
        assert!(lack(true, &both).unwrap().contains("still stands"));
        let gone = KeyView {
            state: "revoked".to_owned(),
            ..old
        };
        assert_eq!(lack(true, &[identity, gone, new]), None);
    }
}
