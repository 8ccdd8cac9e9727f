//! H58: every operation of the hub's API, row by row of the table that its description is made from.

use std::collections::BTreeSet;
use std::path::Path;

use linesman::hub::api::openapi::{Caller, Operation, operations, samples};
use linesman::hub::api::problem::Slug;
use linesman::keys::KeyPair;
use linesman::wire::api::Problem;
use serde_json::{Value, json};

use super::support::{Agent, TestHub};

/// A call of this operation that would be good from the right caller.
struct Asked {
    method: String,
    path: String,
    body: Value,
}

impl Asked {
    fn new(operation: &Operation) -> Self {
        let samples = samples::all().into_iter();
        let body = samples.filter(|(name, _)| *name == operation.body);
        let name = if operation.path.starts_with("/v1/users/") {
            "admin"
        } else {
            "eu1"
        };
        let path = operation
            .path
            .replace("{name}", name)
            .replace("{id}", "0197")
            .replace("{digest}", &format!("sha256:{}", "0".repeat(64)));
        let query = match operation.path {
            "/v1/grants/check" => "?user=admin&cluster=eu1",
            "/v1/api-tokens" if operation.method == "get" => "?user=admin",
            _ => "",
        };
        Self {
            method: operation.method.to_uppercase(),
            path: format!("{path}{query}"),
            body: body.map(|(_, sample)| sample).next().unwrap_or_default(),
        }
    }

    /// With this token, or none.
    async fn by(&self, hub: &TestHub, token: Option<&str>) -> (u16, Option<String>) {
        told(hub.ask(&self.method, &self.path, token, &self.body).await).await
    }

    async fn signed_by(&self, hub: &TestHub, agent: &Agent) -> (u16, Option<String>) {
        let body = match &self.body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let call = hub.call(&self.method, &self.path, &body);
        told(call.stream(&agent.identity).await).await
    }
}

/// Code and slug, once it is seen that what is no success is a whole problem.
async fn told(answer: reqwest::Response) -> (u16, Option<String>) {
    let code = answer.status();
    if code.is_success() {
        return (code.as_u16(), None);
    }
    let header = |name| answer.headers()[name].to_str().unwrap().to_owned();
    let (kind, id) = (header("content-type"), header("x-request-id"));
    assert_eq!(kind, "application/problem+json");
    let text = answer.text().await.unwrap();
    let problem: Problem = serde_json::from_str(&text).unwrap();
    let slug = problem.kind.strip_prefix("urn:linesman:problem:").unwrap();
    let known = Slug::ALL.iter().find(|known| known.as_str() == slug);
    let known = known.unwrap_or_else(|| panic!("{slug} is in no list"));
    assert_eq!(
        (problem.status, known.status(), problem.title.as_str()),
        (code.as_u16(), code, known.title())
    );
    assert_eq!((problem.hop.as_str(), problem.request_id), ("hub", id));
    assert!(
        !problem.detail.is_empty() && !problem.next.is_empty(),
        "{text}"
    );
    (code.as_u16(), Some(slug.to_owned()))
}

fn of(caller: Caller) -> impl Iterator<Item = &'static Operation> {
    operations().filter(move |o| o.caller == caller)
}

/// What somebody without any role gets where it is not 403.
const OWN: [(&str, &str, u16, Option<&str>); 9] = [
    ("get", "/v1/whoami", 200, None),
    // Their own.
    ("get", "/v1/grants", 200, None),
    ("get", "/v1/catalog/ssh-keys", 200, None),
    ("post", "/v1/catalog/ssh-keys", 403, Some("not-allowed")),
    (
        "delete",
        "/v1/catalog/ssh-keys/{id}",
        404,
        Some("not-found"),
    ),
    // Which there are is not theirs to know.
    ("get", "/v1/grants/{id}", 404, Some("not-found")),
    ("get", "/v1/api-tokens/{id}", 404, Some("not-found")),
    ("delete", "/v1/api-tokens/{id}", 404, Some("not-found")),
    ("post", "/v1/api-tokens", 403, Some("not-allowed")),
];

