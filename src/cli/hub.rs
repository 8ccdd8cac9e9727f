//! `linesman hub`: flags and environment become the hub's configuration; says where things are, then serves.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::duration;
use super::exit::{Code, Failure};
use super::output::emit;
use crate::hub::image;
use crate::hub::serve::Cidr;
use crate::hub::{Listeners, serve};
use crate::lifetime;

mod address;
mod audit;
mod banner;
mod config;
pub(super) mod database;
mod files;
mod grants;
mod manifests;
mod notify;
mod oidc;
mod requests;
mod rotate;
mod values;

use audit::AuditArgs;
use banner::banner;
use config::config;
use database::DatabaseArgs;
use grants::GrantArgs;
use notify::NotifyArgs;
use oidc::OidcArgs;
use requests::RequestArgs;
use values::{agent_image, offline_after, refused};

const EXAMPLES: &str = "\
Examples:
  linesman hub --data ./hub --agent-image registry.example.org/linesman-agent:0.1.0
  linesman hub --url https://hub.example.org --tls-cert tls.crt --tls-key tls.key --agent-image …

The first start makes a CA, the signing keys, the catalog and an admin token in the data directory, and prints
how to log in. Clusters need to reach --url and --git-url; nothing needs to reach a cluster. It needs 'git' in
/usr/bin, /usr/local/bin or /bin. SIGTERM ends it: running requests get --drain to finish, or until a second
SIGTERM.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Directory of the database (but with --database-url-file), keys, certificates and the catalog
    #[arg(
        long,
        env = "LINESMAN_DATA",
        value_name = "DIR",
        default_value = "/var/lib/linesman"
    )]
    data: PathBuf,
    #[command(flatten)]
    database: DatabaseArgs,
    /// The hub's address as clusters and people reach it, `https://HOST[:PORT]`; without it, this machine's address and port
    #[arg(long, env = "LINESMAN_URL", value_name = "URL")]
    url: Option<String>,
    /// Where to serve API, line and Kubernetes proxy (HTTPS)
    #[arg(
        long,
        env = "LINESMAN_LISTEN",
        value_name = "ADDRESS",
        value_parser = address::listen,
        default_value = "0.0.0.0:8443"
    )]
    listen: SocketAddr,
    /// Proxies or balancers before the hub, as addresses and networks: what they say in `X-Forwarded-For` is whom a request
    /// is from. Without it, it is from whoever connects
    #[arg(
        long,
        env = "LINESMAN_TRUSTED_PROXIES",
        value_name = "CIDR,…",
        value_delimiter = ','
    )]
    trusted_proxies: Vec<Cidr>,
    /// Where to serve the built-in Git (SSH)
    #[arg(
        long,
        env = "LINESMAN_GIT_LISTEN",
        value_name = "ADDRESS",
        value_parser = address::listen,
        default_value = "0.0.0.0:2222"
    )]
    git_listen: SocketAddr,
    /// Where to serve /livez, /readyz and /metrics (HTTP)
    #[arg(
        long,
        env = "LINESMAN_HEALTH_LISTEN",
        value_name = "ADDRESS",
        value_parser = address::listen,
        default_value = "127.0.0.1:8081"
    )]
    health_listen: SocketAddr,
    /// The built-in Git's address as clusters and people reach it; without it, `ssh://git@` with the host of --url
    #[arg(long, env = "LINESMAN_GIT_URL", value_name = "URL")]
    git_url: Option<String>,
    /// Where to serve other replicas of this hub: it is one of several on the same database and data directory, which needs
    /// --database-url-file
    #[arg(long, env = "LINESMAN_PEER_LISTEN", value_name = "ADDRESS", value_parser = address::listen)]
    peer_listen: Option<SocketAddr>,
    /// Where the other replicas reach it; without it, --peer-listen with this machine's address and port
    #[arg(
        long,
        env = "LINESMAN_PEER_URL",
        value_name = "HOST:PORT",
        requires = "peer_listen"
    )]
    peer_url: Option<String>,
    /// PEM certificate chain; without it, one from the hub's own CA
    #[arg(
        long,
        env = "LINESMAN_TLS_CERT",
        value_name = "FILE",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// PEM key of --tls-cert
    #[arg(
        long,
        env = "LINESMAN_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// PEM CA of --tls-cert for clusters and people to trust; without it, they use their systems' roots
    #[arg(
        long,
        env = "LINESMAN_TLS_CA",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    tls_ca: Option<PathBuf>,
    /// The agent's image in adoption YAML, from a registry that clusters can pull from
    #[arg(long, env = "LINESMAN_AGENT_IMAGE", value_name = "REF", value_parser = agent_image)]
    #[arg(default_value = concat!("linesman-agent:", env!("CARGO_PKG_VERSION")))]
    agent_image: String,
    /// A cluster whose agent has no line, and calls by HTTPS alone, is shown offline when it was silent for this long; 20s at
    /// least. Where a line ended, the cluster is offline 15s after that, whatever is said here
    #[arg(long, env = "LINESMAN_OFFLINE_AFTER", value_name = "TIME", default_value = "40s", value_parser = offline_after)]
    offline_after: Duration,
    /// How long running requests have to finish when the hub ends; 0 = none. Without it 10s, or 10m among other replicas,
    /// which take what is new meanwhile
    #[arg(long, env = "LINESMAN_DRAIN", value_name = "TIME", value_parser = duration::parse)]
    drain: Option<Duration>,
    #[command(flatten)]
    requests: RequestArgs,
    /// Which clusters may take Git over their lines: `auto`, also those whose agents find no route to the Git host;
    /// `asked`, only those for which an operator chose it
    #[arg(long, env = "LINESMAN_GIT_OVER_LINE", value_name = "WHICH", value_enum)]
    #[arg(default_value = "auto")]
    git_over_line: GitOverLine,
    /// Clusters replace their keys at this age; 0 = only when 'linesman cluster rotate' says so
    #[arg(long, env = "LINESMAN_ROTATE_KEYS_AFTER", value_name = "TIME", default_value = "90d", value_parser = duration::parse)]
    rotate_keys_after: Duration,
    /// What a cluster that lost its identity key does: `auto`, it gets another on the word of its deploy key, once it was
    /// silent for a minute; `manual`, it waits for 'linesman cluster readopt'
    #[arg(
        long,
        env = "LINESMAN_IDENTITY_RECOVERY",
        value_name = "HOW",
        value_enum
    )]
    #[arg(default_value = "auto")]
    identity_recovery: IdentityRecovery,
    #[command(flatten)]
    grants: GrantArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    oidc: OidcArgs,
    #[command(flatten)]
    notify: NotifyArgs,
}

