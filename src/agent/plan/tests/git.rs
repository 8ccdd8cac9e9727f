//! Commits to the engine in the simulated cluster, which the engine applies again and again, and writes that fail.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::Cluster;
use crate::agent::plan::history::Outcome;
use crate::agent::plan::quarantine::RECONCILE;
use crate::agent::plan::{Step, health};
use crate::bundle::{Kind, ObjectId};
use crate::wire::api::EngineKind;

/// Between two times that the engine applies what Git has.
const AGAIN: Duration = Duration::seconds(20);

/// What a commit does to a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::agent::plan) enum Bad {
    Replicas,
    Image,
    /// At which nobody finds what source-controller serves.
    Address,
}

const NOWHERE: &str = "--storage-adv-addr=nowhere";

/// Git's version of one field.
#[derive(Debug, Clone)]
pub(super) struct Commit {
    pointer: &'static str,
    value: Value,
    applied: OffsetDateTime,
}

/// Which of the agent's writes come to nothing: one bit for each, over and over.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::agent::plan) struct Fails {
    pub(in crate::agent::plan) mask: u64,
    /// They are not answered, and not refused.
    pub(in crate::agent::plan) unserved: bool,
    count: u32,
}

impl Fails {
    pub(in crate::agent::plan) fn of(mask: u64, unserved: bool) -> Self {
        Self {
            mask,
            unserved,
            count: 0,
        }
    }

    fn next(&mut self) -> Option<Outcome> {
        let fails = self.mask >> (self.count % u64::BITS) & 1 == 1;
        self.count += 1;
        let text = "it failed".to_owned();
        let outcome = if self.unserved {
            Outcome::Unserved(text)
        } else {
            Outcome::Failed(text)
        };
        fails.then_some(outcome)
    }
}

impl Cluster {
    /// A commit breaks a controller of Flux', and the engine applies it.
    pub(in crate::agent::plan) fn commit(&mut self, name: &str, bad: Bad) -> ObjectId {
        assert_eq!(self.install.traits.kind, EngineKind::Flux);
        let id = ObjectId::new(Kind::Deployment, "flux-system", name);
        let (pointer, value) = match bad {
            Bad::Replicas => ("/spec/replicas", json!(0)),
            Bad::Image => ("/spec/template/spec/containers/0/image", json!("bad:0")),
            Bad::Address => ("/spec/template/spec/containers/0/args", json!([NOWHERE])),
        };
        let commit = Commit {
            pointer,
            value,
            applied: self.now,
        };
        self.install.wanted.get_mut(&id).unwrap().git_owned = true;
        self.git.insert(id.clone(), commit);
        self.applied(&id);
        id
    }

    /// The engine applies what Git has, while it runs and is not told to leave the object alone.
    pub(super) fn git_applies(&mut self) {
        let controller = self.install.controller(&self.install.sync);
        let up = |live| health::works(live);
        if !self.objects.get(&controller).is_some_and(up) || self.is_unreached() {
            return;
        }
        let due = |commit: &&mut Commit| self.now - commit.applied >= AGAIN;
        let mut again = Vec::new();
        for (id, commit) in &mut self.git {
            if let Some(commit) = Some(commit).filter(due) {
                commit.applied = self.now;
                again.push(id.clone());
            }
        }
        for id in again {
            self.applied(&id);
        }
    }

    fn applied(&mut self, id: &ObjectId) {
        let (commit, wanted) = (&self.git[id], &self.install.wanted[id]);
        let mut fields = wanted.expect.as_ref().clone();
        *fields.pointer_mut(commit.pointer).unwrap() = commit.value.clone();
        let Some(live) = self.objects.get_mut(id) else {
            return;
        };
        if live.fields["spec"] == fields["spec"] || live.annotation(RECONCILE) == Some("disabled") {
            return;
        }
        live.fields["spec"] = fields["spec"].take();
        live.generation += 1;
        self.install.traits.applier.clone_into(&mut live.writer);
        live.written = Some(self.now);
    }

    /// Whether the engine that applies cannot fetch what it should apply.
    pub(super) fn is_unreached(&self) -> bool {
        let source = self.install.controller(&self.install.source);
        let live = self.objects.get(&source);
        live.is_some_and(|live| live.text("/spec/template/spec/containers/0/args/0") == NOWHERE)
    }

    /// The Pods of a commit's image wait for it.
    pub(super) fn pods_wait(&mut self) {
        for id in self.git.keys() {
            let Some(live) = self.objects.get(id) else {
                continue;
            };
            let bad = live.text("/spec/template/spec/containers/0/image") == "bad:0";
            if bad && live.number("/spec/replicas") > 0 {
                let pod = self.pods.entry(id.name.clone()).or_default();
                pod.app.clone_from(&id.name);
                pod.created.get_or_insert(self.now);
                pod.waiting = Some(("ErrImagePull".to_owned(), "no such tag".to_owned()));
            } else if let Some(pod) = self.pods.get_mut(&id.name) {
                pod.waiting = None;
            }
        }
    }

    /// Does a step, or lets it fail.
    pub(super) fn tried(&mut self, step: &Step) -> Outcome {
        match self.fails.next() {
            Some(outcome) => outcome,
            None => self.act(step),
        }
    }
}
