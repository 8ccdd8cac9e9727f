//! What is wanted and has lost the label by which it is selected, as where Git gives it another one. A watch by the label calls it
//! gone, and says nothing of it from then on; nor does a bookmark of that watch. So while there is any the watch is one of all that
//! the API has of the kind: it tells of every change at once and costs nothing where none is, and these kinds, all of the cluster
//! itself, change seldom. To ask for each by its name every few seconds would cost the API server more the more there are.

use kube::api::DynamicObject;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::starts::End;
use super::{CALL, Place, Scope, Selector, What};
use crate::agent::observe::View;
use crate::agent::plan::Observed;
use crate::bundle::ObjectId;

impl Scope {
    /// Whether a watch by the label says nothing of something that is known.
    pub(super) fn is_deaf(&self, seen: &Observed) -> bool {
        let Selector::Label(text) = &self.selector else {
            return false;
        };
        let Some((name, value)) = text.split_once('=') else {
            return false;
        };
        let mut known = self.wanted.iter().filter_map(|id| seen.objects.get(id));
        known.any(|live| live.label(name) != Some(value))
    }

    /// Until a list is due. True = at once, and without the watch beside it, which says nothing of something that is known.
    pub(super) async fn due(&self, view: &View, relist_at: Instant, wide: bool) -> bool {
        let by_label = !wide && matches!(self.selector, Selector::Label(_));
        tokio::select! {
            () = sleep_until(relist_at) => false,
            () = self.deafened(view), if by_label => true,
        }
    }

    /// Completes once it is: by what the watch or a list told, or by the answer to a write.
    async fn deafened(&self, view: &View) {
        let mut seen = view.subscribe();
        drop(seen.wait_for(|seen| self.is_deaf(seen)).await);
    }

    /// What the watch calls deleted. It goes on from there, however new the object is that its name finds: it may have yet to tell
    /// what happened to others before that.
    pub(super) async fn called_gone(&self, view: &View, place: &mut Place, gone: DynamicObject) {
        let version = gone.metadata.resource_version.clone();
        match self.astray(&gone, place.wide).await {
            Ok(Some(live)) => {
                place.note(&live, true);
                self.changed(view, live, place.floor);
                place.at(version);
            }
            Ok(None) => {
                place.note(&gone, false);
                place.at(self.deleted(view, gone, place.floor));
            }
            // Only a list tells what became of it, and no bookmark may put that off.
            Err(()) => place.ended(End::Lost),
        }
    }

    /// What a watch by a label calls deleted may only have lost the label: what its name finds.
    async fn astray(&self, gone: &DynamicObject, wide: bool) -> Result<Option<DynamicObject>, ()> {
        let (Selector::Label(_), What::Objects(kind), false) = (&self.selector, self.what, wide)
        else {
            return Ok(None);
        };
        let Some(id) = self.id(kind, gone) else {
            return Ok(None);
        };
        let live = self.by_name(&id).await?;
        Ok(live.filter(|live| live.metadata.uid == gone.metadata.uid))
    }

    pub(super) async fn by_name(&self, id: &ObjectId) -> Result<Option<DynamicObject>, ()> {
        match timeout(CALL, self.api.get_opt(&id.name)).await {
            Ok(Ok(live)) => Ok(live),
            Ok(Err(error)) => {
                debug!(%id, %error, "not found out whether it is there");
                Err(())
            }
            Err(_) => Err(()),
        }
    }
}
