//! `linesman kubeconfig`: contexts that reach clusters through the hub, as the user, without any key of the cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ArgGroup;
use serde_json::{Value, json};

use super::connect::{Access, Connect, is_stdin};
use super::exit::{Code, Failure};
use super::output::{counted, emit, progress_line};
use crate::client::{self, Client};
use crate::wire::id::ClusterName;

mod merge;

const EXAMPLES: &str = "\
Examples:
  linesman kubeconfig eu1 > eu1.kubeconfig
  linesman kubeconfig eu1 us1 --merge            # into $KUBECONFIG or ~/.kube/config
  kubectl --context linesman-eu1 get nodes

Contexts are called linesman-NAME. kubectl runs 'linesman credential' for the token, so the file holds no
secret. Merging leaves alone what is not of ours, and keeps what was set in our contexts (a namespace) and
clusters (a proxy-url). To name clusters a grant on each is enough; --all takes the role viewer.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("whom").required(true).args(["names", "all"]))]
#[command(group = ArgGroup::new("target").multiple(true).args(["merge", "into"]))]
pub(super) struct Args {
    /// The clusters to reach
    names: Vec<ClusterName>,
    /// All clusters of the hub
    #[arg(long)]
    all: bool,
    /// Merge into $KUBECONFIG or ~/.kube/config instead of printing
    #[arg(long)]
    merge: bool,
    /// Merge into this file instead of printing
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// When merging: make the first cluster's context the current one
    #[arg(long = "use", requires = "target")]
    switch: bool,
    #[command(flatten)]
    connect: Connect,
}

pub(super) async fn run(args: Args) -> Result<()> {
    let access = args.connect.access().await?;
    let client = access.user_client()?;
    if access.token_file.as_deref().is_some_and(is_stdin) {
        return Err(Failure::new(
            Code::Usage,
            "kubectl asks for the token again and again, and stdin has it once",
            "put the token into a file: --token-file FILE, or log in: linesman login",
        )
        .into());
    }
    let names = if args.all {
        every(&client).await?
    } else {
        for name in &args.names {
            reached(&client, name).await?;
        }
        args.names
    };
    let Some(first) = names.first() else {
        return Err(Failure::new(
            Code::NotFound,
            "the hub has no cluster",
            "add one: linesman cluster add NAME",
        )
        .into());
    };
    let ours = kubeconfig(&access, &names, &program());
    let path = match (args.into, args.merge) {
        (Some(path), _) => path,
        (None, true) => default_path()?,
        (None, false) => return emit(&crate::yaml::print(&ours)?),
    };
    let (path, displaced) = merge::put(path, &ours, args.switch).await?;
    for warning in displaced {
        progress_line(&format!("warning: {warning}"));
    }
    let are = if names.len() == 1 { "is" } else { "are" };
    progress_line(&format!(
        "{} {are} in {}",
        counted(names.len(), "context"),
        path.display()
    ));
    progress_line(&format!(
        "next:  kubectl --context {} get nodes",
        context(first)
    ));
    Ok(())
}

/// Whether it is the hub's word that the caller has no role for this.
fn lacks_role(error: &client::Error) -> bool {
    error.slug() == Some("not-allowed")
}

async fn every(client: &Client) -> Result<Vec<ClusterName>> {
    match client.clusters().await {
        Ok(clusters) => Ok(clusters.into_iter().map(|c| c.name).collect()),
        Err(error) if lacks_role(&error) => Err(no_list(&error).into()),
        Err(error) => Err(error.into()),
    }
}

/// The hub's own word on what helps comes first: of a role that has lapsed it is a login.
fn no_list(error: &client::Error) -> Failure {
    let next = format!(
        "{}; or name those that you have a grant on: linesman kubeconfig NAME; see: linesman grant list",
        error.next()
    );
    Failure::new(Code::Denied, error.to_string(), next)
}

/// That the cluster is there. A grant needs no role at the hub: who may not look at clusters is asked about by their grants.
async fn reached(client: &Client, name: &ClusterName) -> Result<()> {
    match client.cluster(name).await {
        Ok(_) => return Ok(()),
        Err(error) if lacks_role(&error) => {}
        Err(error) => return Err(error.into()),
    }
    let me = client.whoami().await?.user;
    let answer = client.check_grant(&me, name, None, None).await?;
    if answer.allowed {
        return Ok(());
    }
    let next = if answer.next.is_empty() {
        // A hub of before.
        "ask a hub admin for a grant".to_owned()
    } else {
        answer.next
    };
    Err(Failure::new(Code::Denied, answer.reason, next).into())
}

fn context(name: &ClusterName) -> String {
    format!("linesman-{name}")
}

