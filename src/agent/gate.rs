//! The agent's own judgement of each request on the line. The hub is not trusted blindly: it can only ask
//! for less than the cluster's owner allows. Pure; the order of the checks is part of the contract:
//! off and hours, assertion, replay, names, groups, path, protocol switch, mode, covered namespaces, namespaces, what is the
//! agent's own.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used))]

use std::collections::BTreeSet;
use std::time::Instant;

use http::{Method, StatusCode, Uri};
use time::OffsetDateTime;

use crate::assertion::{self, ApiMeta, AssertionError, Claims, Expected, Mode};
use crate::kubeapi::path::{self, RequestInfo, Upgrade};
use crate::kubeapi::scope;
use crate::kubeapi::status::{Hop, Refusal};
use crate::wire::api::HubKey;

mod own;
pub mod policy;
pub mod replay;

use policy::Policy;
use replay::{Replay, Seen};

/// Namespaces that a refusal spells out.
const NAMED: usize = 10;
/// The reason where hub and agent do not agree on the time.
pub const CLOCK: &str = "Clock";

/// What the request is held against, besides the policy.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    pub hub: &'a str,
    pub cluster: &'a str,
    pub homes: Homes<'a>,
    pub epoch: u64,
    pub keyset: &'a [HubKey],
    /// The hub's clock, as the line's handshake gave it.
    pub hub_now: OffsetDateTime,
    /// This node's own clock: by it the owner's hours are judged, whatever the hub says the time is.
    pub own_now: OffsetDateTime,
    /// When this is, on the clock that nobody sets.
    pub at: Instant,
    pub covered: &'a Covered,
}

/// Namespaces with private keys of the cluster, beside Flux' own.
#[derive(Debug, Clone, Copy)]
pub struct Homes<'a> {
    pub agent: &'a str,
    /// Where Argo CD is, or would be.
    pub argocd: &'a str,
}

/// Where requests may lie at all, by what the owner adopted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covered {
    Cluster,
    /// `ConfigMap` `linesman-scope` was not read yet.
    Unread,
    Namespaces(BTreeSet<String>),
}

/// One request as the agent parsed it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub meta: &'a ApiMeta,
    pub upgrade: Option<Upgrade>,
}

/// A request that may go to the API server, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    pub claims: Claims,
    pub info: RequestInfo,
    /// Goes in the place of the request's own query: a list leaves out what the owner does not show.
    pub query: Option<String>,
}

/// Judges one request.
pub fn check(
    policy: &Policy,
    session: &Session<'_>,
    request: &Request<'_>,
    replay: &mut Replay,
) -> Result<Pass, Refusal> {
    open(policy, session.own_now)?;
    let claims = asserted(session, request)?;
    fresh(&claims, session, replay)?;
    names(policy, &claims)?;
    path::method(request.method, Hop::Agent)?;
    let info = path::classify(request.method, request.uri.path(), request.uri.query())
        .map_err(|e| e.refusal(Hop::Agent))?;
    switches(policy, &info, request.upgrade)?;
    mode(policy, &claims, &info)?;
    covered(session.covered, &info)?;
    namespaces(policy, &claims, &info)?;
    let query = own::check(policy, session.homes, &info, request.uri.query())?;
    Ok(Pass {
        claims,
        info,
        query,
    })
}

/// A request that was let pass and runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub claims: Claims,
    pub info: RequestInfo,
    /// As it went to the API server.
    pub query: Option<String>,
    /// The UID of the Secret that the token is bound to with which it went. Its end is no matter of the gate's.
    pub bound: String,
}

/// Judges what runs by what the owner says now. Its assertion held when it began, and is not asked for again.
pub fn again(
    policy: &Policy,
    homes: Homes<'_>,
    (lies, own_now): (&Covered, OffsetDateTime),
    running: &Running,
) -> Result<(), Refusal> {
    let Running {
        claims,
        info,
        query,
        bound: _,
    } = running;
    open(policy, own_now)?;
    names(policy, claims)?;
    switches(policy, info, None)?;
    mode(policy, claims, info)?;
    covered(lies, info)?;
    namespaces(policy, claims, info)?;
    own::still(policy, homes, info, query.as_deref())
}

