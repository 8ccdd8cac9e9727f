//! An API server's Secrets, and the keys that an agent's process finds in them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linesman::agent::enroll::stored::{self, Past};
use linesman::agent::identity::{self, Identity};
use linesman::keys::KeyPair;
use linesman::manifests::EngineNamespaces;
use linesman::wire::api::EngineKind;
use serde_json::{Value, json};

use super::cluster;

/// The Secrets of one namespace, as an API server keeps them.
#[derive(Clone, Default)]
pub(in crate::hub) struct Secrets(pub(in crate::hub) Arc<Mutex<BTreeMap<String, Value>>>);

impl Secrets {
    pub(in crate::hub) fn client(&self) -> kube::Client {
        let secrets = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let secrets = secrets.clone();
            async move { Ok::<_, std::convert::Infallible>(secrets.serve(request).await) }
        });
        kube::Client::new(service, "linesman")
    }

    /// What the last Event of this reason says.
    pub(in crate::hub) fn event(&self, reason: &str) -> Option<String> {
        let all = self.0.lock().unwrap();
        all.get(&format!("event {reason}"))?
            .as_str()
            .map(str::to_owned)
    }

    pub(in crate::hub) async fn serve(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> http::Response<kube::client::Body> {
        let (parts, body) = request.into_parts();
        let bytes = http_body_util::BodyExt::collect(body)
            .await
            .unwrap()
            .to_bytes();
        let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
        let mut all = self.0.lock().unwrap();
        let (code, answer) = match parts.method.as_str() {
            "PATCH" => {
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                let kind = parts.headers.get(http::header::CONTENT_TYPE);
                let now = if kind.is_some_and(|kind| kind == "application/merge-patch+json") {
                    let mut now = all.get(&name).cloned().unwrap_or_default();
                    merge(&mut now, &sent);
                    now
                } else {
                    sent
                };
                all.insert(name, now.clone());
                (200, now)
            }
            "GET" if name == "kube-system" => (
                200,
                json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "uid": "uid-of-eu1"}}),
            ),
            "POST" if parts.uri.path().ends_with("/secrets") => {
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                let name = sent["metadata"]["name"].as_str().unwrap().to_owned();
                all.insert(name, sent.clone());
                (201, sent)
            }
            "GET" => match all.get(&name) {
                Some(found) => (200, found.clone()),
                None => (
                    404,
                    json!({"kind": "Status", "code": 404, "status": "Failure", "reason": "NotFound", "message": "none"}),
                ),
            },
            // Events.
            _ => {
                let sent: Value = serde_json::from_slice(&bytes).unwrap();
                if let Some(reason) = sent["reason"].as_str() {
                    all.insert(format!("event {reason}"), sent["note"].clone());
                }
                (201, sent)
            }
        };
        let answer = serde_json::to_vec(&answer).unwrap();
        http::Response::builder()
            .status(code)
            .body(kube::client::Body::from(answer))
            .unwrap()
    }

    pub(in crate::hub::rotate) async fn keys(&self) -> Identity {
        stored::keys(
            &self.client(),
            "linesman",
            &EngineNamespaces::default(),
            &cluster(),
            Past::None,
        )
        .await
        .unwrap()
    }

    /// As the next process of a cluster that has joined finds them, whose engine has `copy`.
    pub(in crate::hub::rotate) async fn rescued(&self, copy: Option<KeyPair>) -> Identity {
        self.left(copy, Past::Joined(EngineKind::Flux)).await
    }

    /// The same of a cluster with this past.
    pub(in crate::hub) async fn left(&self, copy: Option<KeyPair>, past: Past) -> Identity {
        if let Some(copy) = copy {
            let file = identity::private_file(&copy, &cluster()).unwrap();
            let secret = json!({
                "metadata": {"name": "flux-system"},
                "data": {"identity": STANDARD.encode(file.expose())},
            });
            let mut all = self.0.lock().unwrap();
            all.insert("flux-system".to_owned(), secret);
        }
        stored::keys(
            &self.client(),
            "linesman",
            &EngineNamespaces::default(),
            &cluster(),
            past,
        )
        .await
        .unwrap()
    }

    /// Somebody deletes them.
    pub(in crate::hub::rotate) fn delete(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// JSON Merge Patch (RFC 7396).
fn merge(into: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let fields = into.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}
