//! Whoever calls as a person: what they may is asked here, and what they change is put on record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use http::request::Parts;

use super::problem::{Problem, Slug};
use super::{LOST, known, remote, request_id};
use crate::hub::Hub;
use crate::hub::audit::{Entry, Verdict};
use crate::hub::auth::{self, Role, User};
use crate::hub::store::patience;

/// Who calls, from where, under which id: what handlers for people begin with.
pub struct Caller {
    pub user: User,
    pub request_id: String,
    pub remote: String,
    /// The change that was put on record last.
    recorded: Mutex<Option<Entry>>,
}

impl FromRequestParts<Arc<Hub>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Problem> {
        let user = auth::user(hub, &parts.headers).await?;
        known(&parts.extensions);
        patience::judged();
        Ok(Self::new(user, parts))
    }
}

impl Caller {
    pub(super) fn new(user: User, parts: &Parts) -> Self {
        Self {
            user,
            request_id: request_id(parts),
            remote: remote(parts),
            recorded: Mutex::default(),
        }
    }

    pub(crate) fn entry(&self, action: &str, cluster: Option<&str>, target: &str) -> Entry {
        Entry {
            actor: format!("user:{}", self.user.name),
            action: action.to_owned(),
            cluster: cluster.map(str::to_owned),
            target: target.to_owned(),
            request_id: self.request_id.clone(),
            remote: self.remote.clone(),
            ..Entry::default()
        }
    }

    /// Refuses, on record, whoever lacks the role.
    pub async fn require(&self, hub: &Hub, role: Role, action: &str) -> Result<(), Problem> {
        if self.user.is(role) {
            return Ok(());
        }
        let reason = format!("{} lacks the role {}", self.user.name, role.as_str());
        self.denied(hub, action, &reason).await?;
        let (reason, next) = match self.user.lapsed {
            None => (reason, "ask a hub admin for the role"),
            Some(why) => (format!("{reason}; {why}"), auth::LOG_IN),
        };
        Err(Problem::new(Slug::NotAllowed, reason, next))
    }

    /// Refuses, on record, a token with scopes that is no admin's: what it makes could do more than it, and would outlive it.
    pub async fn unscoped(&self, hub: &Hub, action: &str) -> Result<(), Problem> {
        if !self.user.scoped || self.user.is(Role::Admin) {
            return Ok(());
        }
        let reason = format!("the token of {} has scopes", self.user.name);
        self.denied(hub, action, &reason).await?;
        Err(Problem::new(
            Slug::NotAllowed,
            format!("{reason}, and makes neither tokens nor keys"),
            "run: linesman login HUB; or use a token without scopes",
        ))
    }

    async fn denied(&self, hub: &Hub, action: &str, reason: &str) -> Result<(), Problem> {
        let entry = Entry {
            reason: Some(reason.to_owned()),
            code: Some(Slug::NotAllowed.status().as_u16()),
            ..self.entry(action, None, "")
        };
        Ok(hub.audit.denied(entry).await?)
    }

    /// Puts a change on record before it is made; a change that cannot be recorded is not made.
    pub async fn record(
        &self,
        hub: &Hub,
        action: &str,
        cluster: Option<&str>,
        target: &str,
    ) -> Result<(), Problem> {
        let entry = self.entry(action, cluster, target);
        hub.audit.change(entry.clone()).await?;
        *self.recorded() = Some(entry);
        Ok(())
    }

    /// Puts on record that the change of the last record was not made, because somebody else's came before it.
    pub async fn lost(&self, hub: &Hub) -> Result<(), Problem> {
        self.not_made(hub, LOST.to_owned()).await
    }

    /// Puts on record that the change of the last record made nothing new: it is `what`, of the same call that came before.
    pub async fn came_before(&self, hub: &Hub, what: &str) -> Result<(), Problem> {
        self.not_made(hub, format!("not made: it is {what}")).await
    }

    /// What came of the change of the last record. Where it is refused after all, the record says that it was not made; of what
    /// only failed nobody knows that.
    pub async fn outcome<T>(&self, hub: &Hub, made: Result<T, Problem>) -> Result<T, Problem> {
        let refused = made.as_ref().err().map(|problem| problem.slug);
        if let Some(slug) = refused.filter(|slug| is_refusal(*slug)) {
            let why = format!("not made: {}", slug.as_str());
            self.not_made(hub, why).await?;
        }
        made
    }

    async fn not_made(&self, hub: &Hub, why: String) -> Result<(), Problem> {
        let recorded = self.recorded().take();
        let Some(entry) = recorded else { return Ok(()) };
        let entry = Entry {
            verdict: Verdict::Deny,
            reason: Some(why),
            ..entry
        };
        Ok(hub.audit.event(entry).await?)
    }

    fn recorded(&self) -> MutexGuard<'_, Option<Entry>> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the hub has judged: all else may be done in part, or by another call.
fn is_refusal(slug: Slug) -> bool {
    slug.status().is_client_error() && slug != Slug::Busy
}
