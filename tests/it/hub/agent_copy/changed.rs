//! W27: what a copy is made of beside the image, each changed alone: the copy in the catalog is renewed at the next look.

use std::collections::BTreeMap;
use std::path::Path;

use linesman::clock;
use linesman::hub::adoption::copies::Failed;
use linesman::hub::serve::renew;
use linesman::manifests::hub_key_lines;
use linesman::wire::api::EngineKind;
use linesman::wire::report::NO_ROUTE;
use linesman::yaml;
use serde_json::{Value, json};

use super::super::engine::{APPLICATION, commit as commit_one, import_of, put};
use super::super::support::{Agent, TestHub, token_of};
use super::{COPY, SYNC, add, catalog, commit, copy, held, looked, shown};

const ARGOCD_SYNC: &str = "clusters/eu1.argocd/linesman.yaml";

fn current() -> Value {
    json!({ "kept": true, "current": true })
}

fn old() -> Value {
    json!({ "kept": true, "current": false })
}

/// What a copy tells an agent of its hub.
fn told(copy: &str) -> BTreeMap<String, String> {
    let all = yaml::documents(copy).unwrap();
    let mut maps = all.into_iter().filter(|o| o["kind"] == "ConfigMap");
    let mut map = maps.find(|o| o["data"]["hub"].is_string()).unwrap();
    serde_json::from_value(map["data"].take()).unwrap()
}

/// What it has to tell of this one.
fn of(hub: &TestHub) -> BTreeMap<String, String> {
    let hub = &hub.hub;
    [
        ("ca.crt", hub.says().trust.ca.clone()),
        ("cluster", "eu1".to_owned()),
        ("hub", hub.config.url.clone()),
        ("hub-key", hub_key_lines(&[hub.says().keys.pin()])),
        ("no-proxy", String::new()),
        ("proxy", String::new()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// A part of what the hub is, and how its operator replaces it. Each hub of these has a port of its own.
#[derive(Debug, Clone, Copy)]
enum Part {
    Url,
    Ca,
    Key,
}

impl Part {
    async fn replaced(self, data: &Path) {
        let at_once = renew::times(clock::now(), time::Duration::ZERO);
        match self {
            Self::Url => {}
            Self::Ca => drop(renew::ca(data, at_once).await.unwrap()),
            Self::Key => drop(renew::key(data, at_once).await.unwrap()),
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Url => "hub",
            Self::Ca => "ca.crt",
            Self::Key => "hub-key",
        }
    }
}

#[tokio::test]
async fn a_copy_follows_its_hub_to_another_url_ca_and_key() {
    let mut hub = TestHub::start("agent-copy-moved").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(told(&copy(&hub).await), of(&hub));
    let data = hub.data().to_owned();
    for part in [Part::Url, Part::Ca, Part::Key] {
        let before = hub.hub.config.url.clone();
        hub.leave().await;
        part.replaced(&data).await;
        hub = TestHub::open("agent-copy-moved", data.clone()).await;
        if !matches!(part, Part::Url) {
            // Only one part is old.
            let text = copy(&hub).await.replace(&before, &hub.hub.config.url);
            commit(&hub, &[(COPY, &text)], &[]).await;
        }
        let (has, wants) = (told(&copy(&hub).await), of(&hub));
        let mut differs = wants.iter().filter(|(key, value)| has[*key] != **value);
        let found = (differs.next().map(|(key, _)| key.as_str()), differs.next());
        assert_eq!(found, (Some(part.field()), None));
        assert_eq!(shown(&hub).await, old(), "{part:?}");
        let mut failed = Failed::default();
        let renewed = looked(&hub, &mut failed).await;
        assert_eq!(told(&copy(&hub).await), wants, "{part:?}");
        assert_eq!(shown(&hub).await, current(), "{part:?}");
        assert_eq!(looked(&hub, &mut failed).await, renewed, "{part:?}");
    }
    hub.stop().await;
}

#[tokio::test]
async fn a_copy_follows_its_cluster_to_the_other_engine_and_back() {
    let hub = TestHub::start("agent-copy-engine").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let (code, answer) = add(&hub, json!({})).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token_of(&answer)).await.0, 200);
    let facts = json!({"facts": {"agent.replaces-engines": "true"}}).to_string();
    let path = "/v1/clusters/eu1/reports";
    assert_eq!(agent.call(&hub, "POST", path, &facts).await.0, 200);
    commit_one(&hub, "clusters/eu1.argocd/a.yaml", APPLICATION).await;
    let mut failed = Failed::default();
    assert_eq!(held(&hub).await, [SYNC, COPY]);
    for (engine, sync, kind) in [
        ("argocd", ARGOCD_SYNC, "kind: Application\n"),
        ("flux", SYNC, "kind: Kustomization\n"),
    ] {
        let body = json!({ "engine": engine, "replace": true });
        let (code, set) = put(&hub, "/v1/clusters/eu1/engine", &body).await;
        assert_eq!(code, 200, "{set}");
        assert_eq!(shown(&hub).await, old(), "{engine}");
        looked(&hub, &mut failed).await;
        assert_eq!(held(&hub).await, [sync, COPY], "{engine}");
        assert!(follows(&hub, sync).await.contains(kind), "{engine}");
        assert_eq!(shown(&hub).await, current(), "{engine}");
    }
    hub.stop().await;
}

/// The object that follows the copy.
async fn follows(hub: &TestHub, sync: &str) -> String {
    let text = catalog(hub).await.remove(sync).unwrap();
    String::from_utf8(text).unwrap()
}

/// By its operator's choice and by the agent's own word that it has no way to the Git host. Flux' copy is followed from where the
/// catalog is; Argo CD is told of that once more.
#[tokio::test]
async fn a_copy_follows_its_cluster_to_the_other_way_to_git() {
    let hub = TestHub::start("agent-copy-route").await;
    import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let new = json!({ "name": "eu1", "engine": "argocd", "agentCopy": true });
    let (code, answer) = hub.post("/v1/clusters", &new).await;
    assert_eq!(code, 201, "{answer}");
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token_of(&answer)).await.0, 200);
    let direct = format!("repoURL: {}", hub.hub.catalog.url);
    let line = "repoURL: ssh://git@linesman-git.linesman.svc/catalog.git".to_owned();
    let mut failed = Failed::default();
    assert!(follows(&hub, SYNC).await.contains(&direct));
    for (route, expected) in [
        ("line", &line),
        ("direct", &direct),
        ("auto", &direct),
        ("none", &line),
    ] {
        if route == "none" {
            without_a_route(&hub, &agent).await;
        } else {
            let path = "/v1/clusters/eu1/git-route";
            assert_eq!(put(&hub, path, &json!({ "route": route })).await.0, 200);
        }
        let stands = follows(&hub, SYNC).await.contains(expected);
        let expected_view = if stands { current() } else { old() };
        assert_eq!(shown(&hub).await, expected_view, "{route}");
        looked(&hub, &mut failed).await;
        assert!(follows(&hub, SYNC).await.contains(expected), "{route}");
        assert_eq!(shown(&hub).await, current(), "{route}");
    }
    hub.stop().await;
}

async fn without_a_route(hub: &TestHub, agent: &Agent) {
    let condition = json!({
        "type": "GitReachable", "status": "False", "reason": NO_ROUTE,
        "message": "tcp: connect to git:22: no route to host", "since": "2026-01-01T00:00:00Z",
    });
    let report = json!({ "conditions": [condition] }).to_string();
    let path = "/v1/clusters/eu1/reports";
    let (code, ack) = agent.call(hub, "POST", path, &report).await;
    assert_eq!(code, 200, "{ack}");
}
