//! The hub's routes as functions.

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::de::DeserializeOwned;

use super::{Call, Client, Error, TIMEOUT, UPLOAD_TIMEOUT, json_headers};
use crate::wire::api::{
    AcceptRequest, Acceptance, AgentCopyRequest, AgentCopyView, AgentImageRequest, AgentImageView,
    BundleOrigin, CatalogView, Check, Diagnosis, DropSigner, EngineKind, EngineRequest, EngineView,
    GitRoute, GitRouteRequest, HealCloseRequest, HubInfo, LabelsRequest, LabelsView, LiftRequest,
    LineDetail, NewCluster, NewJoinToken, NewSigner, NewSshKey, Page, PauseRequest, Policy,
    RegistryRequest, RegistryView, Revocation, RevokeRequest, RotateRequest, RotateWish,
    SignersView, ToldAdoption, ToldBundle, ToldCluster, ToldGitRoute, ToldHeal, UnknownAgentView,
    WhoAmI,
};
use crate::wire::id::{ClusterName, Digest};

/// What the hub shall make sure of in an import, and which of Flux' controllers it keeps.
#[derive(Debug, Clone, Default)]
pub struct WantedBundle {
    pub release: Option<(EngineKind, String)>,
    pub components: Vec<String>,
    /// For the hub's record.
    pub origin: Option<BundleOrigin>,
}

impl WantedBundle {
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if let Some((engine, version)) = &self.release {
            query.push(("engine", engine.to_string()));
            query.push(("version", version.clone()));
        }
        if !self.components.is_empty() {
            query.push(("components", self.components.join(",")));
        }
        if let Some(origin) = &self.origin {
            query.push(("source", origin.source.clone()));
            query.push(("verifiedBy", origin.verified_by.clone()));
        }
        query
    }
}

/// The largest page that the hub gives.
const PAGE: usize = 500;

impl Client {
    pub async fn info(&self) -> Result<HubInfo, Error> {
        self.get("ask the hub who it is", &["v1", "hub"], &[]).await
    }

    pub async fn whoami(&self) -> Result<WhoAmI, Error> {
        self.get("ask the hub who you are", &["v1", "whoami"], &[])
            .await
    }

    pub async fn clusters(&self) -> Result<Vec<ToldCluster>, Error> {
        self.list("list clusters", &["v1", "clusters"], &[], usize::MAX)
            .await
    }

    pub async fn cluster(&self, name: &ClusterName) -> Result<ToldCluster, Error> {
        self.get(
            &format!("show cluster {name}"),
            &["v1", "clusters", name.as_str()],
            &[],
        )
        .await
    }

    pub async fn add_cluster(&self, new: &NewCluster) -> Result<ToldAdoption, Error> {
        self.write(
            &format!("add cluster {}", new.name),
            &["v1", "clusters"],
            new,
        )
        .await
    }

    pub async fn readopt(
        &self,
        name: &ClusterName,
        new: &NewJoinToken,
    ) -> Result<ToldAdoption, Error> {
        let path = ["v1", "clusters", name.as_str(), "join-tokens"];
        self.write(
            &format!("issue a join token for cluster {name}"),
            &path,
            new,
        )
        .await
    }

    pub async fn pause(&self, name: &ClusterName, asked: &PauseRequest) -> Result<Policy, Error> {
        let path = ["v1", "clusters", name.as_str(), "pause"];
        self.write(&format!("pause cluster {name}"), &path, asked)
            .await
    }

    pub async fn lift(&self, name: &ClusterName, asked: &LiftRequest) -> Result<Policy, Error> {
        let path = ["v1", "clusters", name.as_str(), "lift"];
        let operation = format!("give back to Git what cluster {name} holds back");
        self.write(&operation, &path, asked).await
    }

    /// Lets the cluster replace its present keys; gives the fingerprints of those.
    pub async fn rotate(
        &self,
        name: &ClusterName,
        asked: RotateRequest,
    ) -> Result<RotateWish, Error> {
        let path = ["v1", "clusters", name.as_str(), "rotate"];
        self.write(&format!("rotate keys of cluster {name}"), &path, &asked)
            .await
    }

    pub async fn unknown_agents(&self) -> Result<Vec<UnknownAgentView>, Error> {
        let path = ["v1", "unknown-agents"];
        self.list("list unknown agents", &path, &[], usize::MAX)
            .await
    }

    /// Repeatable: an agent that was let in stays so.
    pub async fn accept(&self, asked: &AcceptRequest) -> Result<Acceptance, Error> {
        let path = ["v1", "unknown-agents", "accept"];
        self.write(&format!("accept {}", asked.fingerprint), &path, asked)
            .await
    }

    /// Repeatable: the second time nothing is left to revoke.
    pub async fn revoke(
        &self,
        name: &ClusterName,
        asked: &RevokeRequest,
    ) -> Result<Revocation, Error> {
        let path = ["v1", "clusters", name.as_str(), "revoke"];
        self.write(&format!("revoke cluster {name}"), &path, asked)
            .await
    }

