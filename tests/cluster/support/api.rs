//! The Kubernetes API as the cluster's admin, by path, blocking. Cheap enough to poll.

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::path::Path;
use tokio::runtime::Runtime;

pub(crate) struct Api {
    client: Client,
    runtime: Runtime,
}

impl Api {
    pub(crate) fn of(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async {
            let file = Kubeconfig::read_from(kubeconfig).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .unwrap();
            Client::try_from(config).unwrap()
        });
        Self { client, runtime }
    }

    /// `None` = 404.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.try_get(path)
            .unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }

    pub(crate) fn try_get(&self, path: &str) -> Result<Option<Value>, String> {
        match self.call(Method::GET, path, None, None) {
            Ok(value) => Ok(Some(value)),
            Err((404, _)) => Ok(None),
            Err((_, e)) => Err(e),
        }
    }

    pub(crate) fn text(&self, path: &str) -> Result<String, String> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.runtime
            .block_on(self.client.request_text(request))
            .map_err(|e| e.to_string())
    }

    /// Code, kind and bytes of the answer to a request as it is.
    pub(crate) fn raw(&self, request: Request<Vec<u8>>) -> (u16, String, Vec<u8>) {
        self.runtime.block_on(async {
            let answer = self.client.send(request.map(Body::from)).await.unwrap();
            let (head, body) = answer.into_parts();
            let kind = head.headers.get("content-type");
            let kind = kind.map_or("", |kind| kind.to_str().unwrap()).to_owned();
            let body = body.collect().await.unwrap().to_bytes();
            (head.status.as_u16(), kind, body.to_vec())
        })
    }

    /// True if there was something to delete.
    pub(crate) fn delete(&self, path: &str) -> bool {
        match self.try_delete(path) {
            Ok(()) => true,
            Err((404, _)) => false,
            Err((_, e)) => panic!("DELETE {path}: {e}"),
        }
    }

    /// The status code and message of the refusal.
    pub(crate) fn try_delete(&self, path: &str) -> Result<(), (u16, String)> {
        let options = json!({ "propagationPolicy": "Background" });
        let kind = Some("application/json");
        self.call(Method::DELETE, path, kind, Some(&options))
            .map(drop)
    }

    /// What a deletion would come to, without one.
    pub(crate) fn dry_delete(&self, path: &str) -> Result<(), (u16, String)> {
        let options = json!({ "dryRun": ["All"] });
        let kind = Some("application/json");
        self.call(Method::DELETE, path, kind, Some(&options))
            .map(drop)
    }

    /// Below a collection's path.
    pub(crate) fn create(&self, path: &str, object: &Value) {
        let kind = Some("application/json");
        if let Err((_, e)) = self.call(Method::POST, path, kind, Some(object)) {
            panic!("POST {path}: {e}");
        }
    }

    /// A merge patch, as `kubectl edit` would leave it.
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> Value {
        self.try_patch(path, patch)
            .unwrap_or_else(|(_, e)| panic!("PATCH {path}: {e}"))
    }

    /// The status and text of the answer, where that is no success.
    pub(crate) fn try_patch(&self, path: &str, patch: &Value) -> Result<Value, (u16, String)> {
        self.call(
            Method::PATCH,
            &format!("{path}?fieldManager=kubectl-edit"),
            Some("application/merge-patch+json"),
            Some(patch),
        )
    }

    /// A JSON patch, for elements of lists.
    pub(crate) fn json_patch(&self, path: &str, patch: &Value) -> Value {
        let path = format!("{path}?fieldManager=kubectl-edit");
        self.call(
            Method::PATCH,
            &path,
            Some("application/json-patch+json"),
            Some(patch),
        )
        .unwrap_or_else(|(_, e)| panic!("PATCH {path}: {e}"))
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        kind: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, (u16, String)> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let body = body
            .map(|b| serde_json::to_vec(b).unwrap())
            .unwrap_or_default();
        let request = request.body(body).unwrap();
        self.runtime
            .block_on(self.client.request::<Value>(request))
            .map_err(|e| match e {
                kube::Error::Api(status) => (status.code, status.message.clone()),
                e => (0, e.to_string()),
            })
    }
}

/// Where an object of these kinds lies in the API.
pub(crate) fn path_of(object: &Value) -> String {
    let text = |p: &str| {
        object
            .pointer(p)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    path(
        text("/apiVersion"),
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

pub(crate) fn path(version: &str, kind: &str, namespace: &str, name: &str) -> String {
    let root = if version.contains('/') {
        format!("/apis/{version}")
    } else {
        format!("/api/{version}")
    };
    let lower = kind.to_lowercase();
    let plural = match lower.as_str() {
        "networkpolicy" => "networkpolicies".to_owned(),
        "gitrepository" => "gitrepositories".to_owned(),
        "priorityclass" => "priorityclasses".to_owned(),
        _ => format!("{lower}s"),
    };
    if namespace.is_empty() {
        format!("{root}/{plural}/{name}")
    } else {
        format!("{root}/namespaces/{namespace}/{plural}/{name}")
    }
}

pub(crate) fn deployment(namespace: &str, name: &str) -> String {
    path("apps/v1", "Deployment", namespace, name)
}
