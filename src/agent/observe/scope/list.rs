//! The whole of what there is, page by page, and what an answer without it says.

use kube::api::ListParams;
use tokio::time::timeout;
use tracing::debug;

use super::{CALL, Scope, Selector};
use crate::agent::observe::View;
use crate::agent::observe::found::Found;
use crate::agent::plan::Observed;
use crate::agent::plan::state::Answer;
use crate::bundle::ObjectId;

/// Objects of one answer; sync objects with their inventories can be large.
const PAGE: u32 = 100;

/// How many objects are asked for where so many did not come in time: a hundred Applications of a megabyte each are more than a
/// slow way brings within a call, and would never be known.
pub(in crate::agent) fn fewer(limit: u32) -> Option<u32> {
    (limit >= 10).then_some(limit / 5)
}

impl Scope {
    /// Takes nothing in but that there is nothing, or that it is not shown.
    pub(super) async fn list(&self, view: &View) -> Listed {
        let mut params = ListParams::default().limit(PAGE);
        match &self.selector {
            Selector::All => {}
            Selector::Field(text) => params = params.fields(text),
            Selector::Label(text) => params = params.labels(text),
        }
        let mut found = Found::nothing(self.what);
        loop {
            match timeout(CALL, self.api.list(&params)).await {
                Ok(Ok(page)) => {
                    for live in page.items {
                        found.add(live, &self.home, |kind, live| self.id(kind, live));
                    }
                    let next = page.metadata.continue_.unwrap_or_default();
                    if next.is_empty() {
                        if !self.add_astray(&mut found).await {
                            return Listed::Failed;
                        }
                        let version = page.metadata.resource_version.unwrap_or_default();
                        return Listed::Whole(found, version);
                    }
                    params = params.continue_token(&next);
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    Found::nothing(self.what).put(view, Answer::Nothing);
                    return Listed::Unserved;
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                    return self.refused(view);
                }
                Ok(Err(error)) => {
                    debug!(what = ?self.what, %error, "list failed");
                    return Listed::Failed;
                }
                Err(_) => {
                    debug!(what = ?self.what, limit = params.limit, "list timed out");
                    // From the same place on: the token says where, not how many.
                    match params.limit.and_then(fewer) {
                        Some(fewer) => params.limit = Some(fewer),
                        None => return Listed::Failed,
                    }
                }
            }
        }
    }

    /// Adds what is wanted and has another label than it was selected by: only what its name does not find is not there. False =
    /// nothing is known of one of them.
    async fn add_astray(&self, found: &mut Found) -> bool {
        if !matches!(self.selector, Selector::Label(_)) {
            return true;
        }
        let missed = self.wanted.iter().filter(|id| !found.has(id));
        for id in missed.cloned().collect::<Vec<_>>() {
            match self.by_name(&id).await {
                Ok(Some(live)) => found.add(live, &self.home, |kind, live| self.id(kind, live)),
                Ok(None) => {}
                Err(()) => return false,
            }
        }
        true
    }

    fn refused(&self, view: &View) -> Listed {
        let nothing = self.optional() || unbound(&view.0.borrow(), &self.rights);
        if nothing {
            Found::nothing(self.what).put(view, Answer::Nothing);
        } else {
            debug!(what = ?self.what, "list refused");
            Found::refused(self.what, view);
        }
        Listed::Unserved
    }
}

/// The rights in the engine's namespace go with it, and are given anew where it is made anew: without it or them there is
/// nothing there yet. Any other refusal says nothing of what is there.
fn unbound(seen: &Observed, rights: &[ObjectId]) -> bool {
    rights.iter().any(|rights| {
        let listed = seen.scopes.get(&rights.kind).and_then(|s| s.answered);
        listed.is_some() && !seen.objects.contains_key(rights)
    })
}

pub(super) enum Listed {
    /// All that there was at this resourceVersion.
    Whole(Found, String),
    /// The API server does not know the kind, or does not let the agent see it.
    Unserved,
    Failed,
}
