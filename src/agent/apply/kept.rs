//! What others had set on an object of ours, put back with it.

use kube::api::{Patch, PatchParams};
use tracing::warn;

use super::{AtMost as _, CALL, Hands};
use crate::agent::engine::KEPT;
use crate::bundle::ObjectId;

impl Hands<'_> {
    /// Makes it others' again, so that our next apply, which does not name it, does not take it away. It is there already:
    /// where this fails, the object is as it has to be.
    pub(super) async fn keep(&self, id: &ObjectId) {
        let wanted = self.install.wanted.get(id);
        let Some(added) = wanted.and_then(|wanted| wanted.added.as_deref()) else {
            return;
        };
        let params = PatchParams::apply(KEPT).force();
        let (api, patch) = (self.api(id), Patch::Apply(added));
        let call = api.patch(&id.name, &params, &patch);
        match call.await_at_most(CALL).await {
            Ok(live) => drop(self.learn(id, live)),
            Err(error) => {
                warn!(%id, %error, "what others had set on it may go with the next change");
            }
        }
    }
}
