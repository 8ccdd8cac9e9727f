//! Flux whose objects are shared out among several controllers of a kind by their labels ("sharding and horizontal scaling" in its
//! documentation). The install's own look at what their `--watch-label-selector` selects; the Deployments of the shards are the
//! catalog's, and what they are at, and who leads there, says nothing of the install's.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use kube::core::DynamicObject;
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::project::{lease_of, led_by};
use super::state::{Lease, Observed};
use crate::bundle::ObjectId;

/// The label that names an object's shard. No other one is kept of the objects, so one in a selector leaves nothing out.
const KEY: &str = "sharding.fluxcd.io/key";
/// fluxcd/pkg, `runtime/controller/watch.go`.
const SELECTOR: &str = "--watch-label-selector";
/// So long a Lease of Flux' stands for a Pod that no longer renews it.
const STANDS: Duration = Duration::seconds(35);
/// A controller's own container; there may be others beside it.
const CONTAINER: &str = "manager";

/// An object's shard: as a hash, for it is only compared, and there may be thousands of objects; none where it is of no shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shard(Option<NonZeroU64>);

impl Shard {
    /// As its label has it.
    pub fn of(live: &DynamicObject) -> Self {
        let labels = live.metadata.labels.as_ref();
        labels
            .and_then(|labels| labels.get(KEY))
            .map_or_else(Self::default, |name| Self::named(name))
    }

    fn named(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(NonZeroU64::new(hasher.finish() | 1))
    }

    /// Whether a controller with this selector may look at the object; with none it looks at all of them.
    pub(super) fn is_seen_with(self, selector: Option<&str>) -> bool {
        let Some(selector) = selector else {
            return true;
        };
        let mut within = false;
        let ends = |c: char| {
            within = c == '(' || within && c != ')';
            c == ',' && !within
        };
        let mut requirements = selector.split(ends);
        requirements.all(|one| self.meets(one.trim()))
    }

    /// Whether it meets one requirement of a selector, as far as that is about shards (apimachinery, `labels.Parse`).
    fn meets(self, requirement: &str) -> bool {
        let is = |name: &str| self == Self::named(name.trim());
        if let Some(key) = requirement.strip_prefix('!') {
            return key.trim() != KEY || self.0.is_none();
        }
        if let Some((key, name)) = requirement.split_once("!=") {
            return key.trim() != KEY || !is(name);
        }
        if let Some((key, name)) = requirement.split_once('=') {
            return key.trim() != KEY || is(name.strip_prefix('=').unwrap_or(name));
        }
        let end = requirement.find(|c: char| c.is_whitespace() || c == '(');
        let (key, set) = requirement.split_at(end.unwrap_or(requirement.len()));
        if key != KEY {
            return true;
        }
        let set = set.trim();
        let holds = |names: &str| names.trim().trim_matches(['(', ')']).split(',').any(is);
        match (set.strip_prefix("notin"), set.strip_prefix("in")) {
            (Some(names), _) => !holds(names),
            (None, Some(names)) => holds(names),
            (None, None) => self.0.is_some(),
        }
    }
}

impl Observed {
    /// The name of a controller's Lease, as its Deployment is now.
    pub(super) fn lease_name(&self, controller: &ObjectId) -> String {
        lease_of(&controller.name, selector_of(self, controller))
    }

    /// Who of a controller's Pods leads.
    pub(super) fn lease(&self, controller: &ObjectId) -> Option<&Lease> {
        self.leases.get(&self.lease_name(controller))
    }

    /// Whether another Pod of a controller, which is no more or ends, led by another of its Leases at that time. With new arguments
    /// the Lease has another name, so the new Pod waits for nobody. Leases of shards are of Pods that live.
    pub(super) fn was_led_beside(&self, controller: &ObjectId, at: OffsetDateTime) -> bool {
        let own = self.lease_name(controller);
        let is_other = |name: &str| name != own && led_by(name) == Some(controller.name.as_str());
        let lives = |lease: &Lease| self.pods.get(&lease.holder).is_some_and(|p| !p.deleting);
        let mut others = self.leases.iter().filter(|(name, _)| is_other(name));
        others.any(|(_, lease)| !lives(lease) && at - lease.renewed <= STANDS)
    }
}

/// What a controller selects of its kinds; none = all.
pub(super) fn selector_of<'a>(observed: &'a Observed, controller: &ObjectId) -> Option<&'a str> {
    selector(&observed.objects.get(controller)?.fields)
}

/// The same by the fields of its Deployment.
pub fn selector(fields: &Value) -> Option<&str> {
    argument(fields, SELECTOR).filter(|selector| !selector.is_empty())
}

/// The value of a flag of a controller's: `--x=y` or `--x y`, of several the last, as pflag reads them.
pub(super) fn argument<'a>(fields: &'a Value, flag: &str) -> Option<&'a str> {
    let containers = fields.pointer("/spec/template/spec/containers")?;
    let containers = containers.as_array()?;
    let is_it = |c: &&Value| c.get("name").and_then(Value::as_str) == Some(CONTAINER);
    let named = containers.iter().find(is_it);
    let container = named.or_else(|| containers.first())?;
    let args = container.get("args")?.as_array()?;
    let mut args = args.iter().filter_map(Value::as_str);
    let mut last = None;
    while let Some(arg) = args.next() {
        match arg.strip_prefix(flag) {
            Some("") => last = args.next(),
            Some(rest) => last = rest.strip_prefix('=').or(last),
            None => {}
        }
    }
    last
}

#[cfg(test)]
mod tests;
