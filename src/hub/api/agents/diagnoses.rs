//! `POST /v1/clusters/{name}/diagnoses`: an agent's answer to the order to diagnose.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use http::StatusCode;

use super::super::problem::Problem;
use super::bounds::{MAX_TEXT, shorten};
use super::{Came, own, parsed};
use crate::hub::Hub;
use crate::hub::auth::AgentPrincipal;
use crate::wire::api::DiagnosisAnswer;

/// An engine has less than thirty.
const MAX_COMPONENTS: usize = 100;

pub(super) async fn answer(
    State(hub): State<Arc<Hub>>,
    Extension(agent): Extension<AgentPrincipal>,
    Extension(came): Extension<Came>,
    Path(name): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let cluster = own(&hub, &agent, &name, came).await?;
    let mut answer: DiagnosisAnswer = parsed(request).await?;
    answer.components.truncate(MAX_COMPONENTS);
    shorten(&mut answer.at, 40);
    for component in &mut answer.components {
        for text in [
            &mut component.name,
            &mut component.found,
            &mut component.fix,
        ] {
            shorten(text, MAX_TEXT);
        }
    }
    if hub.diagnoses.answer(&cluster.name, answer) {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("question that waits for this answer"))
    }
}