    pub async fn line(&self, name: &ClusterName) -> Result<LineDetail, Error> {
        let path = ["v1", "clusters", name.as_str(), "line"];
        self.get(&format!("show the line of cluster {name}"), &path, &[])
            .await
    }

    pub async fn git_route(
        &self,
        name: &ClusterName,
        route: GitRoute,
    ) -> Result<ToldGitRoute, Error> {
        let path = ["v1", "clusters", name.as_str(), "git-route"];
        let operation = format!("choose the way to Git of cluster {name}");
        self.put(&operation, &path, &GitRouteRequest { route })
            .await
    }

    pub async fn label(
        &self,
        name: &ClusterName,
        asked: &LabelsRequest,
    ) -> Result<LabelsView, Error> {
        let path = ["v1", "clusters", name.as_str(), "labels"];
        self.patch(&format!("label cluster {name}"), &path, asked)
            .await
    }

    /// Lets the cluster's agent change to another image.
    pub async fn set_agent_image(
        &self,
        name: &ClusterName,
        asked: &AgentImageRequest,
    ) -> Result<AgentImageView, Error> {
        let path = ["v1", "clusters", name.as_str(), "agent-image"];
        let operation = format!("set the agent's image of cluster {name}");
        self.put(&operation, &path, asked).await
    }

    /// Lets the catalog keep a copy of the cluster's agent, as it has to be now, or none.
    pub async fn set_agent_copy(
        &self,
        name: &ClusterName,
        kept: bool,
    ) -> Result<AgentCopyView, Error> {
        let path = ["v1", "clusters", name.as_str(), "agent-copy"];
        let operation = format!("keep a copy of the agent of cluster {name}");
        self.put(&operation, &path, &AgentCopyRequest { kept })
            .await
    }

    /// Lets the cluster change to another version of its engine.
    pub async fn set_engine(
        &self,
        name: &ClusterName,
        asked: &EngineRequest,
    ) -> Result<EngineView, Error> {
        let path = ["v1", "clusters", name.as_str(), "engine"];
        let operation = format!("set the engine of cluster {name}");
        self.put(&operation, &path, asked).await
    }

    /// Whence the engine gets its images, of one cluster or of all that have no registry of their own.
    pub async fn registry(&self, cluster: Option<&ClusterName>) -> Result<RegistryView, Error> {
        let Some(name) = cluster else {
            let path = ["v1", "hub", "image-registry"];
            let operation = "show the image registry of all clusters";
            return self.get(operation, &path, &[]).await;
        };
        let path = ["v1", "clusters", name.as_str(), "image-registry"];
        let operation = format!("show the image registry of cluster {name}");
        self.get(&operation, &path, &[]).await
    }

    /// Says whence the engine gets its images, of one cluster or of all that have no registry of their own.
    pub async fn set_registry(
        &self,
        cluster: Option<&ClusterName>,
        asked: &RegistryRequest,
    ) -> Result<RegistryView, Error> {
        let Some(name) = cluster else {
            let path = ["v1", "hub", "image-registry"];
            let operation = "set the image registry of all clusters";
            return self.put(operation, &path, asked).await;
        };
        let path = ["v1", "clusters", name.as_str(), "image-registry"];
        let operation = format!("set the image registry of cluster {name}");
        self.put(&operation, &path, asked).await
    }

    pub async fn resume(&self, name: &ClusterName) -> Result<(), Error> {
        let operation = format!("resume cluster {name}");
        let call = Call {
            operation: &operation,
            method: Method::DELETE,
            url: self.url(&["v1", "clusters", name.as_str(), "pause"], &[]),
            headers: super::whatever(HeaderMap::new()),
            body: None,
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.send(call).await.map(drop)
    }

    /// `rev` is the revision that the caller saw; another one in the store is a conflict.
    pub async fn remove_cluster(&self, name: &ClusterName, rev: i64) -> Result<(), Error> {
        self.delete(
            &format!("remove cluster {name}"),
            &["v1", "clusters", name.as_str()],
            Some(rev),
        )
        .await
    }

    pub async fn bundles(&self) -> Result<Vec<ToldBundle>, Error> {
        self.list("list engine bundles", &["v1", "bundles"], &[], usize::MAX)
            .await
    }

    /// `manifests` is the engine's multi-document YAML, plain or gzip. Repeatable: a bundle is its digest.
    pub async fn import_bundle(
        &self,
        manifests: Vec<u8>,
        wanted: &WantedBundle,
    ) -> Result<ToldBundle, Error> {
        let operation = "import the engine bundle";
        let mut headers = json_headers();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        );
        let call = Call {
            operation,
            method: Method::POST,
            url: self.url(&["v1", "bundles"], &wanted.query()),
            headers,
            body: Some(manifests),
            timeout: UPLOAD_TIMEOUT,
            repeatable: true,
        };
        self.answer(operation, &self.send(call).await?)
    }

