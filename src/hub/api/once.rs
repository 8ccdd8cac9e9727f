//! POSTs that come twice: by its Idempotency-Key a call is carried out once, and what it was answered comes again. Where that is
//! lost, what its changes left beside the key says whether anything was done. For the calls of the table that are marked so
//! ([`Repeat::Answered`]).

use std::sync::Arc;

use anyhow::Context as _;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::openapi::{Repeat, repeat};
use super::problem::{Problem, Slug};
use super::{Caller, precondition};
use crate::hub::auth::{self, Role};
use crate::hub::store::{Call, Called, calls, patience};
use crate::hub::{Hub, chain_of};
use crate::wire::api::MAX_BODY;
use crate::{clock, keys};

/// Of an answer that is kept.
const MOST: usize = 256 << 10;

/// What a call was answered.
#[derive(Serialize, Deserialize)]
struct Kept {
    status: u16,
    /// None = it was too long.
    body: Option<String>,
    /// What its caller was; none = a build of before kept it.
    #[serde(default)]
    roles: Vec<String>,
}

pub(super) async fn by_key(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let kind = path.and_then(|path| repeat(path.as_str()));
    if request.method() != Method::POST || kind != Some(Repeat::Answered) {
        return next.run(request).await;
    }
    let key = match precondition::key(request.headers()) {
        Ok(Some(key)) => key.to_owned(),
        Ok(None) => return next.run(request).await,
        Err(problem) => return problem.into_response(),
    };
    let done = once(&hub, key, request, next).await;
    done.unwrap_or_else(Problem::into_response)
}

async fn once(
    hub: &Arc<Hub>,
    key: String,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let user = auth::user(hub, request.headers()).await?;
    super::known(request.extensions());
    let (parts, body) = request.into_parts();
    let body = super::body(body, MAX_BODY).await?;
    let caller = Caller::new(user, &parts);
    let call = Call {
        user_id: caller.user.id.clone(),
        key,
        digest: digest(super::path_and_query(&parts), &body),
    };
    let began = clock::now();
    let known = hub.store.begin_call(&call, began).await;
    match known.map_err(precondition::not_noted)? {
        Called::First => {}
        Called::Running => return Err(running()),
        Called::Changed => return Err(changed()),
        Called::Before(kept) => return again(hub, &caller, &kept).await,
        Called::Other => return Err(precondition::mismatch()),
    }
    let request = Request::from_parts(parts, Body::from(body));
    // What was begun is finished, although the caller went away: it is who asks again.
    let work = hub.clone();
    let done = hub.work.spawn(patience::carried(async move {
        let answer = calls::within(call.clone(), began, next.run(request)).await;
        keep(&work, &call, &caller.user.roles, answer).await
    }));
    Ok(done.await.context("carry a call out once")?)
}

/// What a call asks for.
pub(super) fn digest(path: &str, body: &[u8]) -> [u8; 32] {
    let mut text = path.as_bytes().to_vec();
    text.push(0);
    text.extend_from_slice(body);
    keys::sha256(&text)
}

/// The same call is under way.
pub(super) fn running() -> Problem {
    Problem::new(
        Slug::Busy,
        "the same call is carried out just now",
        "ask again in a second",
    )
    .retry_after(1)
}

/// The same call stored what it changes, and nobody kept what it was answered.
pub(super) fn changed() -> Problem {
    Problem::new(
        Slug::Exists,
        "this call was carried out, all of it or a part, and its answer is lost",
        "look at what it changed; send a new Idempotency-Key where it is to be done again",
    )
}

/// Whether a call that was answered so may have stored a change.
fn is_in_doubt(answer: &Response) -> bool {
    let problem = answer.extensions().get::<Problem>();
    problem.is_none_or(|problem| {
        matches!(
            problem.slug,
            Slug::Unavailable | Slug::OutcomeUnknown | Slug::Internal
        )
    })
}

/// Keeps the answer to what was done; what was refused may be asked for again by the same key.
async fn keep(hub: &Hub, call: &Call, roles: &[Role], answer: Response) -> Response {
    let status = answer.status();
    let problem = answer.extensions().get::<Problem>();
    if problem.is_some_and(|problem| problem.slug == Slug::Busy) {
        // Of its repetition is what stands under the key.
        return answer;
    }
    if !status.is_success() {
        if is_in_doubt(&answer) {
            lose(hub, call).await;
        } else {
            end(hub, call, None).await;
        }
        return answer;
    }
    let (parts, body) = answer.into_parts();
    // The handler has made it whole already.
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        lose(hub, call).await;
        return Problem::from(anyhow::anyhow!("read the answer to a call")).into_response();
    };
    let text = (body.len() <= MOST).then(|| String::from_utf8_lossy(&body).into_owned());
    let kept = Kept {
        status: status.as_u16(),
        body: text,
        roles: roles.iter().map(|role| role.as_str().to_owned()).collect(),
    };
    let kept = serde_json::to_string(&kept).expect("an answer has no keys but its own");
    end(hub, call, Some(kept)).await;
    Response::from_parts(parts, Body::from(body))
}

pub(super) async fn end(hub: &Hub, call: &Call, answer: Option<String>) {
    if let Err(error) = hub.store.end_call(call, answer).await {
        // Until it is forgotten, whoever repeats it hears that it is carried out.
        tracing::warn!(error = chain_of(&error), "keep a call's answer");
    }
}

async fn lose(hub: &Hub, call: &Call) {
    if let Err(error) = hub.store.lose_call(call).await {
        // In a minute the next one finds out by itself.
        tracing::warn!(
            error = chain_of(&error),
            "note that a call's end is not known"
        );
    }
}

/// The answer of then, for a caller who has all the roles of then: by a narrower token, or with a role less, nobody is told what they
/// could not ask for any more.
async fn again(hub: &Hub, caller: &Caller, kept: &str) -> Result<Response, Problem> {
    let kept: Kept = serde_json::from_str(kept).context("read a call's answer")?;
    for role in kept.roles.iter().filter_map(|role| Role::parse(role)) {
        caller.require(hub, role, "call.repeat").await?;
    }
    let Some(body) = kept.body else {
        return Err(Problem::new(
            Slug::Exists,
            "this call was carried out; its answer was too long to be kept",
            "look at what it changed",
        ));
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(kept.status).context("read a call's answer")?;
    let json = HeaderValue::from_static("application/json");
    *response.headers_mut() = HeaderMap::from_iter([(header::CONTENT_TYPE, json)]);
    Ok(response)
}
