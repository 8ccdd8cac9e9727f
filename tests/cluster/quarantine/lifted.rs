//! `cluster lift` of what a reverted commit no longer brings, as both engines are judged by: the object is the agent's again, as it was
//! before the catalog had it.

use std::process::Stdio;

use serde_json::{Value, json};

use super::HELD;
use crate::healing::LIMIT;
use crate::support::world::{CLUSTER, World, condition};
use crate::support::{closely, figure, seconds, shown, stays, until};

/// When the order is given, in words, and whether the engine is done with the revert by then. What was pushed in the same moment the
/// order means, too.
pub(super) const WHEN: [(&str, bool); 2] = [
    ("in the same moment", false),
    ("once the engine is done with that", true),
];

/// What holds an object, and says that it is Git's, beside labels.
const MARKS: [&str; 4] = [
    HELD,
    "kustomize.toolkit.fluxcd.io/reconcile",
    "argocd.argoproj.io/sync-options",
    "argocd.argoproj.io/tracking-id",
];
/// For so long what is the agent's again is looked at once more.
const AFTER: u64 = 15;

/// An object of the engine's as it was when it was the agent's.
pub(super) struct Former {
    path: String,
    uid: String,
    labels: Value,
}

impl Former {
    pub(super) fn of(world: &World, path: &str) -> Self {
        let meta = world.api.get(path).unwrap()["metadata"].take();
        Self {
            path: path.to_owned(),
            uid: meta["uid"].as_str().unwrap().to_owned(),
            labels: meta["labels"].clone(),
        }
    }

    /// As it is now: the same object, and available. None where the API server does not say.
    pub(super) fn stands(&self, world: &World) -> Option<Value> {
        let live = world.api.try_get(&self.path).ok()?;
        let live = live.expect("it is there");
        assert_eq!(live["metadata"]["uid"], json!(self.uid), "another one");
        assert!(condition(&live, "Available"), "{live:#}");
        Some(live)
    }

    fn is_the_agents(&self, live: &Value) -> bool {
        let meta = &live["metadata"];
        let unmarked = |name: &&str| meta["annotations"][name].is_null();
        meta["labels"] == self.labels && MARKS.iter().all(unmarked)
    }

    /// A person orders it. `when` is what the figure says of that.
    pub(super) fn given_back(&self, world: &World, when: &str) {
        let reason = "its commit is reverted";
        let lift = ["cluster", "lift", CLUSTER, "--reason", reason];
        let mut order = world.hub.cli(&[&lift[..], &["--wait=3m"]].concat());
        let mut order = order
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let took = closely("the order has come to an end", seconds(LIMIT), || {
            self.stands(world);
            order.try_wait().unwrap().is_some()
        });
        let ended = order.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        let obeyed = ended.status.success() && !said.contains("nothing was changed");
        assert!(obeyed, "{said}");
        let name = self.path.rsplit('/').next().unwrap();
        figure(
            "W17",
            &world.case(&format!(
                "commit that brought {name} reverted, cluster lift {when} → the agent's again"
            )),
            "",
            shown(took),
        );
        let is = |live: Value| self.is_the_agents(&live);
        closely("it is the agent's again", seconds(10), || {
            self.stands(world).is_some_and(is)
        });
        // Who could prune it looks once more.
        world.function(seconds(LIMIT));
        stays("it is the agent's", seconds(AFTER), || {
            self.stands(world).is_none_or(is)
        });
    }

    /// W5: whoever deletes it, it comes back as the agent's.
    pub(super) fn made_again(&self, world: &World) {
        assert!(world.api.delete(&self.path));
        until("it is made again", seconds(LIMIT), || {
            let live = world.api.try_get(&self.path).ok().flatten();
            live.is_some_and(|live| {
                live["metadata"]["uid"] != json!(self.uid) && self.is_the_agents(&live)
            })
        });
        world.function(seconds(LIMIT));
    }
}