    /// Repeatable: a bundle that was removed stays so.
    pub async fn remove_bundle(&self, digest: &Digest) -> Result<(), Error> {
        let operation = format!("remove the engine bundle {digest}");
        let call = Call {
            operation: &operation,
            method: Method::DELETE,
            url: self.url(&["v1", "bundles", digest.as_str()], &[]),
            headers: super::whatever(HeaderMap::new()),
            body: None,
            timeout: TIMEOUT,
            repeatable: true,
        };
        self.send(call).await.map(drop)
    }

    /// The newest `limit` heals that the filter lets through.
    pub async fn heals(
        &self,
        filter: &HealFilter<'_>,
        limit: usize,
    ) -> Result<Vec<ToldHeal>, Error> {
        self.list("list heals", &["v1", "heals"], &filter.query(), limit)
            .await
    }

    /// Ends a heal by hand; gives it as it is then.
    pub async fn close_heal(&self, id: &str, reason: &str) -> Result<ToldHeal, Error> {
        let asked = HealCloseRequest {
            reason: reason.to_owned(),
        };
        let path = ["v1", "heals", id, "close"];
        self.write("close a heal", &path, &asked).await
    }

    /// One heal, with its story.
    pub async fn heal(&self, id: &str) -> Result<ToldHeal, Error> {
        self.get("show a heal", &["v1", "heals", id], &[]).await
    }

    pub async fn signers(&self) -> Result<SignersView, Error> {
        let path = ["v1", "catalog", "signers"];
        self.get("list the catalog's signers", &path, &[]).await
    }

    pub async fn add_signer(&self, new: &NewSigner) -> Result<SignersView, Error> {
        let path = ["v1", "catalog", "signers"];
        self.write("add a signer of the catalog", &path, new).await
    }

    pub async fn drop_signer(&self, gone: &DropSigner) -> Result<SignersView, Error> {
        let path = ["v1", "catalog", "signers", "drop"];
        let operation = format!("remove signer {} of the catalog", gone.fingerprint);
        self.write(&operation, &path, gone).await
    }

    pub async fn catalog(&self) -> Result<CatalogView, Error> {
        self.get("ask the hub for its catalog", &["v1", "catalog"], &[])
            .await
    }

    pub async fn add_ssh_key(&self, key: &NewSshKey) -> Result<serde_json::Value, Error> {
        self.write("register the SSH key", &["v1", "catalog", "ssh-keys"], key)
            .await
    }

    pub async fn checks(&self) -> Result<Vec<Check>, Error> {
        self.get("ask the hub for its checks", &["v1", "hub", "checks"], &[])
            .await
    }

    /// Has the hub send a test to each receiver of notices; what became of each.
    pub async fn test_notices(&self) -> Result<Vec<Check>, Error> {
        let path = ["v1", "hub", "notices", "test"];
        let nothing = serde_json::Map::new();
        self.write("send a test notice", &path, &nothing).await
    }

    /// Each component of a cluster, as its agent sees it now.
    pub async fn diagnosis(&self, name: &ClusterName) -> Result<Diagnosis, Error> {
        let path = ["v1", "clusters", name.as_str(), "diagnosis"];
        self.get("let the cluster look at itself", &path, &[]).await
    }

    /// `GET /version` of the cluster's API server, through the line.
    pub async fn cluster_version(&self, name: &ClusterName) -> Result<serde_json::Value, Error> {
        let path = ["clusters", name.as_str(), "version"];
        self.get(
            &format!("reach the API server of cluster {name} through its line"),
            &path,
            &[],
        )
        .await
    }

    /// Follows the cursor until the end or `limit` items.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        operation: &str,
        path: &[&str],
        filter: &[(&str, String)],
        limit: usize,
    ) -> Result<Vec<T>, Error> {
        let mut items: Vec<T> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut query = filter.to_vec();
            query.push(("limit", PAGE.min(limit - items.len()).to_string()));
            let before = cursor.take();
            if let Some(cursor) = &before {
                query.push(("cursor", cursor.clone()));
            }
            let page: Page<T> = self.get(operation, path, &query).await?;
            items.extend(page.items);
            // An empty page may only say how far the hub looked; the same place again is the end.
            if page.cursor.is_none() || page.cursor == before || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
            cursor = page.cursor;
        }
    }
}

/// Which heals; what is None does not narrow.
#[derive(Debug, Clone, Copy, Default)]
pub struct HealFilter<'a> {
    pub cluster: Option<&'a ClusterName>,
    /// Those alone that are not over.
    pub open: bool,
    /// RFC 3339: those that began from then on, and before then.
    pub since: Option<&'a str>,
    pub until: Option<&'a str>,
}

impl HealFilter<'_> {
    fn query(&self) -> Vec<(&'static str, String)> {
        [
            ("cluster", self.cluster.map(ToString::to_string)),
            ("open", self.open.then(|| true.to_string())),
            ("since", self.since.map(str::to_owned)),
            ("until", self.until.map(str::to_owned)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }
}
