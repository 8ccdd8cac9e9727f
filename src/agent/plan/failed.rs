//! Pods that have failed for good, such as those that a kubelet evicted: nothing removes them before there are thousands.
//! Whoever counts a controller's Pods counts them, too.

use super::fault::Class;
use super::find::Finding;
use super::state::{Observed, Pod};
use crate::agent::engine::Install;

/// The failed Pods of a controller that nobody removes, by name.
pub fn of<'a>(observed: &'a Observed, app: &'a str) -> impl Iterator<Item = (&'a str, &'a Pod)> {
    let all = observed
        .pods
        .iter()
        .map(|(name, pod)| (name.as_str(), pod.as_ref()));
    all.filter(move |(_, pod)| pod.app == app && !pod.deleting && pod.failed.is_some())
}

/// One finding a controller. Where no node takes its next Pod either, both are one fault.
pub(super) fn left(install: &Install, observed: &Observed, found: &mut Vec<Finding>) {
    for id in install.workloads() {
        let count = of(observed, &id.name).count();
        let Some((name, pod)) = of(observed, &id.name).next() else {
            continue;
        };
        let why = pod.failed.as_deref().unwrap_or_default();
        let text = format!("{count} of its Pods failed and were left there: {name}: {why}");
        let unscheduled = |f: &&mut Finding| f.class == Class::Unschedulable && f.object == *id;
        if let Some(there) = found.iter_mut().find(unscheduled) {
            there.reported = false;
            there.evidence = format!("{}; {text}", there.evidence);
        } else {
            found.push(Finding::new(Class::Unschedulable, id, text));
        }
    }
}

#[cfg(test)]
mod tests;
