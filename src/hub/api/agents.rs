//! The agents' calls: signed over HTTPS, or proven already on the line.

use std::sync::Arc;

use axum::Router;

use crate::hub::Hub;
use crate::hub::auth::AgentPrincipal;

pub fn routes(hub: Arc<Hub>) -> Router<Arc<Hub>> {
    drop(hub);
    Router::new()
}

/// The same routes for a stream of kind `report`, whose agent the line has proven.
pub fn line_router(hub: Arc<Hub>, agent: AgentPrincipal) -> Router {
    Router::new().layer(axum::Extension(agent)).with_state(hub)
}