/// What is done for a hub, and runs none.
#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Replace the hub's signing key or its own CA, while it runs
    Rotate(rotate::Args),
    /// Print the hub's own manifests, for a hub that runs in Kubernetes
    Manifests(Box<manifests::Args>),
}

impl Args {
    /// Whether a hub is to be run with these.
    pub fn serves(&self) -> bool {
        self.verb.is_none()
    }
}

/// Whether clusters recover by themselves, as a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum IdentityRecovery {
    Auto,
    Manual,
}

/// [`crate::hub::gitline::Allowed`] as a flag's value.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum GitOverLine {
    Auto,
    Asked,
}

pub async fn run(mut args: Args) -> Result<()> {
    match args.verb.take() {
        Some(Verb::Rotate(args)) => return rotate::run(args).await,
        Some(Verb::Manifests(args)) => return manifests::run(*args),
        None => {}
    }
    files::take();
    let listeners = Listeners {
        https: bind(&mut args.listen, "--listen").await?,
        git: bind(&mut args.git_listen, "--git-listen").await?,
        health: bind(&mut args.health_listen, "--health-listen").await?,
        peer: match &mut args.peer_listen {
            Some(listen) => Some(bind(listen, "--peer-listen").await?),
            None => None,
        },
    };
    let config = config(args)?;
    let token = config.data.join("admin.token");
    let had_token = token.exists();
    let stop = CancellationToken::new();
    let started = serve::start(config.clone(), stop.clone()).await;
    let (hub, chain) = started.map_err(|error| refused(error, &config.data))?;
    if let Some(warning) = image::without_registry(&config.agent_image) {
        warn!("{warning}; give one that clusters can pull with --agent-image");
    }
    // Behind a proxy that is known, another port is what was meant.
    let direct = config.trusted_proxies.is_empty();
    if let Some(warning) = address::other_port(&config.url, config.listen).filter(|_| direct) {
        warn!("{warning}");
    }
    // Clusters do not depend on who reads this.
    // A hub from a backup has no such file, and makes none where an admin's token is in force.
    let first = !had_token && token.exists();
    if let Err(error) = emit(&banner(&config, !hub.tls.ca().is_empty(), first)) {
        warn!(error = format!("{error:#}"), "say where the hub is");
    }
    let serving = serve::run(listeners, hub, chain);
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result,
        signal = lifetime::signalled() => signal?,
    }
    info!("stopping; a second signal ends what still runs");
    stop.cancel();
    tokio::select! {
        result = &mut serving => result,
        signal = lifetime::signalled() => {
            signal?;
            info!("stopped while requests were running");
            Ok(())
        }
    }
}

/// Port 0 becomes the port that the system chose, so that all that is printed and told names the real one.
async fn bind(address: &mut SocketAddr, flag: &str) -> Result<TcpListener> {
    let asked = *address;
    let bound = async {
        let listener = TcpListener::bind(asked).await?;
        *address = listener.local_addr()?;
        Ok::<_, io::Error>(listener)
    };
    bound.await.map_err(|e| unbound(asked, flag, &e).into())
}

