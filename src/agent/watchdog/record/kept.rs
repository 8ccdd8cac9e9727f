//! Open heals as the cluster keeps them, so that an agent goes on where the one before it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::acts::Acts;
use super::open::Open;
use super::{MAX_OPEN, Records};
use crate::agent::plan::history::Outcome;
use crate::agent::plan::retry::Complaint;
use crate::agent::plan::{Action, Class, Key};
use crate::bundle::{Kind, ObjectId};
use crate::clock::{parse_rfc3339, rfc3339};
use crate::heal;
use crate::wire::report::{HealRecord, HealResult};

/// An open heal as the cluster keeps it, for an agent that goes on where this one ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::agent::watchdog) struct Kept {
    kind: String,
    namespace: String,
    name: String,
    #[serde(default)]
    stepped_at: Option<String>,
    /// It is over and on record, and its object is still held back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    told: bool,
    pub(super) record: HealRecord,
}

/// What an agent before this one left, and what is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::agent::watchdog) struct Resumed {
    /// Had ended, and that agent counted them; it may not have told of them.
    pub(in crate::agent::watchdog) over: Vec<HealRecord>,
    /// This version does not know them, and their end will not be seen: they end here.
    pub(in crate::agent::watchdog) lost: Vec<HealRecord>,
}

impl Records {
    /// What is open, for [`Self::resume`].
    pub(in crate::agent::watchdog) fn kept(&self) -> Vec<Kept> {
        let kept = |((_, id), open): (&Key, &Open)| Kept {
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            stepped_at: open.last_step.map(rfc3339),
            told: false,
            record: open.record.clone(),
        };
        let over = |((_, id), record): &(Key, HealRecord), told| Kept {
            kind: id.kind.as_str().to_owned(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            stepped_at: None,
            told,
            record: record.clone(),
        };
        let ended = self.ended.iter().map(|one| over(one, false));
        let is_ended = |id: &str| self.ended.iter().any(|(_, record)| record.id == id);
        let holding = self.holding.values();
        let holding = holding.filter(|(_, record)| !is_ended(&record.id));
        let holding = holding.map(|one| over(one, true));
        let open = self.open.iter().map(kept);
        open.chain(ended).chain(holding).collect()
    }

    /// Goes on with what an agent before this one left open. Returns what is to be told.
    pub(in crate::agent::watchdog) fn resume(&mut self, all: Vec<Kept>) -> Resumed {
        let mut resumed = Resumed::default();
        for kept in all.into_iter().take(3 * MAX_OPEN) {
            let mut record = kept.record;
            let is_over = heal::is_over(&record);
            let class = Class::ALL.iter().find(|c| c.as_str() == record.class);
            let kind = Kind::ALL.iter().find(|k| k.as_str() == kept.kind);
            let (Some(class), Some(kind)) = (class, kind) else {
                if is_over {
                    resumed.over.extend((!kept.told).then_some(record));
                    continue;
                }
                record.result = HealResult::Failed;
                "another version of the agent opened this, and its end was not seen: look whether it is over"
                    .clone_into(&mut record.next);
                resumed.lost.push(record);
                continue;
            };
            let id = ObjectId::new(*kind, &kept.namespace, &kept.name);
            if is_over {
                self.hold_on(&(*class, id.clone()), &record);
                if kept.told {
                    continue;
                }
                resumed.over.push(self.end((*class, id), record));
                continue;
            }
            let open = Open {
                record,
                last_step: kept.stepped_at.as_deref().and_then(parse_rfc3339),
                acts: Acts::default(),
                works: None,
                exhausted: false,
                untold: false,
            };
            self.open.insert((*class, id), open);
        }
        resumed
    }

    /// What is on record of the catalog's faults: of a root that tries again as this agent begins nothing else says that it has one.
    pub(in crate::agent::watchdog) fn complaints(
        &self,
    ) -> impl Iterator<Item = (ObjectId, Complaint)> {
        let mut all: Vec<(&Key, &Open)> = self.open.iter().collect();
        all.retain(|((class, _), _)| class.of_catalog());
        // Of several on one object, the last one.
        all.sort_by_key(|(_, open)| parse_rfc3339(&open.record.detected_at));
        all.into_iter().map(|((class, id), open)| {
            let complaint = Complaint::on_record(*class, &open.record.evidence);
            (id.clone(), complaint)
        })
    }

    /// Rights that the guard took in the course of what is open; which ones exactly an agent before this one knew.
    pub(in crate::agent::watchdog) fn cut(&self) -> BTreeMap<ObjectId, String> {
        let took = Action::CutRights { uid: String::new() };
        let steps = self.open.values().flat_map(|open| &open.record.steps);
        let cut =
            steps.filter(|s| s.action == took.as_str() && s.outcome == Outcome::Done.as_str());
        cut.filter_map(|s| Some((s.object.parse().ok()?, String::new())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::agent::plan::tests::{Cluster, install};
    use crate::agent::plan::{Step, plan};
    use crate::agent::watchdog::record::Moment;
    use crate::agent::watchdog::record::tests::{adopted, at, deployment, round, step};

    /// An agent that was restarted closes what the one before it opened, under the same id.
    #[test]
    fn another_agent_closes_what_was_left_open() {
        let (mut records, mut history) = adopted();
        let fault = [(Class::ObjectMissing, deployment())];
        let opened = round(&mut records, &mut history, 0, &fault, None);
        records.acted(at(1), &step(fault[0].0, &fault[0].1), &Outcome::Done);
        let kept = serde_json::to_string(&records.kept()).unwrap();
        let (mut records, mut history) = adopted();
        let resumed = records.resume(serde_json::from_str(&kept).unwrap());
        assert_eq!(resumed, Resumed::default());
        assert_eq!(round(&mut records, &mut history, 20, &[], Some(0)), []);
        let closed = round(&mut records, &mut history, 30, &[], Some(25));
        assert_eq!(closed[0].id, opened[0].id);
        assert_eq!(closed[0].result, HealResult::Healed);
        assert_eq!(closed[0].steps.len(), 1);
    }

    /// F40, W46: a root that tries again says nothing of its fault, and an agent that begins meanwhile waits for what comes of it.
    #[test]
    fn the_heal_of_a_root_that_tries_again_goes_on_with_another_agent() {
        let install = install();
        let (mut records, mut history) = adopted();
        let root = install.sync.clone();
        let fault = [(Class::HealthCheckFailed, root.clone())];
        round(&mut records, &mut history, 0, &fault, None);
        let opened = round(&mut records, &mut history, 60, &fault, None);
        assert_eq!(opened.len(), 1);

        let (mut next, mut history) = adopted();
        next.resume(records.kept());
        history.complaints.extend(next.complaints());
        let mut observed = Cluster::working().observed();
        let now = observed.pods_at.unwrap();
        for (status, open) in [("Unknown", 1), ("Unknown", 1), ("True", 0)] {
            let live = Arc::make_mut(observed.objects.get_mut(&root).unwrap());
            live.fields["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
            history.noted(now, &install, &observed);
            let plan = plan(now, &install, &observed, &history);
            history.saw(now, &plan);
            let moment = Moment {
                now,
                plan: &plan,
                history: &history,
                observed: &observed,
                proven: None,
                revision: "",
                tried: "",
                applier: "kustomize-controller",
                overdue: &[],
                changing: false,
                waits: None,
                hands_over: false,
            };
            let told = next.update(&moment, || "another".to_owned());
            let ids: Vec<&str> = told.iter().map(|heal| heal.id.as_str()).collect();
            let over = if open == 0 { vec!["id-60"] } else { vec![] };
            assert_eq!((ids, next.open_classes().count()), (over, open), "{status}");
        }
    }

    /// Of several on one object it said the last one last.
    #[test]
    fn a_root_goes_on_with_the_last_of_its_faults_of_the_catalog() {
        let (mut records, mut history) = adopted();
        let root = install().sync;
        let fault = |class| (class, root.clone());
        let first = [fault(Class::HealthCheckFailed)];
        let all = [
            fault(Class::ApplyFailed),
            fault(Class::HealthCheckFailed),
            fault(Class::QueueWedged),
        ];
        for (seconds, found) in [(0, &first[..]), (70, &all[..]), (140, &all[..])] {
            round(&mut records, &mut history, seconds, found, None);
        }
        let kept: BTreeMap<ObjectId, Complaint> = records.complaints().collect();
        let last = Complaint::on_record(Class::ApplyFailed, "is broken");
        assert_eq!(kept, [(root.clone(), last)].into());
    }

    /// An agent that is killed after a heal's end, before anybody else has that, leaves it to the next one to tell.
    #[test]
    fn the_end_of_a_heal_is_kept_until_it_is_on_record() {
        let (mut records, mut history) = adopted();
        let fault = [(Class::ObjectMissing, deployment())];
        round(&mut records, &mut history, 0, &fault, None);
        let closed = round(&mut records, &mut history, 9, &[], None);
        let kept = serde_json::to_string(&records.kept()).unwrap();
        assert_eq!(records.open_classes().count(), 0);
        records.stored(&["another".to_owned()]);
        assert_eq!(records.kept().len(), 1);
        records.stored(&[closed[0].id.clone()]);
        assert_eq!(records.kept(), []);

        let (mut next, mut history) = adopted();
        let resumed = next.resume(serde_json::from_str(&kept).unwrap());
        let expected = Resumed {
            over: closed.clone(),
            lost: Vec::new(),
        };
        assert_eq!(resumed, expected);
        // It does not end a second time.
        assert_eq!(round(&mut next, &mut history, 20, &[], Some(0)), []);
        assert_eq!(serde_json::to_string(&next.kept()).unwrap(), kept);
        next.stored(&[closed[0].id.clone()]);
        assert_eq!(next.kept(), []);
    }

    #[test]
    fn a_heal_of_a_class_that_is_not_known_here_is_told_and_not_followed() {
        let (mut records, mut history) = adopted();
        let fault = [(Class::ObjectMissing, deployment())];
        round(&mut records, &mut history, 0, &fault, None);
        let mut kept = records.kept();
        kept[0].record.class = "SomethingNew".to_owned();
        let mut records = Records::default();
        let Resumed { over, lost } = records.resume(kept.clone());
        assert_eq!((over, lost.len()), (Vec::new(), 1));
        assert_eq!(lost[0].result, HealResult::Failed);
        assert!(lost[0].next.contains("another version"), "{lost:?}");
        assert_eq!(records.kept(), []);
        // One that was over by then is what that version said.
        kept[0].record.restored_at = Some(rfc3339(at(9)));
        kept[0].record.result = HealResult::Healed;
        let expected = Resumed {
            over: vec![kept[0].record.clone()],
            lost: Vec::new(),
        };
        assert_eq!(records.resume(kept.clone()), expected);
        kept[0].told = true;
        assert_eq!(records.resume(kept), Resumed::default());
    }

    /// An agent that ends in the midst of it leaves the engine without its rights: the next one knows whose doing that was.
    #[test]
    fn the_rights_that_the_guard_took_are_known_to_the_next_agent() {
        let (mut records, mut history) = adopted();
        let crd = ObjectId::new(
            Kind::CustomResourceDefinition,
            "",
            "kustomizations.kustomize.toolkit.fluxcd.io",
        );
        let found = [(Class::CrdTerminating, crd.clone())];
        round(&mut records, &mut history, 0, &found, None);
        let cut = |name: &str| Step {
            action: Action::CutRights {
                uid: "uid".to_owned(),
            },
            target: ObjectId::new(Kind::ClusterRoleBinding, "", name),
            cause: Some((Class::CrdTerminating, crd.clone())),
        };
        records.acted(at(1), &cut("a"), &Outcome::Done);
        records.acted(at(1), &cut("b"), &Outcome::Failed("x".to_owned()));
        records.acted(at(1), &step(Class::CrdTerminating, &crd), &Outcome::Done);
        let mut next = Records::default();
        next.resume(records.kept());
        let a = ObjectId::new(Kind::ClusterRoleBinding, "", "a");
        assert_eq!(next.cut(), [(a, String::new())].into());
    }
}