fn denied(reason: &'static str, what: impl Into<String>, key: &str) -> Refusal {
    Refusal::new(Hop::Agent, StatusCode::FORBIDDEN, reason, what).next(format!(
        "ask the cluster's owner to change '{key}' in ConfigMap linesman-policy"
    ))
}

fn open(policy: &Policy, now: OffsetDateTime) -> Result<(), Refusal> {
    if !policy.line {
        return Err(denied(
            "LineOff",
            "the cluster's owner has switched access through the line off",
            "line",
        ));
    }
    match &policy.hours {
        Some(hours) if !hours.contain(now) => Err(denied(
            "OutOfHours",
            format!(
                "access through the line is open {hours} (UTC) only, and by the agent's clock it is {}",
                policy::moment(now)
            ),
            "hours",
        )),
        _ => Ok(()),
    }
}

fn asserted(session: &Session<'_>, request: &Request<'_>) -> Result<Claims, Refusal> {
    let target = request
        .uri
        .path_and_query()
        .map_or("", http::uri::PathAndQuery::as_str);
    let expected = Expected {
        hub: session.hub,
        cluster: session.cluster,
        epoch: session.epoch,
        method: request.method.as_str(),
        target,
        now: session.hub_now.unix_timestamp(),
    };
    assertion::verify(&request.meta.assertion, session.keyset, &expected).map_err(|e| {
        if e == AssertionError::Time {
            return Refusal::new(
                Hop::Agent,
                StatusCode::SERVICE_UNAVAILABLE,
                CLOCK,
                e.to_string(),
            )
            .next("repeat the request; if it stays, run 'linesman doctor'")
            .retry_after(1);
        }
        Refusal::new(
            Hop::Agent,
            StatusCode::FORBIDDEN,
            "Assertion",
            e.to_string(),
        )
        .next("repeat the request; if it stays, run 'linesman doctor'")
    })
}

fn fresh(claims: &Claims, session: &Session<'_>, replay: &mut Replay) -> Result<(), Refusal> {
    let user = claims.act.as_ref().map_or(&claims.sub, |act| &act.sub);
    match replay.see(&claims.jti, user, session.at) {
        Seen::New => Ok(()),
        Seen::Before => Err(Refusal::new(
            Hop::Agent,
            StatusCode::FORBIDDEN,
            "Replay",
            "the assertion was used before",
        )
        .next("repeat the request")),
        Seen::Full => Err(Refusal::new(
            Hop::Agent,
            StatusCode::TOO_MANY_REQUESTS,
            "Busy",
            "too many requests within 90 s",
        )
        .next("repeat it later")
        .retry_after(1)),
    }
}

fn names(policy: &Policy, claims: &Claims) -> Result<(), Refusal> {
    let bad = |name: &String| !well_named(name);
    if let Some(name) = std::iter::once(&claims.sub)
        .chain(&claims.grp)
        .chain(claims.act.as_ref().map(|actor| &actor.sub))
        .find(|name| bad(name))
    {
        let shown: String = name.chars().take(80).collect();
        return Err(Refusal::new(
            Hop::Agent,
            StatusCode::FORBIDDEN,
            "Name",
            format!("'{shown}' is not a name that the line may act as"),
        )
        .next("names are linesman: and 1 to 200 of A-Z a-z 0-9 . _ @ + : -"));
    }
    if claims.grp.len() > policy.max_groups {
        let what = format!(
            "{} groups, more than {}",
            claims.grp.len(),
            policy.max_groups
        );
        return Err(denied("Groups", what, "maxGroups"));
    }
    if !claims
        .request_id()
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        || claims.jti.len() > 64
    {
        return Err(Refusal::new(
            Hop::Agent,
            StatusCode::FORBIDDEN,
            "RequestId",
            "the request id is malformed",
        )
        .next("upgrade the hub"));
    }
    Ok(())
}