#[tokio::test]
async fn calls_for_people_need_a_token_and_a_role() {
    let hub = TestHub::start("routes-people").await;
    let join = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &join).await.0, 200);
    let nobody = hub.user("nobody", &[], &[]).await;
    let unknown = format!("{}x", &nobody[..nobody.len() - 1]);
    for operation in of(Caller::User) {
        let asked = Asked::new(operation);
        let refused = (401, Some("login-required".to_owned()));
        for token in [None, Some(unknown.as_str()), Some("lmt1"), Some("")] {
            let found = asked.by(&hub, token).await;
            assert_eq!(found, refused, "{operation:?} {token:?}");
        }
        assert_eq!(
            asked.signed_by(&hub, &agent).await,
            refused,
            "{operation:?}"
        );
        let own = OWN.iter();
        let own = own.filter(|o| (o.0, o.1) == (operation.method, operation.path));
        let (code, slug) = own
            .map(|o| (o.2, o.3))
            .next()
            .unwrap_or((403, Some("not-allowed")));
        let found = asked.by(&hub, Some(&nobody)).await;
        assert_eq!(found, (code, slug.map(str::to_owned)), "{operation:?}");
    }
    hub.stop().await;
}

/// H57: whatever changes or ends a record asks which one is meant; where that has changed, or nothing is said, nothing is done.
#[tokio::test]
async fn changes_need_the_revision_that_was_seen() {
    let hub = TestHub::start("routes-revisions").await;
    let join = hub.add("eu1").await;
    assert_eq!(Agent::new(1).join(&hub, "eu1", &join).await.0, 200);
    let key = KeyPair::from_seed(&[9; 32]).public();
    let key = json!({"publicKey": key.openssh("").unwrap()});
    assert_eq!(hub.post("/v1/catalog/ssh-keys", &key).await.0, 201);
    let id = async |list: &str| {
        let (_, all) = hub.get(&format!("/v1/{list}")).await;
        let id = all["items"][0]["id"].as_str().unwrap().to_owned();
        (list.to_owned(), id)
    };
    let ids = [
        id("grants").await,
        id("api-tokens").await,
        id("catalog/ssh-keys").await,
    ];
    let state = async || {
        let cluster = hub.get("/v1/clusters/eu1").await.1;
        let user = hub.get("/v1/users/admin").await.1;
        let mut all = vec![cluster["rev"].clone(), user["rev"].clone()];
        for path in [
            "/v1/grants",
            "/v1/api-tokens",
            "/v1/catalog/ssh-keys",
            "/v1/hub/image-registry",
        ] {
            all.push(hub.get(path).await.1);
        }
        all
    };
    let before = state().await;
    let changing = ["put", "patch", "delete"];
    let mut asked_of = 0;
    for operation in of(Caller::User).filter(|o| changing.contains(&o.method)) {
        let mut asked = Asked::new(operation);
        for (list, id) in &ids {
            asked.path = asked
                .path
                .replace(&format!("{list}/0197"), &format!("{list}/{id}"));
        }
        let call = (asked.method.as_str(), asked.path.as_str());
        let missing = hub.call_as(&hub.admin, call, &[], &asked.body).await;
        let old = [("if-match", "\"999999\"")];
        let old = hub.call_as(&hub.admin, call, &old, &asked.body).await;
        for ((code, problem), expected, slug) in [
            (missing, 428, "precondition-required"),
            (old, 412, "precondition-failed"),
        ] {
            assert_eq!(
                (code, super::slug(&problem)),
                (expected, slug),
                "{operation:?}"
            );
        }
        asked_of += 1;
    }
    assert!(asked_of >= 11, "{asked_of}");
    assert_eq!(state().await, before);
    hub.stop().await;
}

