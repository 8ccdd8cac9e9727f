//! Starts the hub's parts, runs them and ends them in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::githost::embedded::{self, GitAccess, GitServer, Push, Pusher, Right};
use super::store::{KeyKind, UserRow};
use super::{Hub, HubConfig, Listeners, api, audit, auth, directory, notify, peers, replica};
use crate::clock;
use crate::hub::auth::Role;
use crate::keys::Public;
use crate::lifetime::Tasks;
use crate::lifetime::hearts::Hearts;
use crate::wire::api::Order;
use crate::wire::id::ClusterName;

mod accept;
mod files;
pub mod first_admin;
mod forwarded;
mod guard;
mod heads;
mod kept;
mod lived;
mod open;
pub mod renew;
mod room;
mod rotated;

pub use accept::requests;
pub use forwarded::{Cidr, NoCidr};
pub use kept::{CannotStart, note};
pub use open::{KEY_COMMENT, host_key, keep_secret, next_host_key, start, turn};
pub use room::Connections;

/// Pushes that wait to be told to agents.
const PUSHES: usize = 64;
/// How often what was heard is written down.
const FLUSH: Duration = Duration::from_secs(15);
/// What goes on while the hub drains has this long to end.
const LAST_LOOKS: Duration = Duration::from_secs(2);
/// A line is told of the stop a second late, ends with all that runs on it when the drain time is over, and what it cuts is put on
/// record behind that.
const LAST_STREAMS: Duration = Duration::from_secs(3);
/// The audit's last records have this long.
const LAST_RECORDS: Duration = Duration::from_secs(2);
/// How a cluster's key is told from a user's, whose names have no spaces.
const OF_CLUSTER: &str = "cluster ";

/// Runs a hub until `stop`, then drains it.
pub async fn serve(listeners: Listeners, config: HubConfig, stop: CancellationToken) -> Result<()> {
    let (hub, chain) = start(config, stop.child_token()).await?;
    run(listeners, hub, chain).await
}

/// Runs a hub that [`start`] made.
pub async fn run(listeners: Listeners, hub: Arc<Hub>, chain: audit::Chain) -> Result<()> {
    let drain = hub.config.drain;
    let mut tasks = Tasks::watched(hub.stop.clone(), &hub.hearts);
    let (pushed, told) = mpsc::channel(PUSHES);
    tasks.spawn("https", |stop| {
        accept::run(listeners.https, hub.clone(), stop)
    });
    tasks.spawn("git", |stop| {
        let server = GitServer {
            repo: hub.catalog.repo.clone(),
            repo_name: super::CATALOG.to_owned(),
            branch: hub.catalog.branch.clone(),
            host_key: hub.git_keys.subscribe(),
            limits: embedded::Limits::default(),
            refused: refused_pushes(hub.clone()),
        };
        let own = hub.clone();
        let authorize = move |key| {
            let hub = own.clone();
            Box::pin(async move { git_access(&hub, key).await }) as _
        };
        embedded::serve(listeners.git, server, authorize, pushed, stop)
    });
    tasks.spawn("pushes", |stop| tell(hub.clone(), told, stop));
    looks(&hub, &mut tasks);
    lead(&hub, &mut tasks);
    if let (Some(listener), Some(peers)) = (listeners.peer, hub.peers.clone()) {
        tasks.spawn("peers", |stop| {
            peers::owner::run(listener, peers, hub.tunnels.clone(), stop)
        });
    }
    let drained = CancellationToken::new();
    let watch = to_the_end(&hub, listeners.health, drained.clone()).run(LAST_LOOKS);
    tokio::pin!(watch);

    // The audit ends last: what the others do while they drain is on record too.
    let over = CancellationToken::new();
    let records = record(chain, &hub.hearts, over.clone()).run(LAST_RECORDS);
    tokio::pin!(records);
    let tasks = tasks.run(drain + Duration::from_secs(5));
    tokio::pin!(tasks);
    let result = tokio::select! {
        result = &mut tasks => result,
        ended = &mut watch => {
            hub.stop.cancel();
            let ended = ended.and_then(|()| anyhow::bail!("nobody watches over requests any more"));
            drop(tasks.await);
            return ended;
        }
        ended = &mut records => {
            hub.stop.cancel();
            drop(tasks.await);
            return ended.and_then(|()| anyhow::bail!("the audit chain ended"));
        }
    };
    rest(&hub, drain).await;
    drained.cancel();
    let result = watch.await.and(result);
    write_seen(&hub).await;
    lived::end(&hub, &result).await;
    over.cancel();
    replica::lease::end(&hub).await;
    // A request that outlived the drain holds its record open; the next start marks it as interrupted.
    match tokio::time::timeout(LAST_RECORDS, records).await {
        Ok(ended) => ended.and(result),
        Err(_) => result,
    }
}

