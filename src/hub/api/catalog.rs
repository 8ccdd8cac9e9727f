//! The catalog's coordinates, the keys that may push, and those that sign.

mod keys;
mod signers;

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{delete, get, post};
use axum::{Json, Router};

use super::Caller;
use super::problem::Problem;
use crate::hub::auth::Role;
use crate::hub::{Hub, git};
use crate::wire::api::CatalogView;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/catalog", get(show))
        .route("/v1/catalog/ssh-keys", get(keys::list).post(keys::add))
        .route("/v1/catalog/ssh-keys/{id}", delete(keys::remove))
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
