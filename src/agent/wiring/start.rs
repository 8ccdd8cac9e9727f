//! What a leader finds of its own: keys, and what an earlier life stored.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::agent::enroll::keyring::Keyring;
use crate::agent::enroll::stored::{self, Join, Past, State};
use crate::agent::enroll::{self, Progress};
use crate::agent::lease::Term;
use crate::agent::upgrade::Upgrade;
use crate::agent::{Config, News};
use crate::backoff::Schedule;
use crate::clock;
use crate::manifests::EngineNamespaces;
use crate::wire::id::ClusterName;
use crate::wire::report::StepName;

/// News that wait for the reporter.
pub(super) const NEWS: usize = 256;
const RETRY: Schedule = Schedule {
    floor: Duration::from_millis(500),
    first: Duration::from_millis(500),
    cap: Duration::from_secs(10),
};

/// What the agent found of its own when it began to lead.
pub(in crate::agent) struct Start {
    pub(super) cluster: ClusterName,
    pub(super) keyring: Keyring,
    pub(super) join: Option<Join>,
    pub(super) state: Option<State>,
    pub(super) engines: EngineNamespaces,
    pub(super) news: (mpsc::Sender<News>, mpsc::Receiver<News>),
    /// For how long it may act.
    pub(super) term: Term,
    pub(super) upgrade: Upgrade,
}

/// Reads what an earlier life stored and makes the keys where there are none, as often as it takes; `None` where `stop`
/// came first.
pub(in crate::agent) async fn start(
    config: &Config,
    kube: &kube::Client,
    office: (Term, Upgrade),
    stop: &CancellationToken,
) -> Option<Start> {
    let mut attempt = 0;
    // What is kept from here on is written by this client, too.
    let led = office.0.client(kube, None);
    loop {
        match begin(config, &led, &office).await {
            Ok(start) => return Some(start),
            Err(error) => warn!(error = format!("{error:#}"), "not started yet"),
        }
        let wait = RETRY.full_jitter(attempt, clock::unit());
        attempt += 1;
        stop.run_until_cancelled(sleep(wait)).await?;
    }
}

async fn begin(
    config: &Config,
    kube: &kube::Client,
    (term, upgrade): &(Term, Upgrade),
) -> Result<Start> {
    let secrets = stored::secrets(kube, &config.namespace);
    let join = stored::read_join(&secrets).await;
    let state = stored::read_state(&secrets).await?;
    let join = match (join, &state) {
        (Ok(join), _) => join,
        // An adopted cluster heals whatever became of the YAML's Secret.
        (Err(error), Some(_)) => {
            warn!(error = format!("{error:#}"), "join secret not read");
            None
        }
        (Err(error), None) => return Err(error),
    };
    let join = match join {
        // The catalog's copy of the agent brought this one: it knows the hub, and has no token.
        None => {
            let map = stored::read_hub(kube, &config.namespace).await?;
            map.map(|map| by_map(map, state.as_ref()))
        }
        join => join,
    };
    let cluster = leads_as(join.as_ref(), state.as_ref())
        .context("Secret linesman-join is missing; apply the adoption YAML")?;
    let news = mpsc::channel(NEWS);
    let engines = enroll::places::settled(&config.engines, kube, &config.namespace).await?;
    let context = context(config, kube, &cluster, &engines, &news.0);
    let mut step = Progress::new(&context, StepName::Keys);
    step.running().await;
    let has_token = join.as_ref().is_some_and(|join| join.token.is_some());
    let past = match &state {
        Some(state) => Past::Joined(state.assignment.engine.kind),
        None if has_token => Past::None,
        None => Past::Forgotten,
    };
    let identity = stored::keys(kube, &config.namespace, &engines, &cluster, past).await?;
    let keyring = Keyring::new(secrets, &cluster, identity)?;
    step.done().await;
    Ok(Start {
        cluster,
        keyring,
        join,
        state,
        engines,
        news,
        term: term.clone(),
        upgrade: upgrade.clone(),
    })
}

