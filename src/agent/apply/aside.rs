//! A sync object that no controller can read, at the API server.

use anyhow::{Result, anyhow};
use kube::api::{Patch, PatchParams};

use super::{AtMost as _, CALL, Hands, Refused};
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine::MANAGER;
use crate::agent::plan::undecodable::aside::Turn;
use crate::bundle::ObjectId;

impl Hands<'_> {
    pub(super) async fn aside(&self, id: &ObjectId, turn: &Turn) -> Result<Outcome> {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&turn.patch);
        let api = self.api(id);
        match api
            .patch(&id.name, &params, &patch)
            .await_at_most(CALL)
            .await
        {
            Ok(live) => {
                self.view.heard(&self.install.namespace, id, &live);
                Ok(Outcome::Done)
            }
            // Somebody was faster, perhaps with the correction: what is there now is looked at anew.
            Err(Refused::Status(status)) if matches!(status.code, 404 | 409) => Ok(
                Outcome::Unserved(status.message.chars().take(500).collect()),
            ),
            Err(refused) => Err(anyhow!(refused).context(format!("patch {id}"))),
        }
    }
}