/// The audit's writer, on its own: each request waits for it.
fn record(chain: audit::Chain, hearts: &Hearts, over: CancellationToken) -> Tasks {
    let mut tasks = Tasks::watched(over, hearts);
    tasks.spawn("audit", |stop| chain.run(stop));
    tasks
}

/// What goes on while the hub drains: a request that still runs ends with what it runs by, and the other replicas are not
/// to believe that this one is gone.
fn to_the_end(hub: &Arc<Hub>, health: TcpListener, drained: CancellationToken) -> Tasks {
    let mut tasks = Tasks::watched(drained, &hub.hearts);
    tasks.spawn("health", |stop| {
        api::health::serve(health, hub.clone(), stop)
    });
    let store = hub.store.clone();
    tasks.spawn("database", |stop| super::store::away::watch(store, stop));
    tasks.spawn("refusals", |stop| hub.audit.clone().tell_refusals(stop));
    tasks.spawn("grants", |stop| super::grants::announce(hub.clone(), stop));
    tasks.spawn("sessions", |stop| {
        super::login::session::watch_over(hub.clone(), stop)
    });
    if hub.replica.is_some() {
        tasks.spawn("directory", |stop| directory::follow(hub.clone(), stop));
        tasks.spawn("lease", |stop| replica::lease::keep(hub.clone(), stop));
        tasks.spawn("bells", |stop| replica::follow::bells(hub.clone(), stop));
        tasks.spawn("other replicas", |stop| {
            replica::follow::run(hub.clone(), stop)
        });
    }
    tasks
}

/// What still goes on when nobody comes in any more has the drain time, and a moment for its end.
async fn rest(hub: &Hub, drain: Duration) {
    hub.work.close();
    let longest = drain + LAST_STREAMS;
    let ended = tokio::time::timeout(longest, hub.work.wait()).await;
    if ended.is_err() {
        tracing::warn!("work was still going on when the drain time was over");
    }
}

/// What becomes of the audit's records.
fn watch_audit(hub: &Arc<Hub>, tasks: &mut Tasks) {
    tasks.spawn("audit retention", |stop| {
        let retention = hub.config.audit.retention;
        let early = hub.metrics.audit_early().clone();
        audit::retain::run(hub.store.clone(), hub.audit.clone(), retention, early, stop)
    });
    for sink in &hub.config.audit.sinks {
        let seen = audit::sink::Seen {
            behind: hub.metrics.audit_behind(sink.kind()),
            tried: hub.tried.clone(),
        };
        tasks.spawn("audit sink", |stop| {
            let (store, head) = (hub.store.clone(), hub.audit.head());
            audit::sink::run(store, sink.clone(), head, seen, stop)
        });
    }
}

/// What is looked at again and again.
fn looks(hub: &Arc<Hub>, tasks: &mut Tasks) {
    if hub.config.audit.lives {
        tasks.spawn("start on record", |stop| lived::begin(hub.clone(), stop));
    }
    tasks.spawn("old keys", |stop| {
        api::clusters::announce_old(hub.clone(), stop)
    });
    tasks.spawn("lapsed groups", |stop| {
        super::login::session::end_lapsed(hub.clone(), stop)
    });
    tasks.spawn("first admin", |stop| first_admin::watch(hub.clone(), stop));
    tasks.spawn("takeovers", |stop| super::twin::watch(hub.clone(), stop));
    tasks.spawn("flush", |stop| flush(hub.clone(), stop));
    tasks.spawn("certificate", |stop| files::follow(hub.clone(), stop));
}

