//! What a commit takes out of Git: it is made again where it went, and held.

use super::*;

/// W19: what a commit removed is made again, and held until the catalog has it again.
#[test]
fn what_left_fluxs_inventory_is_made_again_and_held() {
    let mut cluster = owned();
    let id = deployment("source-controller");
    for (id, wanted) in &mut cluster.install.wanted {
        if id.kind.installable() && wanted.git_owned {
            let mut expect = wanted.expect.as_ref().clone();
            expect["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
            wanted.expect = Arc::new(expect);
        }
    }
    let inventory = |cluster: &mut Cluster, names: &[&str]| {
        let sync = cluster.install.sync.clone();
        let root = cluster.objects.get_mut(&sync).unwrap();
        let entry =
            |name: &&str| json!({"id": format!("flux-system_{name}_apps_Deployment"), "v": "v1"});
        let entries: Vec<Value> = names.iter().map(entry).collect();
        root.fields["status"]["inventory"] = json!({"entries": entries});
    };
    let (name, other) = ("source-controller", "kustomize-controller");
    cluster.objects.remove(&id);
    inventory(&mut cluster, &[name, other]);
    assert_eq!(
        writes(&cluster.plan()),
        [("create", name)],
        "a person's deletion"
    );
    inventory(&mut cluster, &[other]);
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("create-held", name)]);
    assert_eq!(plan.findings[0].class, Class::EngineRemovedByCommit);
    do_all(&mut cluster, &plan);
    works(&mut cluster);
    let labels = cluster.install.wanted[&id].expect["metadata"]["labels"].clone();
    cluster.objects.get_mut(&id).unwrap().fields["metadata"]["labels"] = labels;
    cluster.history.faults.clear();
    fetched(&mut cluster, "main@sha1:8");
    inventory(&mut cluster, &[other]);
    assert_eq!(writes(&cluster.plan()), [], "still not in the catalog");
    inventory(&mut cluster, &[name, other]);
    assert_eq!(writes(&cluster.plan()), [("lift", name)]);
}

/// W19: kustomize-controller prunes itself before it can say what it pruned, and begins anew each time.
#[test]
fn what_goes_again_while_a_commit_is_under_way_is_made_again_and_held() {
    let name = "source-controller";
    let mut cluster = owned();
    cluster.objects.remove(&deployment(name));
    let plan = cluster.plan();
    assert_eq!(writes(&plan), [("create", name)]);
    let missing = (Class::ObjectMissing, deployment(name));
    let mut again = |past: crate::agent::plan::state::Past, applied: &str| {
        cluster.history.faults = [(missing.clone(), past)].into();
        let sync = cluster.install.sync.clone();
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["lastAppliedRevision"] = json!(applied);
        let plan = cluster.plan();
        writes(&plan)
            .iter()
            .map(|(action, _)| (*action).to_owned())
            .collect::<Vec<_>>()
    };
    let past = |seconds: i64| crate::agent::plan::state::Past {
        attempts: vec![crate::agent::plan::tests::start() - Duration::seconds(seconds)],
        ..crate::agent::plan::state::Past::default()
    };
    assert_eq!(
        again(past(0), "main@sha1:1"),
        ["create"],
        "no commit is under way"
    );
    assert_eq!(again(past(0), "main@sha1:0"), ["create-held"]);
    assert_eq!(again(past(600), "main@sha1:0"), ["create"], "long ago");
}

/// W19: what the guard policy keeps is held, too: Flux would try to prune it for ever, and the root not be Ready.
#[test]
fn what_flux_is_refused_to_prune_is_held() {
    let mut cluster = owned();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let live = cluster.objects.get_mut(&namespace).unwrap();
    live.fields["metadata"]["labels"][GIT_OWNER] = json!("flux-system");
    let sync = cluster.install.sync.clone();
    for (text, held) in [
        (
            "delete failed, errors: Namespace/flux-system delete failed: forbidden",
            true,
        ),
        (
            "delete failed, errors: Namespace/other delete failed: forbidden",
            false,
        ),
    ] {
        let ready =
            json!({"type": "Ready", "status": "False", "reason": "PruneFailed", "message": text});
        let root = cluster.objects.get_mut(&sync).unwrap();
        root.fields["status"]["conditions"] = json!([ready]);
        let expected: &[(&str, &str)] = if held {
            &[("hold", "flux-system")]
        } else {
            &[]
        };
        assert_eq!(writes(&cluster.plan()), expected, "{text}");
    }
}
