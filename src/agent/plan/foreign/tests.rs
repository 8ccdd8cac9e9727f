use serde_json::json;

use super::*;
use crate::agent::plan::tests::{Cluster, desired_of, install_for};
use crate::agent::plan::{Mode, Pod};
use crate::clock::rfc3339;

fn found(cluster: &Cluster) -> Option<Finding> {
    let observed = cluster.observed();
    foreign(cluster.now, &cluster.install, &observed, &cluster.history)
}

/// F45
#[test]
fn the_mark_of_another_manager_is_told_and_a_plain_one_is_not() {
    let source = ObjectId::new(Kind::Deployment, "flux-system", "source-controller");
    for (part, name, value, told) in [
        ("labels", MANAGED_BY, "Helm", Some("Helm")),
        ("labels", MANAGED_BY, "flux-operator", Some("flux-operator")),
        (
            "labels",
            MANAGED_BY,
            "argocd-operator",
            Some("argocd-operator"),
        ),
        ("labels", MANAGED_BY, "linesman", None),
        ("labels", OLM, "operator.v1", Some("operator.v1")),
        ("labels", "owner", "team-a", None),
        (
            "annotations",
            RELEASE,
            "flux2",
            Some("release 'flux2' of Helm"),
        ),
        ("annotations", OLM, "operator.v1", None),
        ("labels", STEWARD, "true", Some(STEWARD)),
        ("annotations", STEWARD, "true", Some(STEWARD)),
    ] {
        let mut cluster = Cluster::working();
        let live = cluster.objects.get_mut(&source).unwrap();
        live.fields["metadata"][part][name] = json!(value);
        let said = found(&cluster);
        let expected = told.map(|mark| {
            let text = format!("carries the mark of another manager: {mark}");
            Finding::new(Class::ForeignManager, &source, text)
        });
        assert_eq!(said, expected, "{part} {name}={value}");
        let mode = if told.is_some() {
            Mode::ObserveOnly
        } else {
            Mode::Act
        };
        assert_eq!(cluster.plan().mode, mode, "{part} {name}={value}");
    }
}

/// F45, W24: Azure's extension has no mark of its own on the controllers that it installs; its agents run beside them.
#[test]
fn the_agents_of_azures_extension_are_another_manager() {
    for (engine, name, deleting, told) in [
        (EngineKind::Flux, "fluxconfig-agent-6c8b5d", false, true),
        (EngineKind::Flux, "fluxconfig-controller-7d9", false, true),
        (EngineKind::Flux, "fluxconfig-agent-6c8b5d", true, false),
        (EngineKind::Flux, "my-fluxconfig-1", false, false),
        (EngineKind::Argocd, "fluxconfig-agent-6c8b5d", false, false),
    ] {
        let mut cluster = Cluster::working_of(engine);
        let pod = Pod {
            deleting,
            ..Pod::default()
        };
        cluster.pods.insert(name.to_owned(), pod);
        let plan = cluster.plan();
        let expected = if told { Mode::ObserveOnly } else { Mode::Act };
        assert_eq!(plan.mode, expected, "{engine} {name}");
        let text = format!("Pod {name} of Azure's Flux extension, another manager, runs in it");
        let said = plan.findings.iter().any(|f| f.evidence == text);
        assert_eq!(said, told, "{engine} {name}");
    }
}

/// A chart that was rendered into the catalog keeps its label; what Helm or an operator manages carries more than that.
#[test]
fn a_label_on_what_git_brings_or_on_the_namespace_is_no_mark_of_a_manager() {
    let helm = "release 'argo-cd' of Helm";
    let flux = ("labels", GIT_OWNER, "flux-system");
    let argocd = ("annotations", TRACKING, "linesman:apps/Deployment:argocd/x");
    let none = ("labels", "team", "a");
    let release = ("annotations", RELEASE, "argo-cd");
    for (engine, kind, mark, more, told) in [
        (EngineKind::Flux, Kind::Deployment, none, none, Some("Helm")),
        (EngineKind::Flux, Kind::Deployment, flux, none, None),
        (EngineKind::Argocd, Kind::Deployment, argocd, none, None),
        // The other engine's mark: that one manages it.
        (
            EngineKind::Argocd,
            Kind::Deployment,
            flux,
            none,
            Some("Helm"),
        ),
        (
            EngineKind::Flux,
            Kind::Deployment,
            flux,
            release,
            Some(helm),
        ),
        (
            EngineKind::Argocd,
            Kind::Deployment,
            argocd,
            release,
            Some(helm),
        ),
        (EngineKind::Flux, Kind::Namespace, none, none, None),
        (EngineKind::Flux, Kind::Namespace, none, release, None),
        (EngineKind::Argocd, Kind::Namespace, none, none, None),
    ] {
        for adopted in [false, true] {
            let mut cluster = Cluster::working_of(engine);
            cluster.history.adopted = adopted;
            let mut all = cluster.objects.iter_mut();
            let (id, live) = all.find(|(id, _)| id.kind == kind).unwrap();
            let id = id.clone();
            for (part, name, value) in [("labels", MANAGED_BY, "Helm"), mark, more] {
                live.fields["metadata"][part][name] = json!(value);
            }
            let said = found(&cluster);
            let expected = told.map(|mark| {
                let text = format!("carries the mark of another manager: {mark}");
                Finding::new(Class::ForeignManager, &id, text)
            });
            assert_eq!(said, expected, "{engine:?} {id} {mark:?} {more:?}");
        }
    }
    // Who owns a Namespace owns a place; Project Syn's mark is about the engine, wherever it is.
    for (owner, steward, told) in [("Tenant team-a", false, false), ("", true, true)] {
        let mut cluster = Cluster::working();
        let id = ObjectId::new(Kind::Namespace, "", "flux-system");
        let live = cluster.objects.get_mut(&id).unwrap();
        owner.clone_into(&mut live.controller);
        if steward {
            live.fields["metadata"]["labels"][STEWARD] = json!("true");
        }
        let said = found(&cluster);
        assert_eq!(said.is_some(), told, "{owner}");
    }
}

