//! The catalog's coordinates, the keys that may push, and those that sign.

mod signers;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;

use super::problem::{Problem, Slug};
use super::{Caller, UserBody};
use crate::clock;
use crate::hub::auth::Role;
use crate::hub::store::SshKey;
use crate::hub::{Hub, git};
use crate::keys::Public;
use crate::wire::api::{CatalogView, KeyView, NewSshKey};

/// Keys that one user may have.
const MAX_KEYS: usize = 20;
/// Characters of a key's title.
const MAX_TITLE: usize = 100;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/catalog", get(show))
        .route("/v1/catalog/ssh-keys", post(add_key))
        .route("/v1/catalog/signers", get(signers::list).post(signers::add))
        .route("/v1/catalog/signers/drop", post(signers::remove))
}

async fn show(State(hub): State<Arc<Hub>>, caller: Caller) -> Result<Json<CatalogView>, Problem> {
    caller.require(&hub, Role::Viewer, "catalog.show").await?;
    let head = git::head(&hub.catalog.repo, &hub.catalog.branch).await;
    Ok(Json(CatalogView {
        url: hub.catalog.url.clone(),
        branch: hub.catalog.branch.clone(),
        head: head?,
        known_hosts: hub.git_keys.known_hosts(),
    }))
}

/// Lets the caller push with a key of their own. The same key again is the same answer.
async fn add_key(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(new): UserBody<NewSshKey>,
) -> Result<(StatusCode, Json<KeyView>), Problem> {
    caller
        .require(&hub, Role::Operator, "catalog.push-key")
        .await?;
    let public = Public::from_openssh(&new.public_key).map_err(|error| {
        Problem::new(
            Slug::BadRequest,
            format!("publicKey: {error}"),
            "make one with: ssh-keygen -t ed25519",
        )
    })?;
    let fingerprint = public.fingerprint();
    let keys = hub.store.ssh_keys(&caller.user.id).await?;
    let known = keys.iter().any(|k| k.public == public);
    if !known && keys.len() >= MAX_KEYS {
        return Err(Problem::new(
            Slug::BadRequest,
            format!("you have {MAX_KEYS} SSH keys already"),
            "use one of them",
        ));
    }
    if !known {
        caller
            .record(&hub, "catalog.push-key", None, &fingerprint)
            .await?;
    }
    let key = SshKey {
        id: uuid::Uuid::now_v7().to_string(),
        user_id: caller.user.id.clone(),
        public,
        title: new.title.chars().take(MAX_TITLE).collect(),
    };
    let stored = hub.store.add_ssh_key(key, clock::now()).await?;
    let stored = stored.ok_or_else(|| {
        Problem::new(
            Slug::Exists,
            format!("the key {fingerprint} belongs to someone else"),
            "make a key of your own: ssh-keygen -t ed25519",
        )
    });
    let stored = caller.outcome(&hub, stored).await?;
    let status = if known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(view(&stored)?)))
}

fn view(key: &SshKey) -> Result<KeyView, Problem> {
    Ok(KeyView {
        kind: "push".to_owned(),
        fingerprint: key.public.fingerprint(),
        public: key
            .public
            .openssh(&key.title)
            .map_err(anyhow::Error::from)?,
        state: "active".to_owned(),
        created_at: None,
    })
}
