//! Problems as RFC 9457 tells them. The slugs are a closed set (`docs/protocol.md`).

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::hub::audit::AuditError;
use crate::hub::auth::AuthError;
use crate::hub::store::StoreError;
use crate::hub::store::away::MEANWHILE;
use crate::wire::api;

macro_rules! slugs {
    ($($name:ident $slug:literal $status:ident $title:literal;)*) => {
        /// What can go wrong, as programs tell it apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Slug { $($name),* }

        impl Slug {
            pub const ALL: &[Self] = &[$(Self::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $slug),* }
            }

            pub fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status),* }
            }

            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title),* }
            }
        }
    };
}

slugs! {
    BadRequest "bad-request" BAD_REQUEST "The request cannot be read";
    UnknownField "unknown-field" BAD_REQUEST "The body has a field that the hub does not know";
    BundleInvalid "bundle-invalid" UNPROCESSABLE_ENTITY "The file is not an engine's install manifest";
    LoginRequired "login-required" UNAUTHORIZED "Log in";
    SessionEnded "session-ended" UNAUTHORIZED "The session has ended";
    AuthorizationPending "authorization-pending" BAD_REQUEST "Nobody has logged the device in yet";
    SlowDown "slow-down" BAD_REQUEST "Ask less often";
    AccessDenied "access-denied" BAD_REQUEST "The login was refused";
    ExpiredToken "expired-token" BAD_REQUEST "The login took too long";
    TokenInvalid "token-invalid" UNAUTHORIZED "The join token is not valid";
    StaleSignature "stale-signature" UNAUTHORIZED "The signature's time is not the hub's";
    Unsigned "unsigned" UNAUTHORIZED "The call is not signed";
    BadSignature "bad-signature" FORBIDDEN "The signature does not fit the call";
    UnknownIdentity "unknown-identity" FORBIDDEN "The key is not registered here";
    Revoked "revoked" FORBIDDEN "The key was revoked";
    RecoveryManual "recovery-manual" FORBIDDEN "This hub lets no cluster recover by itself";
    NotAllowed "not-allowed" FORBIDDEN "Your roles do not allow this";
    NotFound "not-found" NOT_FOUND "There is no such thing";
    BundleUnknown "bundle-unknown" NOT_FOUND "The hub does not have this bundle";
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED "The path has no such method";
    Exists "exists" CONFLICT "It exists already";
    TokenRedeemed "token-redeemed" CONFLICT "Another key has redeemed the join token";
    KeyKnown "key-known" CONFLICT "The identity key belongs to another cluster or was revoked";
    LineLive "line-live" CONFLICT "The cluster was heard too lately";
    IncarnationChanged "incarnation-changed" CONFLICT "The cluster is another one than before";
    OtherEngine "other-engine" CONFLICT "The cluster has another engine";
    EngineFromGit "engine-from-git" CONFLICT "Somebody else installs the cluster's engine";
    KubernetesTooOld "kubernetes-too-old" CONFLICT "The cluster is too old for this version";
    NoBundle "no-bundle" CONFLICT "The hub has no bundle of this engine";
    BundleInUse "bundle-in-use" CONFLICT "Clusters need this bundle";
    Removed "removed" GONE "The cluster was removed";
    PreconditionFailed "precondition-failed" PRECONDITION_FAILED "The record changed meanwhile";
    PreconditionRequired "precondition-required" PRECONDITION_REQUIRED "Say which revision you mean";
    BodyTooLarge "body-too-large" PAYLOAD_TOO_LARGE "The body is too large";
    IdempotencyMismatch "idempotency-mismatch" UNPROCESSABLE_ENTITY "The Idempotency-Key was used for another body";
    ProtocolUnsupported "protocol-unsupported" UPGRADE_REQUIRED "Agent and hub have no protocol in common";
    LastAdmin "last-admin" CONFLICT "Nobody could administer the hub any more";
    HeadUnsigned "head-unsigned" CONFLICT "Clusters would refuse the catalog's head";
    HostKeyNeeded "host-key-needed" CONFLICT "Clusters need the host key";
    Full "full" CONFLICT "A bound of the hub is reached";
    Busy "busy" TOO_MANY_REQUESTS "The hub is busy";
    Internal "internal" INTERNAL_SERVER_ERROR "The hub failed";
    ProviderUnavailable "provider-unavailable" BAD_GATEWAY "The identity provider does not answer as it should";
    OutcomeUnknown "outcome-unknown" SERVICE_UNAVAILABLE "It is not known whether this was done";
    Unavailable "unavailable" SERVICE_UNAVAILABLE "The hub cannot do this now";
}

/// A refusal or failure on its way to the caller; the request's id is put in where the answer leaves.
#[derive(Debug, Clone)]
pub struct Problem {
    pub slug: Slug,
    pub detail: String,
    pub next: String,
    pub more: BTreeMap<String, String>,
    pub retry_after: Option<u32>,
}

impl Problem {
    pub fn new(slug: Slug, detail: impl Into<String>, next: impl Into<String>) -> Self {
        Self {
            slug,
            detail: detail.into(),
            next: next.into(),
            more: BTreeMap::new(),
            retry_after: None,
        }
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: &impl ToString) -> Self {
        self.more.insert(key.to_owned(), value.to_string());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(
            Slug::NotFound,
            format!("there is no {what}"),
            "check the name",
        )
    }

