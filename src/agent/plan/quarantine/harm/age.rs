//! How old a version of an object is: by the clock of the agent, which saw it, and not by that of the API server, which may show
//! another time. Pure.

use time::OffsetDateTime;

use crate::agent::engine::Install;
use crate::agent::plan::state::{History, Observed};
use crate::bundle::ObjectId;

impl History {
    /// Notes since when the engine's objects are as they are. One that is away for a while, or not known yet, may come back as it was.
    pub(in crate::agent::plan) fn saw_versions(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        for id in install.wanted.keys() {
            let live = observed.objects.get(id);
            let Some(written) = live.and_then(|live| live.written) else {
                continue;
            };
            let known = self.versions.get(id);
            if known.is_none_or(|(at, _)| *at != written) {
                self.versions.insert(id.clone(), (written, now));
            }
        }
        self.versions
            .retain(|id, _| install.wanted.contains_key(id));
    }

    /// Since when an object is there as it was `written`, by the agent's clock; one that was not noted, since it was written.
    pub(in crate::agent::plan) fn seen_since(
        &self,
        id: &ObjectId,
        written: OffsetDateTime,
    ) -> OffsetDateTime {
        let known = self.versions.get(id).filter(|(at, _)| *at == written);
        known.map_or(written, |(_, seen)| *seen)
    }
}
