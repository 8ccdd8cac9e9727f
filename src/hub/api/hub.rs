//! TODO

use std::sync::Arc;

use axum::Router;

use crate::hub::Hub;

pub fn routes() -> Router<Arc<Hub>> {
    Router::new()
}
