//! What one event of a watch makes known, and from where the watch can go on after it.

use std::sync::Arc;

use kube::api::DynamicObject;

use super::{Scope, What};
use crate::agent::observe::found::{self, Heard, gone, heard, heard_root};
use crate::agent::observe::{View, told};
use crate::agent::plan::project;
use crate::agent::plan::witness::Witness;
use crate::bundle::Kind;

impl Scope {
    /// Returns where to resume.
    pub(super) fn changed(&self, view: &View, live: DynamicObject, floor: u64) -> Option<String> {
        let version = live.metadata.resource_version.clone()?;
        if version.parse::<u64>().is_ok_and(|v| v <= floor) {
            return Some(version);
        }
        match self.what {
            What::Objects(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    let live = project::object(kind, live);
                    view.0.send_if_modified(|seen| told(seen, &id, live));
                } else if kind == Kind::NetworkPolicy {
                    found::policy(view, live.metadata.name.as_deref()?, true);
                }
            }
            What::Children(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    let said = Heard::of(&self.home, kind, &live);
                    view.0.send_if_modified(|seen| heard(seen, id, said));
                } else {
                    view.0.send_if_modified(|seen| {
                        heard_root(seen, &self.home, kind, &live);
                        false
                    });
                }
            }
            What::Pods => {
                let name = live.metadata.name.clone()?;
                found::pod(view, &name, Some(Arc::new(project::pod(live))));
            }
            What::Witnesses(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    found::witness(view, id, Some(Witness::of(kind, &live)));
                }
            }
            What::Leases | What::Elsewhere => {}
        }
        Some(version)
    }

    pub(super) fn deleted(&self, view: &View, live: DynamicObject, floor: u64) -> Option<String> {
        let version = live.metadata.resource_version.clone()?;
        if let What::Objects(kind) = self.what
            && let (Some(id), Some(uid)) = (self.id(kind, &live), &live.metadata.uid)
        {
            view.0.send_if_modified(|seen| {
                seen.buried.insert(id.clone(), uid.clone());
                let same = seen.objects.get(&id).is_some_and(|o| o.uid == *uid);
                same && seen.objects.remove(&id).is_some()
            });
            return Some(version);
        }
        if version.parse::<u64>().is_ok_and(|v| v <= floor) {
            return Some(version);
        }
        match self.what {
            What::Objects(Kind::NetworkPolicy) if self.id(Kind::NetworkPolicy, &live).is_none() => {
                found::policy(view, live.metadata.name.as_deref()?, false);
            }
            What::Children(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    view.0.send_if_modified(|seen| gone(seen, &id));
                }
            }
            What::Witnesses(kind) => {
                if let Some(id) = self.id(kind, &live) {
                    found::witness(view, id, None);
                }
            }
            What::Pods => found::pod(view, &live.metadata.name?, None),
            What::Objects(_) | What::Leases | What::Elsewhere => {}
        }
        Some(version)
    }
}
