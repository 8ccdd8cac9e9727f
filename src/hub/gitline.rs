//! Git over the line: streams of kind `git` on their way to the catalog's Git host.
//!
//! An agent names no address, and none that it names would be looked at: a stream is led to host and port of the
//! hub's own record, for clusters that take Git over the line. SSH runs end to end, so the hub sees ciphertext.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::audit::{Entry, Verdict};
use super::store::{Cluster, StoreError};
use super::{Hub, chain_of};
use crate::clock;
use crate::tcp;
use crate::tunnel::carry;
use crate::tunnel::{LineError, Stream};
use crate::wire::api::{GitRoute, Via};
use crate::wire::frame::Code;
use crate::wire::report::{Condition, ConditionType, Status};

/// Streams of kind `git` on one line.
pub const MAX_STREAMS: usize = 64;
const DIAL: Duration = Duration::from_secs(10);
/// Where clouds serve an instance's credentials by IPv6, which is not link-local: EC2's instance metadata service, Compute
/// Engine's metadata server.
const METADATA: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Which clusters may take Git over their lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allowed {
    /// Those for which an operator said so, and those whose agents find no route of their own.
    #[default]
    Auto,
    /// Only those for which an operator said so.
    Asked,
}

/// Host and port that the hub dials for `git` streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitTarget {
    pub host: String,
    pub port: u16,
    /// The built-in server listens on this machine; no other target may be there.
    pub built_in: bool,
}

impl GitTarget {
    /// The built-in Git server, by the address that it listens on.
    pub fn built_in(listen: SocketAddr) -> Self {
        let ip = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Self {
            host: ip.to_string(),
            port: listen.port(),
            built_in: true,
        }
    }

    /// Addresses of this machine, of its link and of no machine are no Git host, whatever a name resolves to: there
    /// are the hub's own ports and the cloud's metadata.
    fn admits(&self, address: IpAddr) -> bool {
        let near = match address.to_canonical() {
            IpAddr::V4(ip) => {
                ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || ip.is_broadcast()
            }
            IpAddr::V6(ip) => {
                ip.is_loopback()
                    || ip.is_unicast_link_local()
                    || ip.is_unspecified()
                    || METADATA.contains(&ip)
            }
        };
        self.built_in || !(near || address.is_multicast())
    }
}

/// Leads one stream to the Git host, until either side is done.
pub async fn serve(hub: &Hub, cluster_id: &str, meta: &[u8], stream: Stream) {
    let opened = async {
        may(hub, cluster_id, meta).await?;
        dial(&hub.catalog.dial, DIAL).await
    };
    let socket = match opened.await {
        Ok(socket) => socket,
        Err(refusal) => {
            debug!(cluster_id, code = %refusal.code, text = refusal.text, "git stream refused");
            return stream.reset(refusal.code, &refusal.text);
        }
    };
    let carried = carry::carry(stream, socket, carry::IDLE).await;
    debug!(
        cluster_id,
        error = carried.err().map(tracing::field::display),
        "git stream over"
    );
}

/// Whether the cluster takes Git over the line now.
async fn may(hub: &Hub, cluster_id: &str, meta: &[u8]) -> Result<(), LineError> {
    let denied = |text: &str| Err(LineError::new(Code::DeniedTarget, text));
    let named = serde_json::from_slice::<serde_json::Map<_, _>>(meta);
    if !named.is_ok_and(|meta| meta.is_empty()) {
        return denied("a git stream names no target: the hub knows the catalog's host");
    }
    let cluster = hub.store.cluster_by_id(cluster_id).await.map_err(|error| {
        if !hub.store.is_away() {
            tracing::error!(error = %chain_of(&error), "look up a cluster's way to Git");
        }
        LineError::new(Code::Unavailable, "the hub's store does not answer")
    })?;
    let Some(cluster) = cluster.filter(|c| c.removed_at.is_none()) else {
        return Err(LineError::new(Code::Revoked, "the cluster was removed"));
    };
    // A cluster that may take the line by itself may stay on it until its agent has proven the direct way.
    let by_itself =
        cluster.git_route == GitRoute::Auto && hub.config.git_over_line == Allowed::Auto;
    if by_itself || cluster.via() == Via::Line {
        Ok(())
    } else {
        denied("this cluster takes Git directly; see: linesman cluster git")
    }
}

/// Dials the target within `limit`; failures carry the code that the agent shows.
async fn dial(target: &GitTarget, limit: Duration) -> Result<TcpStream, LineError> {
    let GitTarget { host, port, .. } = target;
    let at = |text: &dyn std::fmt::Display| format!("the hub dials {host}:{port}: {text}");
    let connect = async {
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found = found.map_err(|error| LineError::new(Code::Dns, at(&error)))?;
        let (good, denied): (Vec<_>, Vec<_>) = found.partition(|a| target.admits(a.ip()));
        match (good.is_empty(), denied.first()) {
            (true, Some(address)) => {
                let text = format!("{} is no address of a Git host", address.ip());
                return Err(LineError::new(Code::DeniedTarget, at(&text)));
            }
            (true, None) => return Err(LineError::new(Code::Dns, at(&"no address"))),
            (false, _) => {}
        }
        let socket = tcp::connect(&good).await;
        socket.map_err(|error| LineError::new(code(&error), at(&error)))
    };
    timeout(limit, connect).await.unwrap_or_else(|_| {
        let text = format!("no answer in {} s", limit.as_secs());
        Err(LineError::new(Code::DialTimeout, at(&text)))
    })
}

