//! How an install was wanted before a change of it. What is still so waits for the change; anything else is somebody's doing, whose
//! mending does not wait. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use time::OffsetDateTime;

use crate::agent::engine::compare::drift;
use crate::agent::engine::{Install, MANAGER};
use crate::agent::plan::{History, Object};
use crate::bundle::ObjectId;
use crate::clock::parse_rfc3339;

/// Of wishes that follow each other before any of them works, the first form, in which the cluster was, and the last ones.
const MOST: usize = 3;

/// The forms before the one in force, while that is being changed. Empty = this agent did not see the change begin.
#[derive(Debug, Clone, Default)]
pub struct Before {
    forms: Vec<Arc<BTreeMap<ObjectId, Arc<Value>>>>,
    /// Differences from those that an apply had found to be none, by the object's mark.
    settled: BTreeMap<ObjectId, (String, i64, u64)>,
}

impl Before {
    /// Whether an object is as one of the forms wants it.
    fn has(&self, id: &ObjectId, live: &Object) -> bool {
        let mut wanted = self.forms.iter().filter_map(|form| form.get(id));
        self.settled.get(id) == Some(&live.mark())
            || wanted.any(|fields| drift(fields, &live.fields).is_empty())
    }
}

impl History {
    /// This install becomes another one.
    pub fn changes_from(&mut self, install: &Install) {
        // A change is under way of which it is not known what it came from.
        if install.changing && self.before.forms.is_empty() {
            return;
        }
        if !install.changing {
            self.before = Before::default();
        }
        let wanted = install.wanted.iter();
        let form = wanted.map(|(id, wanted)| (id.clone(), Arc::clone(&wanted.expect)));
        if self.before.forms.len() == MOST {
            self.before.forms.remove(1);
        }
        self.before.forms.push(Arc::new(form.collect()));
        self.before.settled.extend(self.settled.clone());
    }

    /// Whether an object is as a version before the change has it. An agent that was started in the midst of the change does not know how that
    /// is: then it is so unless somebody else wrote the object since.
    pub(super) fn is_as_before(&self, install: &Install, (id, live): (&ObjectId, &Object)) -> bool {
        if !self.before.forms.is_empty() {
            return self.before.has(id, live);
        }
        let since = began(install).is_some_and(|began| live.written >= Some(began));
        live.writer == MANAGER || !since
    }
}

/// When the change began, in whole seconds as the times of writes are.
pub(super) fn began(install: &Install) -> Option<OffsetDateTime> {
    let began = parse_rfc3339(&install.change()?.since)?;
    began.replace_nanosecond(0).ok()
}