fn unbound(address: SocketAddr, flag: &str, error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("see what listens there: ss -ltnp; or choose another address with {flag}")
        }
        io::ErrorKind::AddrNotAvailable => {
            let any: IpAddr = match address {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let any = SocketAddr::new(any, address.port());
            format!("give an address of this machine (see: ip addr), or all of them: {flag} {any}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("choose a port from 1024 on with {flag}, or give the hub CAP_NET_BIND_SERVICE")
        }
        _ => format!("choose another address with {flag}"),
    };
    let what = format!("listen on {address} ({flag}): {error}");
    Failure::new(Code::Failed, what, next)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::hub::HubConfig;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub(super) fn parsed(flags: &[&str]) -> HubConfig {
        let line = ["hub", "--data", "/d"].iter().chain(flags);
        config(Line::try_parse_from(line).unwrap().args).unwrap()
    }

    #[test]
    fn the_addresses_follow_from_the_url() {
        let config = parsed(&[
            "--url",
            "https://hub.example.org/",
            "--git-listen",
            "0.0.0.0:22",
        ]);
        assert_eq!(
            (config.url.as_str(), config.git_url.as_str()),
            ("https://hub.example.org", "ssh://git@hub.example.org:22")
        );
        let config = parsed(&[
            "--url",
            "https://hub.example.org:8443",
            "--git-url",
            "ssh://git@git.example.org/",
        ]);
        assert_eq!(
            (config.url.as_str(), config.git_url.as_str()),
            ("https://hub.example.org:8443", "ssh://git@git.example.org")
        );
        assert!(parsed(&[]).url.ends_with(":8443"));
    }

    /// The address may be a flag's, a variable's or the one that is used without both.
    #[test]
    fn what_keeps_a_hub_from_listening_names_the_address_and_what_helps() {
        let said = |address: &str, kind: io::ErrorKind| {
            unbound(address.parse().unwrap(), "--listen", &kind.into())
        };
        let failure = |what: &str, next: &str| Failure::new(Code::Failed, what, next);
        assert_eq!(
            said("10.231.1.1:8443", io::ErrorKind::AddrInUse),
            failure(
                "listen on 10.231.1.1:8443 (--listen): address in use",
                "see what listens there: ss -ltnp; or choose another address with --listen"
            )
        );
        assert_eq!(
            said("1.2.3.4:8443", io::ErrorKind::AddrNotAvailable),
            failure(
                "listen on 1.2.3.4:8443 (--listen): address not available",
                "give an address of this machine (see: ip addr), or all of them: --listen 0.0.0.0:8443"
            )
        );
        let none_here = said("[fd00::1]:8443", io::ErrorKind::AddrNotAvailable);
        assert!(
            none_here.next.ends_with(": --listen [::]:8443"),
            "{none_here:?}"
        );
        let low = said("0.0.0.0:443", io::ErrorKind::PermissionDenied);
        assert!(low.next.contains("a port from 1024 on"), "{low:?}");
    }

    #[test]
    fn the_hubs_own_starts_and_stops_are_on_record() {
        assert!(parsed(&[]).audit.lives);
    }

    #[test]
    fn proxies_are_listed_as_addresses_and_networks() {
        let config = parsed(&["--trusted-proxies", "10.0.0.0/8,192.0.2.1"]);
        let listed = ["10.0.0.0/8", "192.0.2.1"].map(|text| text.parse().unwrap());
        assert_eq!(*config.trusted_proxies, listed);
        assert!(parsed(&[]).trusted_proxies.is_empty());
    }

    #[test]
    fn running_requests_have_longer_where_other_replicas_take_the_new_ones() {
        let file = std::env::temp_dir().join(format!("linesman-drain-{}", std::process::id()));
        std::fs::write(&file, "postgres://a:b@h/c").unwrap();
        let path = file.to_str().unwrap();
        let several = ["--peer-listen", "127.0.0.1:1", "--database-url-file", path];
        assert_eq!(parsed(&[]).drain, Duration::from_secs(10));
        assert_eq!(parsed(&several).drain, Duration::from_mins(10));
        let given = [&several[..], &["--drain", "1m"]].concat();
        assert_eq!(parsed(&given).drain, Duration::from_mins(1));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_cluster_is_not_called_offline_between_two_signs_of_life() {
        let after = |text| Line::try_parse_from(["hub", "--offline-after", text]);
        assert_eq!(
            after("20s").unwrap().args.offline_after,
            Duration::from_secs(20)
        );
        assert!(after("0").is_err() && after("5s").is_err() && after("40").is_err());
    }

    #[test]
    fn an_agents_image_that_no_registry_can_have_is_refused() {
        let image = |text| Line::try_parse_from(["hub", "--agent-image", text]);
        let named = image("linesman-agent:1").unwrap().args.agent_image;
        assert_eq!(named, "linesman-agent:1");
        assert!(image(":::bad").is_err());
    }

    #[test]
    fn one_of_several_replicas_needs_a_database_for_all() {
        let flags = ["hub", "--data", "/d", "--peer-listen", "127.0.0.1:8444"];
        let why = config(Line::try_parse_from(flags).unwrap().args).unwrap_err();
        assert_eq!(
            why.to_string(),
            "--peer-listen makes the hub one of several replicas, and its records are in SQLite"
        );
        assert!(Line::try_parse_from(["hub", "--peer-url", "h:1"]).is_err());
    }
}