fn code(error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Code::DialRefused,
        io::ErrorKind::TimedOut => Code::DialTimeout,
        _ => Code::Unreachable,
    }
}

/// An agent that finds no route to the Git host gets the line for it, where that is left to the agent. True where
/// the cluster's way has changed.
pub async fn heed(
    hub: &Hub,
    cluster: &Cluster,
    conditions: Option<&[Condition]>,
) -> Result<bool, StoreError> {
    let left_to_it = hub.config.git_over_line == Allowed::Auto
        && cluster.git_route == GitRoute::Auto
        && !cluster.git_no_route;
    let none = conditions.into_iter().flatten().find(|condition| {
        condition.kind == ConditionType::GitReachable
            && condition.status == Status::False
            && condition.reason == crate::wire::report::NO_ROUTE
    });
    let (true, Some(none)) = (left_to_it, none) else {
        return Ok(false);
    };
    let entry = Entry {
        actor: format!("agent:{}", cluster.name),
        action: "cluster.git".to_owned(),
        cluster: Some(cluster.name.to_string()),
        target: "line".to_owned(),
        reason: Some(none.message.clone()),
        ..Entry::default()
    };
    if hub.audit.change(entry.clone()).await.is_err() {
        // The agent reports it again.
        tracing::error!(cluster = %cluster.name, "its way to Git is not changed: that could not be put on record");
        return Ok(false);
    }
    let chosen = (GitRoute::Auto, true);
    let chosen = hub
        .store
        .set_git_route(cluster.revision(), chosen, clock::now());
    let chosen = chosen.await;
    let why = match &chosen {
        Ok(true) => {
            tracing::info!(cluster = %cluster.name, why = none.message, "Git goes over the line");
            return Ok(true);
        }
        // The next report is judged by what the cluster is then.
        Ok(false) => "not made: somebody changed the cluster meanwhile".to_owned(),
        Err(error) => format!("nobody knows whether it was made: {}", chain_of(error)),
    };
    let entry = Entry {
        verdict: Verdict::Deny,
        reason: Some(why),
        ..entry
    };
    if hub.audit.event(entry).await.is_err() {
        tracing::error!(cluster = %cluster.name, "that its way to Git was not changed could not be put on record");
    }
    chosen
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn target(host: &str, port: u16, built_in: bool) -> GitTarget {
        GitTarget {
            host: host.to_owned(),
            port,
            built_in,
        }
    }

    #[test]
    fn the_built_in_server_is_dialled_where_it_listens() {
        let of = |listen: &str| GitTarget::built_in(listen.parse().unwrap());
        assert_eq!(of("10.1.2.3:22"), target("10.1.2.3", 22, true));
        assert_eq!(of("0.0.0.0:2222"), target("127.0.0.1", 2222, true));
        assert_eq!(of("[::]:2222"), target("::1", 2222, true));
    }

    /// L44: a name may resolve to anything; what is near the hub is no Git host.
    #[tokio::test]
    async fn addresses_near_the_hub_are_denied() {
        for host in [
            "127.0.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::1",
            "fe80::1",
            "::",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "fd20:ce::254",
        ] {
            let error = dial(&target(host, 22, false), DIAL).await.unwrap_err();
            assert_eq!(error.code, Code::DeniedTarget, "{host}: {error}");
        }
        let git = target("git.example.org", 22, false);
        for fine in ["10.0.0.7", "192.0.2.1", "2001:db8::1"] {
            assert!(git.admits(fine.parse().unwrap()), "{fine}");
        }
    }

    #[tokio::test]
    async fn each_failure_to_dial_has_its_code_and_names_the_target() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        assert!(dial(&target("127.0.0.1", port, true), DIAL).await.is_ok());
        drop(free);
        let refused = dial(&target("127.0.0.1", port, true), DIAL).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, Code::DialRefused);
        assert!(
            refused
                .text
                .starts_with(&format!("the hub dials 127.0.0.1:{port}: "))
        );
        let name = dial(&target("no host has this name", 22, false), DIAL).await;
        assert_eq!(name.unwrap_err().code, Code::Dns);
        for (kind, expected) in [
            (io::ErrorKind::NetworkUnreachable, Code::Unreachable),
            (io::ErrorKind::HostUnreachable, Code::Unreachable),
            (io::ErrorKind::TimedOut, Code::DialTimeout),
        ] {
            assert_eq!(code(&kind.into()), expected);
        }
    }
}