/// What that copy's ConfigMap says. Nobody changes it once it is there: of the way to the hub, the cluster's own YAML may have said
/// something else since.
fn by_map(map: Join, state: Option<&State>) -> Join {
    let way = state.and_then(|state| state.way.clone());
    Join {
        proxy: way.map_or(map.proxy, |way| way.0),
        ..map
    }
}

/// As which cluster: the one that the hub has accepted, whatever YAML was applied since. It may be a mistake, and only the hub
/// knows; whoever joins asks it.
fn leads_as(join: Option<&Join>, state: Option<&State>) -> Option<ClusterName> {
    let kept = state.map(|state| &state.assignment.cluster.name);
    let named = join.map(|join| &join.cluster);
    kept.or(named).cloned()
}

pub(super) fn context(
    config: &Config,
    kube: &kube::Client,
    cluster: &ClusterName,
    engines: &EngineNamespaces,
    news: &mpsc::Sender<News>,
) -> enroll::Context {
    enroll::Context {
        kube: kube.clone(),
        namespace: config.namespace.clone(),
        engines: engines.clone(),
        extent: config.extent,
        pod: config.pod.clone(),
        cluster: cluster.clone(),
        build: config.build.clone(),
        faults: config.faults.clone(),
        news: news.clone(),
        heart: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::enroll::stored::Way;
    use crate::agent::link::ProxyConfig;

    fn eu1() -> State {
        let assignment = json!({
            "cluster": {"name": "eu1", "id": "c"},
            "hub": {"id": "h", "urls": [], "ca": "", "keyset": []},
            "catalog": {"url": "", "via": "direct", "branch": "", "path": "", "knownHosts": "", "deployKey": {"state": "pending"}},
            "engine": {"kind": "flux", "version": "2", "bundle": format!("sha256:{}", "00".repeat(32)), "size": 0},
            "revision": 1,
        });
        State {
            assignment: serde_json::from_value(assignment).unwrap(),
            trust: None,
            redeemed: String::new(),
            proven: String::new(),
            way: None,
        }
    }

    fn applied(cluster: &str) -> Join {
        Join {
            token: None,
            echoed: false,
            hub: "https://h".to_owned(),
            hub_keys: Vec::new(),
            ca: String::new(),
            cluster: cluster.parse().unwrap(),
            proxy: None,
        }
    }

    /// YAML that was applied in the wrong cluster while its agent was away.
    #[test]
    fn an_accepted_cluster_starts_as_itself_whatever_yaml_was_applied() {
        let (eu1, stage) = (eu1(), applied("stage"));
        let name = |name: &str| Some(name.parse::<ClusterName>().unwrap());
        assert_eq!(leads_as(Some(&stage), Some(&eu1)), name("eu1"));
        assert_eq!(leads_as(None, Some(&eu1)), name("eu1"));
        assert_eq!(leads_as(Some(&stage), None), name("stage"));
        assert_eq!(leads_as(None, None), None);
    }

    /// Its proxy came to be behind the copy of the agent, or is another one since; and its YAML's Secret is gone.
    #[test]
    fn a_cluster_without_its_yaml_goes_the_way_that_it_keeps() {
        let proxy = |host: &str| {
            let config = ProxyConfig {
                address: format!("{host}:3128"),
                credentials: None,
                bypass: Vec::new(),
            };
            Some(config)
        };
        let goes = |way: Option<Way>| {
            let map = Join {
                proxy: proxy("former"),
                ..applied("eu1")
            };
            by_map(map, Some(&State { way, ..eu1() })).proxy
        };
        assert_eq!(goes(Some(Way(proxy("now")))), proxy("now"));
        assert_eq!(goes(Some(Way(None))), None);
        // An agent of before kept none; and one that never joined has nothing else.
        assert_eq!(goes(None), proxy("former"));
        assert_eq!(by_map(applied("eu1"), None), applied("eu1"));
    }
}
