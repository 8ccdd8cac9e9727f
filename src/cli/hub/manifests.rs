//! `linesman hub manifests`: the YAML of the hub itself, for who runs it in Kubernetes.

use std::time::Duration;

use anyhow::Result;

use super::address;
use super::config::{DRAIN, DRAIN_AMONG_OTHERS};
use super::values::agent_image;
use crate::cli::duration;
use crate::cli::exit::{Code, Failure};
use crate::cli::output::emit;
use crate::client;
use crate::hub::adoption::values::is_secret;
use crate::hub::image::pin;
use crate::manifests::hub::{
    GIT_PORT, HubValues, NAMESPACE, Ports, Reach, Tls, namespace, objects,
};
use crate::manifests::to_yaml;

mod settings;
mod sizes;

use settings::settings;
use sizes::{memory, storage};

const EXAMPLES: &str = "\
Namespace, ServiceAccount (without any right in that cluster), NetworkPolicy, Service, and a StatefulSet that
meets Pod Security 'restricted'. It is printed from the flags alone: no hub and no cluster is asked. Both
images are of your own registry (docker build --target hub, --target agent).

  names        Clusters and people reach --url and --git-url by the one Service, whose ports are those of the
               two URLs. Have DNS lead there; --service-annotation is for what does that by itself.
  settings     --set takes each variable of 'linesman hub --help' that no flag here is for, and the usual
               HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE. Secrets and CAs that they name are files:
               --mount-secret NAME puts each key of it to /etc/linesman/secrets/NAME/KEY.
  replicas     Several need PostgreSQL and one volume for all (ReadWriteMany, with working locks).

docs/operating.md, 'The hub in Kubernetes', has the first login, backups, upgrades, and what not to do.

Examples:
  linesman hub manifests --url https://hub.example.org --image registry.example.org/linesman-hub:0.1.0 \\
    --agent-image registry.example.org/linesman-agent:0.1.0 > hub.yaml
  kubectl apply -f hub.yaml
  linesman hub manifests … --tls-secret hub-tls --mount-secret oidc \\
    --set LINESMAN_OIDC_ISSUER=https://login.example.org \\
    --set LINESMAN_OIDC_CLIENT_SECRET_FILE=/etc/linesman/secrets/oidc/client-secret
  linesman hub manifests … --replicas 3 --database-secret hub-database --storage-class cephfs";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The hub's address as clusters and people reach it
    #[arg(long, value_name = "URL")]
    url: String,
    /// The hub's image, from a registry that this cluster can pull from
    #[arg(long, value_name = "REF", value_parser = image)]
    image: String,
    /// The agent's image in adoption YAML, from a registry that all clusters can pull from
    #[arg(long, value_name = "REF", value_parser = agent_image)]
    agent_image: String,
    /// The built-in Git's address as clusters and people reach it; without it, port 2222 of the host of --url
    #[arg(long, value_name = "URL")]
    git_url: Option<String>,
    /// The hub's namespace, which nothing else should be in
    #[arg(long, value_name = "NAME", value_parser = namespace, default_value = NAMESPACE)]
    namespace: String,
    /// Secret of that namespace to pull the hub's image with
    #[arg(long, value_name = "NAME", value_parser = name)]
    image_pull_secret: Option<String>,
    /// How others get in: `LoadBalancer`, from anywhere, with their own addresses in the audit; `NodePort`, at each node, on the ports of
    /// the URLs where they are from 30000 to 32767; `ClusterIP`, by what you have before it, which passes TCP on
    #[arg(
        long,
        value_name = "TYPE",
        value_enum,
        ignore_case = true,
        default_value = "LoadBalancer"
    )]
    service: ServiceType,
    /// Annotation of the Service; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    service_annotation: Vec<(String, String)>,
    /// Secret with `tls.crt` and `tls.key`, a certificate for the host of --url, read again when it changes; without it, one from
    /// the hub's own CA
    #[arg(long, value_name = "NAME", value_parser = name)]
    tls_secret: Option<String>,
    /// Clusters and people are to trust `ca.crt` of that Secret; without it, they use their systems' roots
    #[arg(long, requires = "tls_secret")]
    tls_ca: bool,
    /// Secret whose key `url` is the URL of a PostgreSQL database for the hub's records; without it, SQLite on the volume
    #[arg(long, value_name = "NAME", value_parser = name)]
    database_secret: Option<String>,
    /// How many replicas run, 9 at most; more than one need --database-secret, and a --storage-class whose volumes many nodes can
    /// mount
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    replicas: u16,
    /// Size of the volume with database, keys and catalog, in Mi, Gi or Ti; 1Gi at least
    #[arg(long, value_name = "SIZE", default_value = "20Gi", value_parser = storage)]
    storage: String,
    /// The volume's storage class; without it, the cluster's usual one
    #[arg(long, value_name = "NAME", value_parser = name)]
    storage_class: Option<String>,
    /// What the hub's container may take, in Mi or Gi; 256Mi at least, which it asks for
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = memory)]
    memory: String,
    /// How long running requests have to finish when the hub ends; 0 = none. Without it 10s, or 10m among other replicas
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    drain: Option<Duration>,
    /// Secret that the hub finds as files in `/etc/linesman/secrets/NAME`; may be given several times
    #[arg(long, value_name = "NAME", value_parser = name)]
    mount_secret: Vec<String>,
    /// One more of the hub's variables, such as `LINESMAN_AUDIT_KEEP=90d`; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
}

