//! What is left of objects that die, once they are read: a few hundred of them, whole, are more than an agent has memory for.

use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use serde_json::{Value, json};

use crate::agent::engine::Traits;
use crate::agent::plan::project;
use crate::agent::plan::state::Saved;

/// Bytes of one inventory that is brought back, and of all together: thousands of objects of one Kustomization.
const INVENTORY: usize = 256 << 10;
const INVENTORIES: usize = 4 << 20;

/// The objects of one kind that die.
pub(super) struct Found<'a> {
    pub(super) served: &'a ApiResource,
    traits: &'static Traits,
    saved: &'a [Saved],
    /// Those that the engine's finalizer holds.
    pub(super) pinned: Vec<Pinned>,
    /// What Git does not bring back and is not saved yet.
    pub(super) new: Vec<Value>,
    /// Bytes of inventories that are still kept.
    room: usize,
    /// Those whose inventory is too large to be kept.
    pub(super) bare: usize,
}

/// An object that the engine's finalizer holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: Option<String>,
    /// The finalizers that are not the engine's.
    pub(super) others: Vec<String>,
}

impl<'a> Found<'a> {
    /// `saved` is what is to be brought back already.
    pub(super) fn nothing(
        served: &'a ApiResource,
        traits: &'static Traits,
        saved: &'a [Saved],
    ) -> Self {
        Self {
            served,
            traits,
            saved,
            pinned: Vec::new(),
            new: Vec::new(),
            room: INVENTORIES,
            bare: 0,
        }
    }

    /// Takes in one that is being deleted; without the engine's finalizer only one that dies with its CRD or Namespace counts.
    pub(super) fn add(&mut self, live: DynamicObject, dies_along: bool) {
        let mut finalizers = live.metadata.finalizers.iter().flatten();
        let pinned = finalizers.any(|f| self.traits.is_finalizer(f));
        if !pinned && !dies_along {
            return;
        }
        if let Some(object) = self.keepsake(&live) {
            let known = self.saved.iter().any(|former| {
                // Without the engine's finalizer it is the lesser one of two.
                *former.object == object || (!pinned && is_same(&former.object, &object))
            });
            if !known {
                self.new.push(object);
            }
        }
        if pinned {
            self.pinned.push(self.pin(live.metadata));
        }
    }

    /// What is applied of it later, with its inventory as long as there is room; none where Git brings it back.
    fn keepsake(&mut self, live: &DynamicObject) -> Option<Value> {
        let served = self.served;
        let mut object = project::keepsake(&served.api_version, &served.kind, live)?;
        if let Some(inventory) = project::inventory(&served.plural, live) {
            let bytes = inventory.to_string().len();
            if bytes <= INVENTORY.min(self.room) {
                self.room -= bytes;
                object["status"] = json!({"inventory": inventory});
            } else {
                self.bare += 1;
            }
        }
        Some(object)
    }

    fn pin(&self, meta: ObjectMeta) -> Pinned {
        let all = meta.finalizers.into_iter().flatten();
        Pinned {
            name: meta.name.unwrap_or_default(),
            namespace: meta.namespace.unwrap_or_default(),
            uid: meta.uid,
            others: all.filter(|f| !self.traits.is_finalizer(f)).collect(),
        }
    }
}

/// Whether two objects of one kind have the same name and namespace.
fn is_same(one: &Value, other: &Value) -> bool {
    let at = |object: &Value, field: &str| object.pointer(&format!("/metadata/{field}")).cloned();
    ["name", "namespace"]
        .iter()
        .all(|field| at(one, field) == at(other, field))
}
