//! What a root of Flux' said last of the catalog, while it tries again. As each try begins it says that it is neither ready nor not
//! (`MarkUnknown` in kustomize-controller's reconciler): a fault that is still there would be over for that moment, and begin anew with
//! its debounce, at each try, which is once a minute. It is there, and for that moment nothing is done about it.

use time::{Duration, OffsetDateTime};

use super::fault::Class;
use super::health::said;
use super::state::{History, Object, Observed};
use crate::agent::engine::Install;
use crate::bundle::ObjectId;
use crate::wire::api::EngineKind;

/// A try that goes on for so long has come further than the one before.
const TRY: Duration = Duration::minutes(1);

/// What a root complained of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    class: Class,
    text: String,
    /// Since when it is seen to try again; none = it says so.
    tries: Option<OffsetDateTime>,
}

impl Complaint {
    pub(super) fn time(&mut self) -> Option<&mut OffsetDateTime> {
        self.tries.as_mut()
    }

    /// The same while its root tries; none = that has come further by now. When the root was last seen to say so is no matter: where
    /// nothing happens it is looked at once a minute, and that is the pause between two tries.
    fn tried(self, now: OffsetDateTime) -> Option<Self> {
        let since = self.tries.unwrap_or(now);
        (now - since < TRY).then_some(Self {
            tries: Some(since),
            ..self
        })
    }
}

impl History {
    /// Notes what each root says is wrong with the catalog, until it says something else, or has tried for long.
    pub(super) fn saw_complaints(
        &mut self,
        now: OffsetDateTime,
        install: &Install,
        observed: &Observed,
    ) {
        let mut former = std::mem::take(&mut self.complaints);
        if install.traits.kind != EngineKind::Flux {
            return;
        }
        for id in install.roots() {
            let Some(live) = observed.objects.get(id) else {
                continue;
            };
            let complaint = match said(live).filter(|(class, _)| class.of_catalog()) {
                Some((class, text)) => Some(Complaint {
                    class,
                    text,
                    tries: None,
                }),
                None => former
                    .remove(id)
                    .filter(|_| tries(live))
                    .and_then(|former| former.tried(now)),
            };
            if let Some(complaint) = complaint {
                self.complaints.insert(id.clone(), complaint);
            }
        }
    }

    /// What a root that tries again complained of before it did.
    pub(super) fn complained(&self, id: &ObjectId, live: &Object) -> Option<(Class, String)> {
        let complaint = self.complaints.get(id).filter(|_| tries(live))?;
        Some((complaint.class, complaint.text.clone()))
    }
}

fn tries(live: &Object) -> bool {
    let ready = live.condition("Ready");
    live.deleting.is_none() && ready.is_some_and(|(status, _, _)| status == "Unknown")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::plan::tests::Cluster;

    fn says(cluster: &mut Cluster, status: &str, reason: &str) {
        let root = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&root).unwrap();
        let ready =
            json!({"type": "Ready", "status": status, "reason": reason, "message": "its words"});
        live.fields["status"]["conditions"] = json!([ready]);
    }

    /// What is found at the root by the round that is so many milliseconds later.
    fn found(cluster: &mut Cluster, later: i64) -> Vec<(Class, String)> {
        cluster.now += Duration::milliseconds(later);
        let root = cluster.install.sync.clone();
        let observed = cluster.observed();
        cluster
            .history
            .noted(cluster.now, &cluster.install, &observed);
        let plan = cluster.plan();
        cluster.history.saw(cluster.now, &plan);
        let at_root = plan.findings.into_iter().filter(|f| f.object == root);
        at_root.map(|f| (f.class, f.evidence)).collect()
    }

    /// F38: it was on record for 0.3 s, at the first of its tries that began a debounce after the one before.
    #[test]
    fn a_fault_of_a_root_goes_on_while_it_tries_again() {
        let mut cluster = Cluster::working();
        let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
        says(&mut cluster, "False", "BuildFailed");
        assert_eq!(found(&mut cluster, 0), fault);
        let key = (Class::BuildFailed, cluster.install.sync.clone());
        let since = cluster.history.faults[&key].since;
        for _ in 0..3 {
            says(&mut cluster, "Unknown", "Progressing");
            assert_eq!(found(&mut cluster, 59_900), fault);
            says(&mut cluster, "False", "BuildFailed");
            assert_eq!(found(&mut cluster, 100), fault);
        }
        assert_eq!(cluster.history.faults[&key].since, since);
    }

    /// F38: its next try begins a minute after the one before, and so long ago it may have been looked at last.
    #[test]
    fn a_fault_of_a_root_goes_on_however_long_ago_it_was_seen_to_say_so() {
        let mut cluster = Cluster::working();
        let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
        says(&mut cluster, "False", "BuildFailed");
        assert_eq!(found(&mut cluster, 0), fault);
        for pause in [59_950, 60_000, 60_050] {
            says(&mut cluster, "Unknown", "Progressing");
            assert_eq!(found(&mut cluster, pause), fault, "{pause}");
            assert_eq!(found(&mut cluster, 100), fault, "{pause}");
            says(&mut cluster, "False", "BuildFailed");
            assert_eq!(found(&mut cluster, 100), fault, "{pause}");
        }
    }

    #[test]
    fn what_a_root_said_is_over_when_it_says_something_else_or_tries_for_long() {
        for (status, reason, later, expected) in [
            ("True", "ReconciliationSucceeded", 1_000, None),
            (
                "False",
                "HealthCheckFailed",
                1_000,
                Some(Class::HealthCheckFailed),
            ),
            ("Unknown", "Progressing", 59_999, Some(Class::BuildFailed)),
            ("Unknown", "Progressing", 60_000, None),
        ] {
            let mut cluster = Cluster::working();
            says(&mut cluster, "False", "BuildFailed");
            found(&mut cluster, 0);
            says(&mut cluster, status, reason);
            found(&mut cluster, 30_000);
            let classes = found(&mut cluster, later).into_iter().map(|f| f.0);
            assert_eq!(
                classes.collect::<Vec<_>>(),
                Vec::from_iter(expected),
                "{status} {later}"
            );
        }
    }

    /// A clock that is set ahead ends no try.
    #[test]
    fn a_try_is_as_long_as_it_is_whatever_the_clock_says() {
        let mut cluster = Cluster::working();
        let fault = vec![(Class::BuildFailed, "BuildFailed: its words".to_owned())];
        says(&mut cluster, "False", "BuildFailed");
        found(&mut cluster, 0);
        says(&mut cluster, "Unknown", "Progressing");
        assert_eq!(found(&mut cluster, 1_000), fault);
        cluster.history.set_by(Duration::hours(1));
        assert_eq!(found(&mut cluster, 3_600_000 + 59_999), fault);
        assert_eq!(found(&mut cluster, 1), []);
    }

    /// Nothing is known of what it said before the agent came.
    #[test]
    fn a_root_that_tries_when_it_is_seen_first_has_no_fault() {
        let mut cluster = Cluster::working();
        says(&mut cluster, "Unknown", "Progressing");
        assert_eq!(found(&mut cluster, 0), []);
    }
}
