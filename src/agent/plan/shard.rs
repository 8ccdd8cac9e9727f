//! Flux whose objects are shared out among several controllers of a kind by their labels ("sharding and horizontal scaling" in its
//! documentation). The install's own look at what their `--watch-label-selector` selects; the Deployments of the shards are the
//! catalog's, and what they are at, and who leads there, says nothing of the install's.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use kube::core::DynamicObject;
use serde_json::Value;

use super::project::lease_of;
use super::state::{Lease, Object, Observed};
use crate::bundle::ObjectId;

/// The label that names an object's shard. No other one is kept of the objects, so one in a selector leaves nothing out.
const KEY: &str = "sharding.fluxcd.io/key";
/// fluxcd/pkg, `runtime/controller/watch.go`.
const SELECTOR: &str = "--watch-label-selector";
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
        let has =
            |name: Option<&str>| name.map_or_else(|| self.0.is_some(), |n| self == Self::named(n));
        let of = |key: &str, name: Option<&str>| (key == KEY).then(|| has(name));
        selector.is_none_or(|selector| selects(selector, &of))
    }
}

/// What there is to know of an object's labels: whether it has one of this key, or with this value; none where nobody knows.
type Has<'a> = &'a dyn Fn(&str, Option<&str>) -> Option<bool>;

/// Whether a label selector's text selects an object (apimachinery, `labels.Parse`). What is not known leaves nothing out.
fn selects(selector: &str, has: Has<'_>) -> bool {
    let mut within = false;
    let ends = |c: char| {
        within = c == '(' || within && c != ')';
        c == ',' && !within
    };
    let mut requirements = selector.split(ends);
    requirements.all(|one| meets(one.trim(), has))
}

fn meets(requirement: &str, has: Has<'_>) -> bool {
    let is = |key: &str, value: &str| has(key.trim(), Some(value.trim()));
    if let Some(key) = requirement.strip_prefix('!') {
        return has(key.trim(), None) != Some(true);
    }
    if let Some((key, value)) = requirement.split_once("!=") {
        return is(key, value) != Some(true);
    }
    if let Some((key, value)) = requirement.split_once('=') {
        return is(key, value.strip_prefix('=').unwrap_or(value)) != Some(false);
    }
    let end = requirement.find(|c: char| c.is_whitespace() || c == '(');
    let (key, set) = requirement.split_at(end.unwrap_or(requirement.len()));
    let set = set.trim();
    let holds = |values: &str| {
        let mut values = values.trim().trim_matches(['(', ')']).split(',');
        has(key, None).map(|_| values.any(|value| is(key, value) == Some(true)))
    };
    match (set.strip_prefix("notin"), set.strip_prefix("in")) {
        (Some(values), _) => holds(values) != Some(true),
        (None, Some(values)) => holds(values) != Some(false),
        (None, None) => has(key, None) != Some(false),
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

    /// Whether a controller as it is now hears of an object, as far as its selector goes.
    pub(super) fn is_selected(&self, controller: &ObjectId, object: &Object) -> bool {
        let labels = object.fields.pointer("/metadata/labels");
        let has = |key: &str, value: Option<&str>| {
            let label = labels.and_then(|all| all.get(key));
            Some(label.is_some_and(|label| value.is_none_or(|value| label == value)))
        };
        selector_of(self, controller).is_none_or(|selector| selects(selector, &has))
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
