//! Why the API server takes no Pods of a controller. Of a Deployment a condition says so. Of a StatefulSet only Events do, and
//! nobody watches those: there it is the answer to the agent's own question that counts ([`super::admission`]).

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::health::{pods_of, refused};
use super::state::{Object, Observed};
use crate::bundle::{Kind, ObjectId};

/// An answer that nobody gave anew for so long is of another time. It is asked for every ten seconds.
const FRESH: Duration = Duration::MINUTE;

/// What the API server answered when it was asked for a Pod of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Without the name that it made up for the Pod.
    pub said: String,
    pub at: OffsetDateTime,
}

impl Denial {
    /// `asked` is the name of the controller: what follows it in the name of the Pod is another one each time.
    pub fn new(at: OffsetDateTime, asked: &str, said: &str) -> Self {
        let prefix = format!("\"{asked}-");
        let mut parts = said.split(&prefix);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find('"').unwrap_or(part.len());
            text.push_str(&prefix);
            text.push_str(part.get(end..).unwrap_or_default());
        }
        Self { said: text, at }
    }
}

/// F34, F35, F36: what is in the way of a controller's Pods.
pub(super) fn barred(
    now: OffsetDateTime,
    observed: &Observed,
    (id, live): (&ObjectId, &Object),
) -> Option<(Class, String)> {
    refused(live).or_else(|| {
        let denied = observed
            .denied
            .get(id)
            .filter(|_| id.kind == Kind::StatefulSet);
        let denied = denied.filter(|denied| now - denied.at < FRESH)?;
        let has_pod = observed.pods_cut || pods_of(observed, &id.name).next().is_some();
        let class = class(&denied.said).filter(|_| !has_pod)?;
        Some((class, denied.said.clone()))
    })
}

/// Whose refusal it is; none for what no quota, policy or webhook has said.
pub(super) fn class(message: &str) -> Option<Class> {
    let has = |part: &str| message.contains(part);
    if has("exceeded quota") || has("insufficient quota") {
        Some(Class::QuotaBlocks)
    } else if has("violates PodSecurity") {
        Some(Class::PodSecurityBlocks)
    } else if has("failed calling webhook") || has("denied the request") {
        Some(Class::WebhookBlocks)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
