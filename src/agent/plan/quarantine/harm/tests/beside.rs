//! Controllers that are asked with what the catalog has of their kinds (W18).

use super::*;
use crate::agent::plan::plan;
use crate::agent::plan::state::Probe;
use crate::agent::plan::tests::{flux, install_with};
use crate::agent::plan::witness::Witness;

const NAME: &str = "notification-controller";

/// Flux with notification-controller, for an hour; the engine stands in Git.
fn with_notifications() -> Cluster {
    with(NAME)
}

/// The same with another controller.
fn with(name: &'static str) -> Cluster {
    let mut objects = flux();
    objects.extend([
        (
            Kind::CustomResourceDefinition,
            "receivers.notification.toolkit.fluxcd.io",
        ),
        (Kind::ServiceAccount, name),
        (Kind::Deployment, name),
    ]);
    let mut cluster = Cluster::working_with(install_with(objects));
    for (id, wanted) in &mut cluster.install.wanted {
        wanted.git_owned = is_workload(id.kind);
    }
    cluster.now += Duration::HOUR;
    cluster
}

/// F10: it is asked now and then only, and one that hears it would have answered what waited when it began.
#[test]
fn a_commit_that_deafens_notification_controller_is_held() {
    let id = ObjectId::new(Kind::Deployment, "flux-system", NAME);
    let receiver = ObjectId::new(Kind::Receiver, "apps", "one");
    let text = "runs, but does not answer for Receiver apps/one; commit main@sha1:1 changed \
                /spec/template/spec/containers/manager/args/0";
    for (written, asked, answered, broken) in [
        (300, 91, false, true),
        (300, 90, false, false),
        (111, 500, false, true),
        (110, 500, false, false),
        (300, 91, true, false),
    ] {
        let mut cluster = with_notifications();
        let now = cluster.now;
        let ago = |seconds: i64| now - Duration::seconds(seconds);
        let mut spec = cluster.objects[&id].fields["spec"].clone();
        spec["template"]["spec"]["containers"][0]["args"] = json!(["--watch-label-selector=a"]);
        super::written(&mut cluster, &id, "kustomize-controller", "spec", spec);
        cluster.objects.get_mut(&id).unwrap().written = Some(ago(written));
        let witness = Witness {
            fit: true,
            probe: Some(Probe {
                sent: ago(asked),
                answered,
            }),
            ..Witness::default()
        };
        let mut observed = cluster.observed();
        observed.witnesses = [(receiver.clone(), witness)].into();
        let plan = plan(now, &cluster.install, &observed, &cluster.history);
        let found = plan.findings.iter();
        let found = found.filter(|f| f.class == Class::BadEngineCommit);
        let found: Vec<&str> = found.map(|f| f.evidence.as_str()).collect();
        let expected: &[&str] = if broken { &[text] } else { &[] };
        assert_eq!(found, expected, "{written} {asked} {answered}");
    }
}

/// W18: a controller of images that has not come up for days is no reason to leave the roots with what a commit did to them; one that
/// they need may itself be the reason.
#[test]
fn a_commit_is_blamed_for_what_the_root_says_however_long_another_part_is_down() {
    for (name, blamed) in [
        ("image-automation-controller", true),
        ("image-reflector-controller", true),
        (NAME, false),
    ] {
        let mut cluster = with(name);
        let id = ObjectId::new(Kind::Deployment, "flux-system", name);
        let live = cluster.objects.get_mut(&id).unwrap();
        live.fields["status"]["availableReplicas"] = json!(0);
        let wanted = cluster.install.wanted.get_mut(&binding()).unwrap();
        wanted.git_owned = true;
        emptied(&mut cluster, &binding());
        root_says(
            &mut cluster,
            &json!({"conditions": [{
                "type": "Ready", "status": "False", "reason": "ReconciliationFailed", "message": "x is forbidden",
            }]}),
        );
        let plan = after(&mut cluster, 10);
        let of_binding = plan.steps.iter().filter(|step| step.target == binding());
        let actions: Vec<&str> = of_binding.map(|step| step.action.as_str()).collect();
        let expected: &[&str] = if blamed { &["hold", "apply"] } else { &[] };
        assert_eq!(actions, expected, "{name}");
    }
}