/// What this replica does while it leads. What it had to tell by then it tells to the end, also where it leads no more: nobody else
/// knows of it.
fn lead(hub: &Arc<Hub>, tasks: &mut Tasks) {
    let queues = notify::senders(hub, tasks);
    tasks.spawn("leader", |stop| {
        let start = move |hub: &Arc<Hub>, tasks: &mut Tasks| once(hub, &queues, tasks);
        replica::leader::run(hub.clone(), start, stop)
    });
}

/// What must be done once, however many replicas there are.
fn once(hub: &Arc<Hub>, queues: &[notify::Queue], tasks: &mut Tasks) {
    watch_audit(hub, tasks);
    // Keys that were replaced come to an end.
    tasks.spawn("retired keys", |stop| {
        api::agents::identity::end_retired(hub.clone(), stop)
    });
    if !queues.is_empty() {
        let queues = queues.to_vec();
        tasks.spawn("notices", |stop| notify::run(hub.clone(), queues, stop));
    }
    tasks.spawn("host key", |stop| {
        api::githosts::watch_over(hub.clone(), stop)
    });
    tasks.spawn("holders of tokens", |stop| {
        super::login::session::ask_for_holders(hub.clone(), stop)
    });
    tasks.spawn("copies of agents", |stop| {
        super::adoption::copies::run(hub.clone(), stop)
    });
    tasks.spawn("ways to Git", |stop| {
        super::gitroute::run(hub.clone(), stop)
    });
    tasks.spawn("lost agents", |stop| super::lost::run(hub.clone(), stop));
    tasks.spawn("duplicate agents", |stop| {
        super::twin::run(hub.clone(), stop)
    });
    tasks.spawn("conflicts", |stop| super::conflict::run(hub.clone(), stop));
    tasks.spawn("incidents", |stop| {
        super::safe_heals::run(hub.clone(), stop)
    });
}

/// What the holder of an SSH key may do with the catalog.
async fn git_access(hub: &Hub, key: Public) -> Right<GitAccess> {
    let store = &hub.store;
    let fingerprint = key.fingerprint();
    let lookup = async {
        if let Some(key) = store.cluster_key_by_fingerprint(&fingerprint).await? {
            let reads = key.kind == KeyKind::Deploy && key.state.is_valid() && !key.removed;
            return Ok(reads.then(|| GitAccess {
                who: format!("{OF_CLUSTER}{}", key.cluster),
                push: false,
            }));
        }
        let user = store.ssh_key_by_fingerprint(&fingerprint).await?;
        let oidc = hub.config.oidc.as_ref();
        let vouched = |user: &UserRow| {
            let until = auth::vouched_until(user, oidc);
            until.is_none_or(|until| clock::now() < until)
        };
        // Roles by groups that have lapsed are a login away: until then their holders read, and do not push.
        let reads = |user: &UserRow| {
            let roles = auth::roles_on_record(user, oidc);
            roles.iter().any(|role| role.holds(Role::Viewer))
        };
        let holds = |user: &UserRow| !user.disabled && vouched(user) && reads(user);
        Ok(user.filter(|(_, user)| holds(user)).map(|(_, user)| {
            let roles = auth::roles(&user, oidc, clock::now());
            GitAccess {
                who: user.name,
                push: roles.iter().any(|role| role.holds(Role::Operator)),
            }
        }))
    };
    match lookup.await {
        Ok(Some(access)) => Right::Held(access),
        Ok(None) => Right::None,
        Err(_) if store.is_away() => Right::Unknown,
        Err(error) => {
            let error: super::store::StoreError = error;
            tracing::error!(error = %super::chain_of(&error), "look up an SSH key");
            Right::Unknown
        }
    }
}