/// One entry per cluster, one user for the hub, whose exec plugin is this program.
fn kubeconfig(access: &Access, names: &[ClusterName], program: &str) -> Value {
    let host = access.hub.trim_start_matches("https://").replace('/', "-");
    let user = format!("linesman@{host}");
    let clusters = names.iter().map(|name| {
        let mut cluster = json!({ "server": format!("{}/clusters/{name}", access.hub) });
        if let Some(ca) = &access.ca {
            cluster["certificate-authority-data"] = json!(STANDARD.encode(ca));
        }
        json!({ "name": context(name), "cluster": cluster })
    });
    let contexts = names
        .iter()
        .map(|name| json!({ "name": context(name), "context": { "cluster": context(name), "user": user } }));
    let mut plugin = vec![
        "credential".to_owned(),
        "--hub".to_owned(),
        access.hub.clone(),
    ];
    if let Some(file) = &access.token_file {
        plugin.extend(["--token-file".to_owned(), file.display().to_string()]);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters.collect::<Vec<_>>(),
        "contexts": contexts.collect::<Vec<_>>(),
        "current-context": names.first().map(context).unwrap_or_default(),
        "users": [{
            "name": user,
            "user": { "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": program,
                "args": plugin,
                "interactiveMode": "IfAvailable",
                "provideClusterInfo": false,
                "installHint": "put the program 'linesman' on the PATH; it gives kubectl the token for the hub",
            }},
        }],
    })
}

/// `linesman` where the PATH finds this very program, else its full path.
fn program() -> String {
    let Ok(this) = std::env::current_exe() else {
        return "linesman".to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|d| d.join("linesman"))
        .find(|p| p.is_file());
    let same = found
        .and_then(|p| fs::canonicalize(p).ok())
        .is_some_and(|p| fs::canonicalize(&this).is_ok_and(|t| t == p));
    if same {
        "linesman".to_owned()
    } else {
        this.display().to_string()
    }
}

fn default_path() -> Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG")
        && let Some(first) = std::env::split_paths(&list).find(|p| !p.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        let what = "~/.kube/config has no place: HOME is not set";
        Failure::new(Code::Failed, what, "name the file: --into FILE")
    })?;
    Ok(Path::new(&home).join(".kube/config"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::secret::Secret;
    use crate::wire::api::Problem;

    pub(super) fn access(token_file: Option<&str>) -> Access {
        Access {
            hub: "https://hub.example.org:8443".to_owned(),
            ca: Some("PEM".to_owned()),
            token: Some(Secret::new("lmt1.id.hunter2".to_owned())),
            expires_at: None,
            token_file: token_file.map(PathBuf::from),
            renewable: false,
            renews: false,
        }
    }

    pub(super) fn names(names: &[&str]) -> Vec<ClusterName> {
        names.iter().map(|n| n.parse().unwrap()).collect()
    }

    /// What brings a lapsed role back was left out.
    #[test]
    fn whoever_lacks_the_role_for_all_clusters_hears_what_the_hub_says_to_do() {
        let problem = Problem {
            kind: "urn:linesman:problem:not-allowed".to_owned(),
            title: String::new(),
            status: 403,
            detail: "ada lacks the role viewer; groups do not count".to_owned(),
            hop: "hub".to_owned(),
            next: "its user runs: linesman login HUB".to_owned(),
            request_id: "r1".to_owned(),
            more: BTreeMap::new(),
        };
        let error = client::Error::Refused {
            operation: "list clusters".to_owned(),
            problem: Box::new(problem),
        };
        assert!(lacks_role(&error));
        let told = no_list(&error);
        assert_eq!(
            (told.code, told.message.as_str(), told.next.as_str()),
            (
                Code::Denied,
                "list clusters: ada lacks the role viewer; groups do not count",
                "its user runs: linesman login HUB; or name those that you have a grant on: \
                 linesman kubeconfig NAME; see: linesman grant list"
            )
        );
    }

    #[test]
    fn a_kubeconfig_names_the_plugin_and_holds_no_token() {
        let config = kubeconfig(
            &access(Some("/run/token")),
            &names(&["eu1", "us1"]),
            "linesman",
        );
        assert!(!config.to_string().contains("hunter2"));
        assert_eq!(
            config["clusters"][1],
            json!({
                "name": "linesman-us1",
                "cluster": {
                    "server": "https://hub.example.org:8443/clusters/us1",
                    "certificate-authority-data": "UEVN",
                },
            })
        );
        assert_eq!(config["current-context"], "linesman-eu1");
        assert_eq!(
            config["users"][0]["user"]["exec"]["args"],
            json!([
                "credential",
                "--hub",
                "https://hub.example.org:8443",
                "--token-file",
                "/run/token"
            ])
        );
        assert_eq!(
            config["contexts"][0]["context"]["user"],
            config["users"][0]["name"]
        );
    }
}