/// F45: the operators of either engine own what they make.
#[test]
fn an_engine_that_an_operator_owns_is_only_observed() {
    for (engine, controller) in [
        (EngineKind::Flux, "FluxInstance flux"),
        (EngineKind::Argocd, "ArgoCD argocd"),
    ] {
        let mut cluster = Cluster::working_of(engine);
        let workload = cluster.install.workloads().next().unwrap().clone();
        let live = cluster.objects.get_mut(&workload).unwrap();
        controller.clone_into(&mut live.controller);
        let text = format!("carries the mark of another manager: {controller}");
        let said = found(&cluster);
        assert_eq!(
            said,
            Some(Finding::new(Class::ForeignManager, &workload, text))
        );
        let plan = cluster.plan();
        assert_eq!((plan.mode, plan.steps), (Mode::ObserveOnly, Vec::new()));
    }
}

/// A root that was there before the adoption is somebody's, where it follows something else.
#[test]
fn a_root_that_follows_another_catalog_is_somebodys_until_it_is_adopted() {
    for (adopted, ours, path, told) in [
        (false, false, "./clusters/other", true),
        (false, false, "./clusters/eu1/", false),
        (true, false, "./clusters/other", false),
    ] {
        let mut cluster = Cluster::working();
        cluster.history.adopted = adopted;
        let sync = cluster.install.sync.clone();
        let live = cluster.objects.get_mut(&sync).unwrap();
        live.ours = ours;
        "somebody".clone_into(&mut live.writer);
        live.fields["spec"]["path"] = json!(path);
        let text = format!("follows {path}, made by 'somebody'; ./clusters/eu1 was assigned");
        let said = found(&cluster);
        let expected = told.then(|| Finding::new(Class::ForeignManager, &sync, text));
        assert_eq!(said, expected, "{adopted} {ours} {path}");
    }
}

/// A cluster that was let go, and is adopted under another name: its root pruned at once what the new path lacks.
#[test]
fn a_root_that_an_adoption_of_before_left_is_led_elsewhere_only_where_that_is_allowed() {
    let hour = time::Duration::hours(1);
    for (engine, pointer, kind) in [
        (EngineKind::Flux, "/spec/path", "kustomization"),
        (EngineKind::Argocd, "/spec/source/path", "application"),
    ] {
        for (adopted, path, allowed, prunes, told) in [
            (false, "clusters/other", None, true, true),
            (false, "clusters/eu1", None, true, false),
            (false, "clusters/other", Some(hour), true, false),
            (false, "clusters/other", Some(-hour), true, true),
            // Its engine takes the other one's place.
            (false, "clusters/other", None, false, false),
            // Somebody altered what is adopted: that is put back.
            (true, "clusters/other", None, true, false),
        ] {
            let mut desired = desired_of(engine);
            desired.prunes = prunes;
            let mut cluster = Cluster::working_with(install_for(&desired));
            cluster.history.adopted = adopted;
            let sync = cluster.install.sync.clone();
            let until = allowed.map(|after| rfc3339(cluster.now + after));
            let live = cluster.objects.get_mut(&sync).unwrap();
            live.ours = true;
            let ours = std::mem::replace(live.fields.pointer_mut(pointer).unwrap(), json!(path));
            if let Some(until) = until {
                live.fields["metadata"]["annotations"][ALLOW_DELETE] = json!(until);
            }
            let text = format!(
                "follows {path} since an earlier adoption; {} was assigned, and led there it would prune what that lacks. To allow \
                 that (UTC; macOS has date -u -v+1H): kubectl -n {} annotate --overwrite {kind} {} {ALLOW_DELETE}=$(date -u -d +1hour +%FT%TZ)",
                ours.as_str().unwrap(),
                sync.namespace,
                sync.name
            );
            let expected = told.then(|| Finding::new(Class::ForeignManager, &sync, text));
            assert_eq!(found(&cluster), expected, "{adopted} {path} {allowed:?}");
            let mode = if told { Mode::ObserveOnly } else { Mode::Act };
            assert_eq!(cluster.plan().mode, mode, "{adopted} {path} {allowed:?}");
        }
    }
}

#[test]
fn an_argo_cd_that_we_never_touched_is_somebodys_until_it_is_adopted() {
    for (engine, adopted, ours, told) in [
        (EngineKind::Argocd, false, false, true),
        (EngineKind::Argocd, true, false, false),
        (EngineKind::Argocd, false, true, false),
        (EngineKind::Flux, false, false, false),
    ] {
        let mut cluster = Cluster::working_of(engine);
        cluster.history.adopted = adopted;
        let workload = cluster.install.workloads().next().unwrap().clone();
        let live = cluster.objects.get_mut(&workload).unwrap();
        live.ours = ours;
        "helm".clone_into(&mut live.writer);
        let text = "was installed by 'helm' before this cluster was adopted";
        let said = found(&cluster);
        let expected = told.then(|| Finding::new(Class::ForeignManager, &workload, text));
        assert_eq!(said, expected, "{engine:?} {adopted} {ours}");
    }
}