/// Pushes with keys that may not, on record: each key's are counted, for its holder can go on for ever.
fn refused_pushes(hub: Arc<Hub>) -> embedded::Refuse {
    Arc::new(move |push: Pusher| {
        let hub = hub.clone();
        Box::pin(async move {
            let cluster = push.who.strip_prefix(OF_CLUSTER);
            let entry = audit::Entry {
                actor: match cluster {
                    Some(name) => format!("agent:{name}"),
                    None => format!("user:{}", push.who),
                },
                action: "catalog.push".to_owned(),
                cluster: cluster.map(str::to_owned),
                target: push.key.fingerprint(),
                reason: Some("the key reads the catalog and cannot push".to_owned()),
                remote: push.peer.to_string(),
                ..audit::Entry::default()
            };
            if hub.audit.refused(entry).await.is_err() {
                tracing::error!(who = push.who, "a refused push could not be put on record");
            }
        })
    })
}

/// Turns pushes into orders to the clusters that they concern. The Git server lets what is under way end while the hub drains: it goes on
/// record like any other, for at the next start nobody knows of it.
async fn tell(
    hub: Arc<Hub>,
    mut pushes: mpsc::Receiver<Push>,
    stop: CancellationToken,
) -> Result<()> {
    while let Some(push) = pushes.recv().await {
        hub.metrics.pushed();
        tracing::info!(who = push.by.who, head = push.new, "push to the catalog");
        let order = Order::CatalogHead {
            revision: push.new.clone(),
        };
        let concerned = concerned(&push.changed_paths).filter(|_| !push.truncated);
        note(&hub.store, &push.new).await;
        replica::follow::pushed(&hub, &push.new, concerned.as_ref()).await;
        match concerned {
            Some(clusters) => clusters
                .iter()
                .for_each(|name| hub.orders.send(name, order.clone())),
            None => hub.orders.send_all(&order),
        }
        let entry = audit::Entry {
            actor: format!("user:{}", push.by.who),
            action: "catalog.push".to_owned(),
            target: format!("{} {}", push.branch, push.new),
            reason: Some(format!("with the key {}", push.by.key.fingerprint())),
            remote: push.by.peer.to_string(),
            ..audit::Entry::default()
        };
        if hub.audit.event(entry).await.is_err() {
            tracing::error!(head = push.new, "a push could not be put on record");
        }
    }
    // The Git server ends when the hub does; if it failed, that is for it to say.
    stop.cancelled().await;
    Ok(())
}

/// The clusters whose own directories changed; None = something that all may share did.
fn concerned(paths: &[String]) -> Option<std::collections::BTreeSet<ClusterName>> {
    paths
        .iter()
        .map(|path| {
            let (name, _) = path.strip_prefix("clusters/")?.split_once('/')?;
            name.parse().ok()
        })
        .collect()
}

async fn flush(hub: Arc<Hub>, stop: CancellationToken) -> Result<()> {
    while stop
        .run_until_cancelled(tokio::time::sleep(FLUSH))
        .await
        .is_some()
    {
        write_seen(&hub).await;
        api::clusters::count(&hub).await;
    }
    Ok(())
}

async fn write_seen(hub: &Hub) {
    let now = clock::now();
    let seen = hub.presence.take();
    if seen.is_empty() {
        return;
    }
    if let Err(error) = hub.store.seen(seen, now).await
        && !hub.store.is_away()
    {
        tracing::error!(error = %super::chain_of(&error), %now, "note when clusters were seen");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_concerns_the_clusters_whose_directories_it_touches() {
        let of = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
            concerned(&paths).map(|set| set.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&["clusters/b/x.yaml", "clusters/a/y/z.yaml", "clusters/a/q"]),
            Some(vec!["a".to_owned(), "b".to_owned()])
        );
        for shared in [
            "apps/base/x.yaml",
            "clusters/README.md",
            "clusters/A_/x",
            "clusters",
        ] {
            assert_eq!(of(&["clusters/a/x", shared]), None, "{shared}");
        }
    }
}
