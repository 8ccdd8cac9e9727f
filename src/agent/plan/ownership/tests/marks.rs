//! What the engine's marks count for, by who wrote them and what they name.

use super::*;
use crate::agent::plan::burst::Fate;
use crate::agent::plan::state::Child;
use crate::agent::plan::{plan, project};

/// A mark is easily written: only what the engine applied is the engine's.
#[test]
fn a_mark_that_somebody_else_wrote_does_not_switch_healing_off() {
    for (marked, from, told) in [
        (false, "flux-system", true),
        (true, "elsewhere", true),
        (true, "flux-system", false),
    ] {
        let mut cluster = Cluster::working();
        applied(&mut cluster, &source(), IMAGE, json!("evil.test/x:v1"));
        let by = ObjectId::new(Kind::Kustomization, "flux-system", from);
        mark(&mut cluster, &source(), &by);
        let live = cluster.objects.get_mut(&source()).unwrap();
        live.marked = marked;
        if !marked {
            "kubectl-label".clone_into(&mut live.writer);
        }
        rolled(&mut cluster);
        let plan = cluster.plan();
        let expected: &[(&str, &str)] = if told {
            &[("apply", "source-controller")]
        } else {
            &[]
        };
        assert_eq!(writes(&plan), expected, "{marked} {from}");
    }
}

/// What hangs on the root brings for it, and nothing else does. What is not listed yet may.
#[test]
fn a_mark_counts_by_what_it_names() {
    let under = |owner: Option<&ObjectId>| Child {
        fate: Fate {
            owner: owner.cloned(),
            ..Fate::default()
        },
        ..Child::default()
    };
    let of = |name: &str| ObjectId::new(Kind::Kustomization, "flux-system", name);
    let (root, infra, engine) = (of("flux-system"), of("infra"), of("engine"));
    for (children, awaited, counts) in [
        (
            vec![(&engine, under(Some(&infra))), (&infra, under(Some(&root)))],
            false,
            true,
        ),
        (
            vec![(&engine, under(Some(&infra))), (&infra, under(None))],
            false,
            false,
        ),
        (vec![(&engine, under(Some(&engine)))], false, false),
        (vec![], false, false),
        (vec![], true, true),
    ] {
        let mut cluster = taken_over(EngineKind::Flux);
        mark(&mut cluster, &source(), &engine);
        let mut observed = cluster.observed();
        let children = children.into_iter().map(|(id, child)| (id.clone(), child));
        observed.children = Arc::new(children.collect());
        if awaited {
            observed.awaited.insert(Kind::Kustomization);
        }
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let fights = plan.findings.iter().any(|f| f.class == Class::BadImage);
        assert_eq!(fights, !counts, "{:?}", observed.children);
    }
}

/// A sync object of Argo CD, with this in its metadata.
fn of_argocd(kind: Kind, name: &str, meta: &Value) -> (ObjectId, Child) {
    let mut live = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(),
        "metadata": {"name": name, "namespace": "argocd"}, "spec": {},
    });
    let all = live["metadata"].as_object_mut().unwrap();
    all.extend(meta.as_object().unwrap().clone());
    let live = serde_json::from_value(live).unwrap();
    let child = Child {
        fate: Fate::of("argocd", kind, &live),
        ..project::child("argocd", kind, &live).unwrap()
    };
    (ObjectId::new(kind, "argocd", name), child)
}

/// W22: what an `ApplicationSet` of the catalog makes brings for it, as the set itself would.
#[test]
fn what_an_application_set_makes_hangs_on_what_brought_the_set() {
    let server = ObjectId::new(Kind::Deployment, "argocd", "argocd-repo-server");
    let mut cluster = taken_over(EngineKind::Argocd);
    let root = cluster.install.sync.name.clone();
    let engine = ObjectId::new(Kind::Application, "argocd", "engine");
    mark(&mut cluster, &server, &engine);
    let made = |kind: Kind| {
        let owner = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "name": "addons", "uid": "1",
        });
        let meta = json!({"ownerReferences": [owner]});
        of_argocd(Kind::Application, "engine", &meta)
    };
    let engine = || made(Kind::ApplicationSet);
    let tracked = |by: &str| json!({"annotations": {TRACKING: format!("{by}:x")}});
    let set = |by: &str| of_argocd(Kind::ApplicationSet, "addons", &tracked(by));
    let infra = |by: &str| of_argocd(Kind::Application, "infra", &tracked(by));
    let unmarked = || of_argocd(Kind::ApplicationSet, "addons", &json!({}));
    for (what, children, counts) in [
        ("the root's", vec![engine(), set(&root)], true),
        (
            "of what hangs on the root",
            vec![engine(), set("infra"), infra(&root)],
            true,
        ),
        ("nobody's", vec![engine(), unmarked()], false),
        (
            "another root's",
            vec![engine(), set("infra"), infra("tenant")],
            false,
        ),
        ("its own", vec![engine(), set("engine")], false),
        ("not there", vec![engine()], false),
        ("none", vec![made(Kind::AppProject), set(&root)], false),
    ] {
        let mut observed = cluster.observed();
        observed.children = Arc::new(children.into_iter().collect());
        let plan = plan(cluster.now, &cluster.install, &observed, &cluster.history);
        let name = "argocd-repo-server";
        let expected = if counts {
            (vec![], vec![])
        } else {
            (vec![(Class::BadImage, name)], vec![("apply", name)])
        };
        assert_eq!((found(&plan), writes(&plan)), expected, "{what}");
    }
}