    /// What the hub's log says once.
    fn away(since: &str) -> Self {
        Self::new(
            Slug::Unavailable,
            format!("the hub's database is away since {since}: {MEANWHILE}"),
            "try again when it is back; why it is away is in the hub's log, at that time",
        )
        .retry_after(1)
    }

    /// The answer as the caller sees it.
    pub fn render(&self, request_id: &str) -> Response {
        let body = api::Problem {
            kind: format!("urn:linesman:problem:{}", self.slug.as_str()),
            title: self.slug.title().to_owned(),
            status: self.slug.status().as_u16(),
            detail: self.detail.clone(),
            hop: "hub".to_owned(),
            next: self.next.clone(),
            request_id: request_id.to_owned(),
            more: self.more.clone(),
        };
        let text = serde_json::to_string(&body).expect("a problem has string keys");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.slug.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.slug == Slug::LoginRequired {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"linesman\""),
            );
        }
        response
    }
}

/// Handlers do not know the request's id: the outermost layer renders what it finds here.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.slug.status();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if error.is_of_disk() {
            tracing::error!(error = %crate::hub::chain_of(&error), "the database's disk refused a request");
            return Self::new(
                Slug::Unavailable,
                "the disk of the hub's database is full or failing",
                "make room on the hub's machine (df -h of its data directory), then try again",
            )
            .retry_after(1);
        }
        match error {
            StoreError::Exists(what) => Self::new(
                Slug::Exists,
                format!("{what} already exists"),
                "choose another name, or use the one that is there",
            ),
            StoreError::NoBundle(_) => Self::new(
                Slug::BundleUnknown,
                error.to_string(),
                "somebody removed it a moment ago; choose another one: linesman engine list",
            ),
            StoreError::Full(what) => Self::new(
                Slug::Full,
                what,
                "revoke or remove what is not needed any more",
            ),
            StoreError::Text(_) => Self::new(
                Slug::BadRequest,
                error.to_string(),
                "leave that character out",
            ),
            StoreError::Overtaken(_) => Self::new(
                Slug::Busy,
                "the same call is carried out anew by now",
                "ask again in a second",
            )
            .retry_after(1),
            StoreError::TooLong(_) => Self::new(
                Slug::Unavailable,
                error.to_string(),
                "ask for less: by --since, --user or --cluster",
            ),
            StoreError::Away { since, .. } => Self::away(&since),
            StoreError::Refused(_)
            | StoreError::Database { .. }
            | StoreError::Silent(_)
            | StoreError::OtherEnd(_) => {
                tracing::error!(error = %crate::hub::chain_of(&error), "the database refused a request");
                Self::new(
                    Slug::Unavailable,
                    "the hub's database does not answer",
                    "try again; if it stays, look at the hub's log, and at its disk or database",
                )
                .retry_after(1)
            }
            StoreError::Corrupt { .. } => {
                tracing::error!(error = %crate::hub::chain_of(&error), "a record cannot be read");
                Self::new(
                    Slug::Internal,
                    "a record in the hub's database cannot be read",
                    "look at the hub's log",
                )
            }
        }
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        Self::new(
            Slug::Unavailable,
            error.to_string(),
            "try again; if it stays, look at the hub's log, and at its disk or database",
        )
        .retry_after(1)
    }
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        let away = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
            Some(StoreError::Away { since, .. }) => Some(since.clone()),
            _ => None,
        };
        if let Some(since) = error.chain().find_map(away) {
            return Self::away(&since);
        }
        tracing::error!(error = format!("{error:#}"), "request failed");
        Self::new(
            Slug::Internal,
            "the hub failed to carry the request out",
            "look for the request's id in the hub's log",
        )
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        let text = error.to_string();
        match error {
            AuthError::Missing | AuthError::Invalid => {
                Self::new(Slug::LoginRequired, text, "run: linesman login HUB")
            }
            AuthError::Unvouched => Self::new(
                Slug::LoginRequired,
                text,
                "its user logs in once, and the token works again: linesman login HUB",
            ),
            AuthError::Unsigned => Self::new(
                Slug::Unsigned,
                text,
                "sign the call with the cluster's identity key",
            ),
            AuthError::BadSignature => Self::new(
                Slug::BadSignature,
                text,
                "check that agent and hub agree on the hub's id and that no proxy rewrites the path",
            ),
            AuthError::Stale { now } => Self::new(
                Slug::StaleSignature,
                text,
                "sign again with the hub's time, the member 'now'",
            )
            .with("now", &now),
            AuthError::UnknownIdentity => Self::new(
                Slug::UnknownIdentity,
                text,
                "run: linesman cluster readopt NAME, and apply the new YAML in the cluster",
            ),
            AuthError::Revoked => Self::new(
                Slug::Revoked,
                text,
                "run: linesman cluster readopt NAME, and apply the new YAML in the cluster",
            ),
            AuthError::Removed => Self::new(
                Slug::Removed,
                text,
                "delete the agent, or add the cluster again: linesman cluster add NAME",
            ),
            AuthError::Store(source) => source.into(),
        }
    }
}
