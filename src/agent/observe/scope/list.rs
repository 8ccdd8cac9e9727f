//! The whole of what there is, page by page, and what an answer without it says.

use std::time::Duration;

use kube::api::ListParams;
use tracing::{debug, warn};

use super::{CALL, RELIST, Scope, Selector};
use crate::agent::observe::found::Found;
use crate::agent::observe::{Page, Unread, View};
use crate::agent::plan::Observed;
use crate::agent::plan::state::Answer;
use crate::bundle::ObjectId;

/// Objects of one answer, at most.
const PAGE: u32 = 100;

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
        let mut pages = view.pages(&self.api, params, CALL);
        loop {
            let take = |live| found.add(live, &self.home, |kind, live| self.id(kind, live));
            let page = pages.next(take).await;
            match page {
                Ok(Page::More) => {}
                Ok(Page::Last(version)) => {
                    if !self.add_astray(&mut found).await {
                        return Listed::Failed(Duration::ZERO);
                    }
                    return Listed::Whole(found, version);
                }
                Err(Unread::Kube(kube::Error::Api(status))) if status.code == 404 => {
                    Found::nothing(self.what).put(view, Answer::Nothing);
                    return Listed::Unserved;
                }
                Err(Unread::Kube(kube::Error::Api(status))) if status.code == 403 => {
                    return self.refused(view);
                }
                // Nothing is known of the kind for as long. It is as large a moment later, and to find that takes four pages.
                Err(error @ Unread::Large(_)) => {
                    warn!(what = ?self.what, %error, "list failed");
                    return Listed::Failed(RELIST);
                }
                Err(error @ (Unread::Late(_) | Unread::Kube(_))) => {
                    debug!(what = ?self.what, %error, "list failed");
                    return Listed::Failed(Duration::ZERO);
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
    /// The next one comes no sooner than after so long.
    Failed(Duration),
}