/// H21, H58
#[tokio::test]
async fn calls_for_agents_need_the_clusters_own_key() {
    let hub = TestHub::start("routes-agents").await;
    let [own, other, stranger] = [1, 2, 3].map(Agent::new);
    // By the deploy key of the first one, which its engine holds as well: it reads the catalog, and calls nobody.
    let engine = Agent::new(101);
    for (name, agent) in [("eu1", &own), ("eu2", &other)] {
        let token = hub.add(name).await;
        assert_eq!(agent.join(&hub, name, &token).await.0, 200);
    }
    let joins = ["/v1/join", "/v1/recover"];
    for operation in of(Caller::Agent).filter(|o| !joins.contains(&o.path)) {
        let asked = Asked::new(operation);
        let told = |code, slug: &str| (code, Some(slug.to_owned()));
        let admin = Some(hub.admin.as_str());
        // A bundle is for people, too.
        let shared = operation.path == "/v1/bundles/{digest}";
        let (callers, refused) = if shared {
            (vec![None], told(401, "login-required"))
        } else {
            (vec![None, admin], told(401, "unsigned"))
        };
        for token in callers {
            assert_eq!(asked.by(&hub, token).await, refused, "{operation:?}");
        }
        for unknown in [&stranger, &engine] {
            let found = asked.signed_by(&hub, unknown).await;
            assert_eq!(found, told(403, "unknown-identity"), "{operation:?}");
        }
        let found = asked.signed_by(&hub, &other).await;
        let hidden = if shared {
            "bundle-unknown"
        } else {
            "not-found"
        };
        assert_eq!(found, told(404, hidden), "{operation:?}");
    }
    // Who joins has a key that nobody knows yet; the token, or the deploy key, says who it is.
    for path in joins {
        let operation = of(Caller::Agent).find(|o| o.path == path).unwrap();
        let asked = Asked::new(operation);
        for found in [
            asked.by(&hub, None).await,
            asked.by(&hub, Some(&hub.admin)).await,
            asked.signed_by(&hub, &stranger).await,
        ] {
            assert!([400, 401, 403].contains(&found.0), "{path}: {found:?}");
        }
    }
    hub.stop().await;
}

#[tokio::test]
async fn calls_for_anyone_and_what_there_is_not_have_known_answers() {
    let hub = TestHub::start("routes-anyone").await;
    for operation in of(Caller::Anyone) {
        let asked = Asked::new(operation);
        let found = asked.by(&hub, None).await;
        // Without an identity provider nobody logs in so, and the answer says it; local users have sessions all the same.
        let without = match operation.path {
            "/v1/login/device" => Some((404, Some("not-found".to_owned()))),
            "/v1/login/token" => Some((401, Some("session-ended".to_owned()))),
            "/v1/login/end" => Some((204, None)),
            _ => None,
        };
        if let Some(without) = without {
            assert_eq!(found, without, "{operation:?}");
            continue;
        }
        assert!(
            found.0 != 404 && found.0 != 405 && found.0 < 500,
            "{operation:?}: {found:?}"
        );
    }
    let paths: BTreeSet<_> = operations().map(|o| o.path).collect();
    for path in paths {
        let operation = operations().find(|o| o.path == path).unwrap();
        let asked = Asked {
            method: "TRACE".to_owned(),
            ..Asked::new(operation)
        };
        let expected = (405, Some("method-not-allowed".to_owned()));
        assert_eq!(asked.by(&hub, Some(&hub.admin)).await, expected, "{path}");
    }
    for path in [
        "/v1/nothing",
        "/v2/clusters",
        "/v1/clusters/eu1/nothing",
        "/",
    ] {
        let found = told(hub.ask("GET", path, Some(&hub.admin), &Value::Null).await).await;
        assert_eq!(found, (404, Some("not-found".to_owned())), "{path}");
    }
    hub.stop().await;
}

/// Every route that the source declares is in the table; what is for browsers is not.
#[test]
fn every_route_is_in_the_table() {
    fn routes(at: &Path, found: &mut BTreeSet<String>) {
        if at.is_dir() {
            for entry in std::fs::read_dir(at).unwrap() {
                routes(&entry.unwrap().path(), found);
            }
            return;
        }
        let text = std::fs::read_to_string(at).unwrap();
        for (_, rest) in text.match_indices(".route(").map(|(n, _)| text.split_at(n)) {
            let first = rest.trim_start_matches(".route(").trim_start();
            if let Some((path, _)) = first.strip_prefix('"').and_then(|p| p.split_once('"')) {
                found.insert(path.to_owned());
            }
        }
    }
    let mut found = BTreeSet::new();
    routes(Path::new("src/hub/api"), &mut found);
    let ours = [
        "/adopt/{file}",
        "/device",
        "/login",
        "/login/callback",
        "/livez",
        "/metrics",
        "/readyz",
    ];
    let told: BTreeSet<String> = operations().map(|o| o.path.to_owned()).collect();
    let mut all: BTreeSet<String> = ours.map(str::to_owned).into();
    all.extend(told);
    // Its path has a name.
    found.insert("/v1/line".to_owned());
    assert_eq!(found, all);
}
