//! What a watch tells while its scope lists. A list is as of the moment at which its first page was read, and the last page may
//! come minutes later: what was told of after that moment stays as it was told.

use std::collections::BTreeMap;

use kube::api::DynamicObject;

use crate::bundle::{Kind, ObjectId};

/// So many objects are told apart. From then on the watch is not read until the list is done; it loses nothing by that.
const MAX: usize = 1 << 16;

/// Objects of one scope by namespace and name, with the resourceVersion that the watch told of last, and whether they are there.
#[derive(Debug, Default)]
pub(in crate::agent::observe) struct Newer(BTreeMap<(String, String), (u64, bool)>);

impl Newer {
    pub(in crate::agent::observe) fn note(&mut self, live: &DynamicObject, there: bool) {
        let meta = &live.metadata;
        let Some(name) = meta.name.clone() else {
            return;
        };
        let namespace = meta.namespace.clone().unwrap_or_default();
        let version = meta.resource_version.as_deref();
        // What cannot be put in order counts as the last word.
        let at = version.and_then(|v| v.parse().ok()).unwrap_or(u64::MAX);
        self.0.insert((namespace, name), (at, there));
    }

    pub(in crate::agent::observe) fn is_full(&self) -> bool {
        self.0.len() >= MAX
    }

    /// Those of which a list as of this resourceVersion does not know what the watch told.
    pub(in crate::agent::observe) fn after(mut self, version: u64) -> Self {
        self.0.retain(|_, (at, _)| *at > version);
        self
    }

    fn of(&self, id: &ObjectId) -> Option<(u64, bool)> {
        let key = (id.namespace.clone(), id.name.clone());
        self.0.get(&key).copied()
    }

    pub(super) fn at(&self, id: &ObjectId) -> Option<u64> {
        self.of(id).map(|(at, _)| at)
    }

    pub(super) fn has(&self, id: &ObjectId) -> bool {
        self.of(id).is_some()
    }

    /// Whether the watch said last that it is there.
    pub(super) fn lives(&self, id: &ObjectId) -> bool {
        self.of(id).is_some_and(|(_, there)| there)
    }

    pub(super) fn living(&self, kind: Kind) -> impl Iterator<Item = ObjectId> {
        let living = self.0.iter().filter(|(_, (_, there))| *there);
        living.map(move |((namespace, name), _)| ObjectId::new(kind, namespace, name))
    }

    /// The names, where all are in one namespace.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        let all = self.0.iter();
        all.map(|((_, name), (_, there))| (name.as_str(), *there))
    }
}
