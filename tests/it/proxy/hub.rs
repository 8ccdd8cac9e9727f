//! What the hub answers below `/clusters/` before and without a line.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Request, Response};
use linesman::clock;
use linesman::hub::registration::{Prefix, TokenText};
use linesman::hub::store::{ApiToken, AuditRow, NewBundle, NewClusterRow, UserRow};
use linesman::hub::tls::TlsSource;
use linesman::hub::{Hub, HubConfig, api, start};
use linesman::wire::api::{AdoptionOptions, EngineKind};
use linesman::wire::id::Digest;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

struct Fixture {
    hub: Arc<Hub>,
    data: PathBuf,
    _tasks: JoinSet<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.data));
    }
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let data =
            std::env::temp_dir().join(format!("linesman-it-proxy-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&data));
        let any = "127.0.0.1:0".parse().unwrap();
        let config = HubConfig {
            data: data.clone(),
            url: "https://localhost:8443".to_owned(),
            listen: any,
            health_listen: any,
            git_listen: any,
            git_url: "ssh://git@localhost:2222".to_owned(),
            tls: TlsSource::Own { names: Vec::new() },
            agent_image: "lab.invalid/linesman:dev".to_owned(),
            offline_after: Duration::from_secs(45),
            drain: Duration::from_secs(1),
        };
        let (hub, chain) = start(config, CancellationToken::new()).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { chain.run(CancellationToken::new()).await.unwrap() });
        let digest = Digest::from_bytes([1; 32]);
        let bundle = NewBundle {
            digest: digest.clone(),
            engine: EngineKind::Flux,
            version: "2.9.5".to_owned(),
            objects: 0,
            images: Vec::new(),
            data: Vec::new(),
            imported_by: "test".to_owned(),
        };
        hub.store.add_bundle(bundle, clock::now()).await.unwrap();
        let new = NewClusterRow {
            name: "eu1".parse().unwrap(),
            labels: std::collections::BTreeMap::default(),
            engine: EngineKind::Flux,
            engine_version: "2.9.5".to_owned(),
            bundle: digest,
            catalog_path: "clusters/eu1".to_owned(),
            adoption: AdoptionOptions::default(),
        };
        hub.store.create_cluster(new, clock::now()).await.unwrap();
        Self {
            hub,
            data,
            _tasks: tasks,
        }
    }

    async fn token(&self, name: &str, groups: &[&str]) -> String {
        let user = UserRow {
            id: format!("id-{name}"),
            name: name.to_owned(),
            roles: Vec::new(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            disabled: false,
        };
        let user = self.hub.store.ensure_user(user).await.unwrap();
        let token = TokenText::new(clock::random(), clock::random());
        let record = ApiToken {
            id: token.id.clone(),
            user_id: user.id,
            hash: token.hash(),
            title: "test".to_owned(),
            expires_at: None,
            revoked_at: None,
        };
        self.hub
            .store
            .add_api_token(record, clock::now())
            .await
            .unwrap();
        token.text(Prefix::Api).into_inner()
    }

    async fn get(&self, path: &str, token: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let mut request = Request::get(path).header("authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let router = api::router(self.hub.clone());
        router
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap()
    }

    async fn audit(&self) -> Vec<AuditRow> {
        self.hub.store.audit_tail(None, 100).await.unwrap()
    }
}

async fn refusal(response: Response<Body>) -> (u16, String, String) {
    let code = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 16)
        .await
        .unwrap();
    let status: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&"Status".into(), &code.into())
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (
        code,
        text(&status["details"]["causes"][0]["field"]),
        text(&status["message"]),
    )
}

/// Path, token (0 unknown, 1 with a grant, 2 without), whether with `--as`, and: code, hop, text.
const REFUSALS: [(&str, usize, bool, u16, &str, &str); 10] = [
    (PODS, 0, false, 401, "hub", "run 'linesman login'"),
    (
        PODS,
        2,
        false,
        403,
        "hub",
        "bob has no grant on cluster eu1",
    ),
    (
        OTHER,
        1,
        false,
        403,
        "hub",
        "ada has no grant on cluster eu2",
    ),
    ("/clusters/e%751/api", 1, false, 403, "hub", "no grant"),
    (PODS, 1, true, 403, "hub", "leave out --as"),
    (
        "/clusters/eu1/debug/x",
        1,
        false,
        404,
        "hub",
        "not a path of",
    ),
    ("/clusters/eu1", 1, false, 404, "hub", "not a path of"),
    (DOTS, 1, false, 400, "hub", "a dot segment in the path"),
    (
        "/clusters/eu1//api",
        1,
        false,
        400,
        "hub",
        "an empty segment",
    ),
    (PODS, 1, false, 503, "line", "it has not connected yet"),
];
const PODS: &str = "/clusters/eu1/api/v1/pods";
const OTHER: &str = "/clusters/eu2/api/v1/pods";
const DOTS: &str = "/clusters/eu1/api/v1/../x";

#[tokio::test]
async fn refusals_name_the_hop_and_the_request() {
    let fixture = Fixture::new("refusals").await;
    let granted = fixture.token("ada", &["admin"]).await;
    let nobody = fixture.token("bob", &[]).await;
    let tokens = ["lmt1.x.y", &granted, &nobody];
    for (path, token, as_root, code, hop, text) in REFUSALS {
        let headers = [("impersonate-user", "root")];
        let headers = if as_root { &headers[..] } else { &[] };
        let response = fixture.get(path, tokens[token], headers).await;
        let id = response.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        let (status, field, message) = refusal(response).await;
        assert_eq!((status, field.as_str()), (code, hop), "{path}: {message}");
        assert!(message.starts_with(&format!("{hop}: ")), "{message}");
        assert!(message.contains(text), "{path}: {message}");
        assert!(message.ends_with(&format!("(request {id})")), "{message}");
    }
}

#[tokio::test]
async fn an_offline_cluster_is_told_at_once_and_without_retry_after() {
    let fixture = Fixture::new("offline").await;
    let admin = fixture.token("ada", &["admin"]).await;
    let since = Instant::now();
    let response = fixture.get("/clusters/eu1/api", &admin, &[]).await;
    assert!(
        since.elapsed() < Duration::from_millis(200),
        "{:?}",
        since.elapsed()
    );
    assert_eq!(response.status(), 503);
    assert!(!response.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn every_request_is_on_record_with_its_verdict() {
    let fixture = Fixture::new("record").await;
    let admin = fixture.token("ada", &["admin"]).await;
    drop(
        fixture
            .get(
                "/clusters/eu1/api/v1/namespaces/a/pods?watch=1&x=secret",
                &admin,
                &[],
            )
            .await,
    );
    drop(
        fixture
            .get(
                "/clusters/eu1/api/v1/pods",
                &admin,
                &[("impersonate-user", "root")],
            )
            .await,
    );
    // The close is written behind the answer.
    let mut rows = Vec::new();
    for _ in 0..100 {
        rows = fixture.audit().await;
        if rows.len() >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut seen: Vec<_> = rows
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {} {} {:?}",
                row.stage, row.actor, row.action, row.verdict, row.target, row.code
            )
        })
        .collect();
    seen.sort();
    assert_eq!(
        seen,
        [
            "close user:ada kube.watch allow /api/v1/namespaces/a/pods Some(503)",
            "event user:ada kube.get deny /api/v1/pods None",
            "open user:ada kube.watch allow /api/v1/namespaces/a/pods None",
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.cluster.as_deref() == Some("eu1") && !row.request_id.is_empty())
    );
}
