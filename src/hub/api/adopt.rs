//! `/adopt/{token}.yaml`: the adoption YAML for whoever holds the token. Reading it does not redeem the token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;

use super::agents::invalid;
use super::problem::Problem;
use crate::clock;
use crate::hub::registration::{self, Prefix, TokenText};
use crate::hub::{Hub, adoption};

pub fn routes() -> Router<Arc<Hub>> {
    Router::new().route("/adopt/{file}", get(adopt))
}

/// One answer, whatever is wrong with the token.
async fn adopt(State(hub): State<Arc<Hub>>, Path(file): Path<String>) -> Result<Response, Problem> {
    let text = file.strip_suffix(".yaml").unwrap_or_default();
    let token = TokenText::parse(Prefix::Join, text).ok_or_else(invalid)?;
    let record = hub.store.join_token(&token.id).await?;
    let record = registration::shows(&token, record, clock::now()).ok_or_else(invalid)?;
    let cluster = hub.store.cluster_by_id(&record.cluster_id).await?;
    let cluster = cluster
        .filter(|c| c.removed_at.is_none())
        .ok_or_else(invalid)?;
    let yaml = adoption::yaml(&hub, &cluster, &record.adoption, &token);
    let headers = [
        (header::CONTENT_TYPE, "application/yaml"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    Ok((headers, yaml).into_response())
}
