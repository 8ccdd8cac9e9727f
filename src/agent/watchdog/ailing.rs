//! What the roots had of the catalog's faults before a change of the engine began: an agent that is started again in the midst of it
//! does not take them for the new version's. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::agent::plan::change::Ail;
use crate::agent::plan::{Class, History};
use crate::bundle::{Kind, ObjectId};

/// There are as many as an install has roots, and of each as many as a root says at once.
const MOST: usize = 8;

/// One root, and its faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ails {
    kind: String,
    namespace: String,
    name: String,
    /// Absent in what an agent wrote that kept no more of them than their classes: then nothing is known.
    #[serde(default)]
    faults: Vec<Fault>,
}

/// One fault, as [`Ail`] has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fault {
    class: String,
    reason: String,
    /// Absent = they are too many to be told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    objects: Option<BTreeSet<String>>,
    /// Absent where objects are named, or the root names no commit; and in what an agent wrote that did not keep it: of a root that names
    /// one, nothing is known by such a fault.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    commit: String,
}

/// What is to be kept.
pub(super) fn kept(history: &History) -> Vec<Ails> {
    let fault = |ail: &Ail| Fault {
        class: ail.class.as_str().to_owned(),
        reason: ail.reason.clone(),
        objects: ail.objects.clone(),
        commit: ail.commit.clone(),
    };
    let ails = history.ailing.0.iter().map(|(id, all)| Ails {
        kind: id.kind.as_str().to_owned(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        faults: all.iter().take(MOST).map(fault).collect(),
    });
    ails.take(MOST).collect()
}

/// Goes on with it; what this version does not know says nothing.
pub(super) fn resume(history: &mut History, all: &[Ails]) {
    for ails in all.iter().take(MOST) {
        let Some(kind) = Kind::ALL.iter().find(|k| k.as_str() == ails.kind) else {
            continue;
        };
        let faults = ails.faults.iter().take(MOST).filter_map(|fault| {
            let class = Class::ALL.iter().find(|c| c.as_str() == fault.class)?;
            Some(Ail {
                class: *class,
                reason: fault.reason.clone(),
                objects: fault.objects.clone(),
                commit: fault.commit.clone(),
            })
        });
        let faults: BTreeSet<Ail> = faults.collect();
        if !faults.is_empty() {
            let id = ObjectId::new(*kind, &ails.namespace, &ails.name);
            history.ailing.0.insert(id, faults);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::plan::change::Ailing;

    fn root() -> ObjectId {
        ObjectId::new(Kind::Kustomization, "flux-system", "flux-system")
    }

    fn ail(class: Class, objects: Option<&[&str]>, commit: &str) -> Ail {
        Ail {
            class,
            reason: "ReconciliationFailed".to_owned(),
            objects: objects.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
            commit: commit.to_owned(),
        }
    }

    #[test]
    fn what_was_wrong_before_a_change_is_known_over_a_restart() {
        let faults = [
            ail(Class::BuildFailed, Some(&[]), "sha1:1"),
            ail(Class::ApplyFailed, Some(&["Job/a/b", "Namespace/a"]), ""),
            ail(Class::HealthCheckFailed, None, "sha1:1"),
        ];
        let ailing = Ailing([(root(), faults.into())].into());
        let before = History {
            ailing: ailing.clone(),
            ..History::default()
        };
        let text = serde_json::to_string(&kept(&before)).unwrap();
        let mut all: Vec<Ails> = serde_json::from_str(&text).unwrap();
        // Of another version of the agent.
        all.push(Ails {
            kind: "Kite".to_owned(),
            ..all[0].clone()
        });
        let mut unknown = all[0].faults[0].clone();
        "OfTomorrow".clone_into(&mut unknown.class);
        all[0].faults.insert(0, unknown);
        let mut after = History::default();
        resume(&mut after, &all);
        assert_eq!(after.ailing, ailing);
    }

    #[test]
    fn a_record_of_before_the_commit_was_kept_is_read() {
        let old = json!([{
            "kind": "Kustomization", "namespace": "flux-system", "name": "flux-system",
            "faults": [
                {"class": "ApplyFailed", "reason": "ReconciliationFailed", "objects": ["Job/a/b"]},
                {"class": "HealthCheckFailed", "reason": "ReconciliationFailed"},
            ],
        }]);
        let all: Vec<Ails> = serde_json::from_value(old.clone()).unwrap();
        let mut history = History::default();
        resume(&mut history, &all);
        let faults = [
            ail(Class::ApplyFailed, Some(&["Job/a/b"]), ""),
            ail(Class::HealthCheckFailed, None, ""),
        ];
        let ailing = Ailing([(root(), faults.into())].into());
        assert_eq!(history.ailing, ailing);
        // And what has no commit is written as it was.
        assert_eq!(serde_json::to_value(kept(&history)).unwrap(), old);
    }

    /// A class alone would hide what the new version brings.
    #[test]
    fn of_a_record_with_classes_alone_nothing_is_known() {
        let old = json!([{
            "kind": "Kustomization", "namespace": "flux-system", "name": "flux-system",
            "classes": ["ApplyFailed"],
        }]);
        let all: Vec<Ails> = serde_json::from_value(old).unwrap();
        let mut history = History::default();
        resume(&mut history, &all);
        assert_eq!(history.ailing, Ailing::default());
    }
}
