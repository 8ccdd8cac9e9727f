//! Why there is no login, and what to do then.

use std::time::Duration;

use crate::hub::audit::AuditError;
use crate::hub::chain_of;
use crate::hub::oidc::OidcError;
use crate::hub::oidc::claims::ClaimError;
use crate::hub::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    #[error(transparent)]
    Provider(#[from] OidcError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error("{why}")]
    Refused { why: String, next: String },
    /// What there is too much of, and how long until there is less.
    #[error("{0}")]
    TooMany(&'static str, Duration),
    #[error("the hub stops")]
    Stopping,
    /// It may come back with the next start of the hub, and the session is as it was.
    #[error("this hub has no identity provider now to ask about the session")]
    NoProvider,
    /// Of a login code; why it is not good, nobody is told.
    #[error("the login code is unknown, was used or replaced, or is older than ten minutes")]
    Code,
}

impl LoginError {
    pub(super) fn refused(why: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Refused {
            why: why.into(),
            next: next.into(),
        }
    }

    /// What a person is told, and does next.
    pub fn words(&self) -> (String, String) {
        match self {
            Self::Refused { why, next } => (why.clone(), next.clone()),
            Self::TooMany(why, wait) => (
                (*why).to_owned(),
                format!("try again in {} s", seconds(*wait)),
            ),
            Self::Stopping => (
                self.to_string(),
                "try again: another one takes its place".to_owned(),
            ),
            Self::NoProvider => (
                self.to_string(),
                "ask a hub admin, who starts it with --oidc-issuer".to_owned(),
            ),
            Self::Code => (
                self.to_string(),
                "ask a hub admin for another: linesman user login-code NAME".to_owned(),
            ),
            Self::Provider(error @ OidcError::Claims(ClaimError::LeftOut(_))) => (
                chain_of(error),
                "ask a hub admin: the provider is to send only the groups that are assigned to the hub, or app roles \
                 (--oidc-groups-claim roles)"
                    .to_owned(),
            ),
            Self::Provider(error) if error.is_final() => (
                chain_of(error),
                "log in again; if it stays, show this to a hub admin".to_owned(),
            ),
            Self::Provider(error) => (
                chain_of(error),
                "try again; if it stays, a hub admin runs: linesman doctor".to_owned(),
            ),
            Self::Store(_) | Self::Audit(_) => (
                "the hub's database does not answer".to_owned(),
                "try again; if it stays, look at the hub's log".to_owned(),
            ),
        }
    }
}

/// Whole seconds, in which so much time is over.
pub fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}