/// `linesman:[A-Za-z0-9._@+:-]{1,200}`: never a `system:` name, a wildcard or an empty one.
pub fn well_named(name: &str) -> bool {
    let rest = name.strip_prefix("linesman:").unwrap_or_default();
    (1..=200).contains(&rest.len())
        && rest.bytes().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'+' | b':' | b'-')
        })
}

fn switches(policy: &Policy, info: &RequestInfo, upgrade: Option<Upgrade>) -> Result<(), Refusal> {
    if let Some(token) = upgrade
        && !info.may_upgrade(token)
    {
        let what = format!("a switch to {} is not allowed on this path", token.as_str());
        return Err(
            Refusal::new(Hop::Agent, StatusCode::BAD_REQUEST, "Upgrade", what)
                .next("use exec, attach, port-forward, proxy, log or watch"),
        );
    }
    if info.node_proxy() && !policy.node_proxy {
        return Err(denied(
            "NodeProxy",
            "nodes/proxy reaches every pod of a node, past RBAC on pods",
            "nodeProxy",
        ));
    }
    Ok(())
}

fn mode(policy: &Policy, claims: &Claims, info: &RequestInfo) -> Result<(), Refusal> {
    let read_only = policy.read_only || claims.mode == Mode::Read;
    if !read_only || scope::reads(info) {
        return Ok(());
    }
    let what = format!(
        "'{}' is more than reading, and access is read-only",
        scope::describe(info)
    );
    if policy.read_only {
        return Err(denied("ReadOnly", what, "readOnly"));
    }
    Err(
        Refusal::new(Hop::Agent, StatusCode::FORBIDDEN, "ReadOnly", what)
            .next("ask the hub's admin for a full grant"),
    )
}

/// The namespaces of the adoption, where it was not of the whole cluster.
fn covered(covered: &Covered, info: &RequestInfo) -> Result<(), Refusal> {
    let none = BTreeSet::new();
    let allowed = match covered {
        Covered::Cluster => return Ok(()),
        Covered::Unread => &none,
        Covered::Namespaces(names) => names,
    };
    if scope::within(info, allowed) {
        return Ok(());
    }
    Err(Refusal::new(
        Hop::Agent,
        StatusCode::FORBIDDEN,
        "Scope",
        outside(info, allowed),
    )
    .next("ask the cluster's owner to apply adoption YAML that covers it: the list is ConfigMap linesman-scope"))
}

/// The owner's namespaces and the grant's, each where there are any.
fn namespaces(policy: &Policy, claims: &Claims, info: &RequestInfo) -> Result<(), Refusal> {
    if let Some(allowed) = &policy.namespaces
        && !scope::within(info, allowed)
    {
        return Err(denied("Namespace", outside(info, allowed), "namespaces"));
    }
    match &claims.ns {
        Some(granted) if !scope::within(info, granted) => Err(Refusal::new(
            Hop::Agent,
            StatusCode::FORBIDDEN,
            "Namespace",
            outside(info, granted),
        )
        .next("ask the hub's admin for a wider grant")),
        _ => Ok(()),
    }
}

fn outside(info: &RequestInfo, allowed: &BTreeSet<String>) -> String {
    let mut list: Vec<&str> = allowed.iter().map(String::as_str).take(NAMED).collect();
    if allowed.is_empty() {
        list.push("none");
    }
    if allowed.len() > NAMED {
        list.push("others");
    }
    let list = list.join(", ");
    if scope::changes_namespace(info) {
        return format!(
            "'{}' changes a namespace itself, and access is to what lies in {list}",
            scope::describe(info)
        );
    }
    if info.namespace.is_empty() {
        format!(
            "'{}' is not within the namespaces {list}",
            scope::describe(info)
        )
    } else {
        format!("namespace {} is not among {list}", info.namespace)
    }
}

#[cfg(test)]
mod tests;