/// [`Reach`] as a flag's value.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ServiceType {
    #[value(name = "LoadBalancer")]
    LoadBalancer,
    #[value(name = "NodePort")]
    NodePort,
    #[value(name = "ClusterIP")]
    ClusterIp,
}

impl From<ServiceType> for Reach {
    fn from(word: ServiceType) -> Self {
        match word {
            ServiceType::LoadBalancer => Self::LoadBalancer,
            ServiceType::NodePort => Self::NodePort,
            ServiceType::ClusterIp => Self::ClusterIp,
        }
    }
}

pub(super) fn run(args: Args) -> Result<()> {
    emit(&to_yaml(&objects(&values(args)?)))
}

fn values(args: Args) -> Result<HubValues> {
    address::https(&args.url)?;
    let url = client::address(&args.url)?;
    let host = url.host_str().unwrap_or_default();
    let git_url = args.git_url;
    let git_url = address::git(&git_url.unwrap_or_else(|| format!("ssh://git@{host}:{GIT_PORT}")))?;
    let ports = Ports {
        https: url.port_or_known_default().unwrap_or(443),
        git: git_port(&git_url),
    };
    if ports.https == ports.git {
        let text = format!("--url and --git-url are both on port {}", ports.git);
        return Err(usage(text, "one Service has both: give one of them another port").into());
    }
    let several = args.replicas > 1;
    if several && args.database_secret.is_none() {
        let text = format!(
            "--replicas {} share one database, and SQLite is for one hub alone",
            args.replicas
        );
        let next = "give --database-secret with the Secret that has a PostgreSQL database's URL";
        return Err(usage(text, next).into());
    }
    let usual = if several { DRAIN_AMONG_OTHERS } else { DRAIN };
    let ca = args.tls_ca;
    Ok(HubValues {
        namespace: args.namespace,
        image: args.image,
        image_pull_secret: args.image_pull_secret.unwrap_or_default(),
        agent_image: args.agent_image,
        url: url.as_str().trim_end_matches('/').to_owned(),
        git_url,
        ports,
        reach: args.service.into(),
        service_annotations: args.service_annotation.into_iter().collect(),
        tls: args.tls_secret.map(|secret| Tls { secret, ca }),
        database: args.database_secret,
        replicas: args.replicas,
        storage: args.storage,
        storage_class: args.storage_class,
        memory: args.memory,
        drain: args.drain.unwrap_or(usual),
        secrets: args.mount_secret.into_iter().collect(),
        settings: settings(&args.settings)?,
    })
}

/// Of a URL that [`address::git`] took.
fn git_port(url: &str) -> u16 {
    let url: Option<http::Uri> = url.parse().ok();
    url.and_then(|url| url.port_u16()).unwrap_or(22)
}

fn image(text: &str) -> Result<String, String> {
    match pin(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("it is no image; write registry.example.org/linesman-hub:0.1.0".to_owned()),
    }
}

/// Of a Secret or a storage class.
fn name(text: &str) -> Result<String, String> {
    if is_secret(text) {
        return Ok(text.to_owned());
    }
    Err("it is no name: a-z, 0-9, '-' and '.' inside, at most 253".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn usage(text: String, next: &str) -> Failure {
    Failure::new(Code::Usage, text, next)
}

#[cfg(test)]
mod tests;
