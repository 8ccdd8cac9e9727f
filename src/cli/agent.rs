//! `linesman agent`: runs the agent in a cluster.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::exit::{Code, Failure};
use crate::agent;
use crate::agent::calls::Calls;
use crate::agent::engine::domain::Domain;
use crate::agent::fault::{Fault, Faults};
use crate::agent::link::Around;
use crate::lifetime;
use crate::manifests::{self, scope::Extent};
use crate::wire::api::{AgentBuild, FOLLOWS_KEYS};

const EXAMPLES: &str = "\
Examples:
  linesman agent      # in a Pod, as the adoption YAML runs it
  KUBECONFIG=kind.kubeconfig linesman agent --image registry.example.org/linesman-agent:0.1.0";

/// How a Pod asks the cluster's DNS.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// In a Pod, the cluster is the one that the Pod runs in; elsewhere, the one of KUBECONFIG.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The agent's namespace, with the Secret that the adoption YAML makes
    #[arg(long, env = "POD_NAMESPACE", default_value = manifests::NAMESPACE)]
    namespace: String,
    /// Where Argo CD lives, if it is the engine
    #[arg(long, env = manifests::ARGOCD_NAMESPACE, value_name = "NAME", default_value = "argocd")]
    #[arg(value_parser = manifests::engine_namespace)]
    argocd_namespace: String,
    /// The adoption YAML covers namespaces, not the whole cluster; which ones is in ConfigMap linesman-scope
    #[arg(long, env = "LINESMAN_SCOPED")]
    scoped: bool,
    /// This replica's name, as it holds the Lease [default: the host's name]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod: Option<String>,
    /// The image that this process runs from, to be reported
    #[arg(
        long,
        env = "LINESMAN_IMAGE",
        default_value = "",
        hide_default_value = true
    )]
    image: String,
    /// Where /livez, /readyz and /metrics are served
    #[arg(long, env = "LINESMAN_AGENT_LISTEN", value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// For tests: <step>-<before|after>:<marker file>, where this process kills itself once
    #[arg(long, env = "LINESMAN_FAULT_AT", hide = true)]
    fault_at: Option<Fault>,
}

pub async fn run(args: Args) -> Result<()> {
    let server = kube::Config::infer().await.map_err(|e| nowhere(&e))?;
    let calls = Calls::default();
    let kube = calls.client(server.clone())?;
    let health = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("listen on {}", args.listen))?;
    let pod = match args.pod {
        Some(pod) => pod,
        None => host_name()?,
    };
    let resolv_conf = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let config = agent::Config {
        domain: Domain::of(&resolv_conf, &args.namespace),
        namespace: args.namespace,
        engines: manifests::EngineNamespaces::new(args.argocd_namespace),
        extent: if args.scoped {
            Extent::Namespaces
        } else {
            Extent::Cluster
        },
        pod,
        build: AgentBuild {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            image: args.image,
            arch: std::env::consts::ARCH.to_owned(),
            features: vec![FOLLOWS_KEYS.to_owned()],
        },
        around: around(),
        server,
        calls,
        faults: Faults::new(args.fault_at),
    };
    info!(
        version = env!("CARGO_PKG_VERSION"),
        pod = config.pod,
        domain = %config.domain,
        "agent starts"
    );
    let stop = CancellationToken::new();
    let running = agent::run(config, kube, health, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        ended = &mut running => ended,
        signal = lifetime::signalled() => {
            signal?;
            info!("stopping");
            stop.cancel();
            running.await
        }
    }
}

/// The proxy that this process is told of by variables, where that is one that can be asked.
fn around() -> Around {
    let set = |name: &str| std::env::var_os(name)?.into_string().ok();
    Around::read(set).unwrap_or_else(|error| {
        warn!(%error, "HTTPS_PROXY is not taken, and the hub is dialled without; give the agent http://[user:password@]host[:port]");
        Around::default()
    })
}

fn nowhere(error: &kube::config::InferConfigError) -> Failure {
    Failure::new(
        Code::Failed,
        format!("find the cluster: neither a Pod's ServiceAccount nor a kubeconfig: {error}"),
        "run it in a Pod, as the YAML of 'linesman cluster add' does, or name a kubeconfig in KUBECONFIG",
    )
}

fn host_name() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    Ok(name
        .context("read the host's name; or give --pod")?
        .trim()
        .to_owned())
}
