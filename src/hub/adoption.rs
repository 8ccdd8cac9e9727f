//! Join tokens on their way into adoption YAML.

pub mod copies;
pub mod copy;
pub mod values;

use time::{Duration, OffsetDateTime};

use crate::clock;
use crate::hub::Hub;
use crate::hub::registration::{Prefix, TokenText};
use crate::hub::store::{Cluster, JoinToken, StoreError, TokenKind};
use crate::manifests::scope::Scope;
use crate::manifests::{self, AdoptionValues, EngineNamespaces};
use crate::secret::Secret;
use crate::wire::api::{AdoptionOptions, EngineKind};
use crate::wire::id::ClusterName;

/// A token that was just issued; its text is known here and in the YAML only.
pub struct Issued {
    pub token: TokenText,
    pub expires_at: OffsetDateTime,
}

/// Issues a token for the cluster; its unredeemed older ones end.
pub async fn issue(
    hub: &Hub,
    cluster: &Cluster,
    options: AdoptionOptions,
    new_cluster: bool,
    issued_by: &str,
) -> Result<Issued, StoreError> {
    let now = clock::now();
    let token = TokenText::new(clock::random(), clock::random());
    let expires_at = now + Duration::seconds(i64::from(options.token_ttl));
    let record = JoinToken {
        id: token.id.clone(),
        cluster_id: cluster.id.clone(),
        hash: token.hash(),
        kind: if cluster.joined_at.is_some() {
            TokenKind::Readopt
        } else {
            TokenKind::Join
        },
        new_cluster,
        adoption: options,
        issued_by: issued_by.to_owned(),
        expires_at,
        redeemed: None,
        revoked_at: None,
        created_at: now,
    };
    hub.store.issue_join_token(record).await?;
    Ok(Issued { token, expires_at })
}

/// The YAML that the cluster's owner applies.
pub fn yaml(hub: &Hub, cluster: &Cluster, options: &AdoptionOptions, token: &TokenText) -> String {
    let values = AdoptionValues {
        token: token.text(Prefix::Join),
        ..chosen(hub, (&cluster.name, cluster.engine), options)
    };
    manifests::to_yaml(&manifests::adoption(&values))
}

/// What was chosen for a cluster's agent, without a token.
fn chosen(
    hub: &Hub,
    (name, engine): (&ClusterName, EngineKind),
    options: &AdoptionOptions,
) -> AdoptionValues {
    let image = if options.image.is_empty() {
        &hub.config.agent_image
    } else {
        &options.image
    };
    let scope = options.scope.as_ref();
    let said = hub.says();
    AdoptionValues {
        cluster: name.clone(),
        engine,
        engines: engines(options),
        hub_url: hub.config.url.clone(),
        hub_keys: vec![said.keys.pin()],
        hub_ca: said.trust.ca.clone(),
        token: Secret::new(String::new()),
        image: image.clone(),
        access: options.access,
        scope: scope
            .and_then(|asked| Scope::of(asked, options.access, engines(options).of(engine))),
        image_pull_secret: options.image_pull_secret.clone(),
        https_proxy: options.https_proxy.clone(),
        no_proxy: options.no_proxy.clone(),
    }
}

/// Where the engines of a cluster with these options live.
pub fn engines(options: &AdoptionOptions) -> EngineNamespaces {
    match options.engine_namespace.as_str() {
        "" => EngineNamespaces::default(),
        chosen => EngineNamespaces::new(chosen.to_owned()),
    }
}

/// `https://…/adopt/<token>.yaml`
pub fn url(hub: &Hub, token: &TokenText) -> String {
    let base = hub.config.url.trim_end_matches('/');
    format!("{base}/adopt/{}.yaml", token.text(Prefix::Join).expose())
}
