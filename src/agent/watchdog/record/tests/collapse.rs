//! What goes with a namespace or a CRD, what breaks beside it, and what the engine makes again.

use super::*;

#[test]
fn what_went_with_the_namespace_is_one_heal() {
    let (mut records, mut history) = adopted();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let dying = [(Class::NamespaceTerminating, namespace)];
    assert_eq!(round(&mut records, &mut history, 0, &dying, None).len(), 1);
    let missing = [(Class::ObjectMissing, deployment())];
    assert_eq!(round(&mut records, &mut history, 20, &missing, None), []);
    records.acted(
        at(21),
        &step(Class::ObjectMissing, &deployment()),
        &Outcome::Done,
    );
    let closed = round(&mut records, &mut history, 40, &[], Some(30));
    assert_eq!(closed[0].class, "NamespaceTerminating");
    assert_eq!(closed[0].steps.len(), 1);
}

/// W24, W28: a Deployment that is deleted while a CRD's heal is open has nothing to do with it.
#[test]
fn a_fault_beside_an_open_collapse_has_a_record_of_its_own() {
    let (mut records, mut history) = adopted();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "gitrepositories.source.toolkit.fluxcd.io",
    );
    let crd = (Class::CrdMissing, crd);
    let root = ObjectId::new(Kind::GitRepository, "flux-system", "flux-system");
    let root = (Class::RootDeleted, root);
    let rights = ObjectId::new(Kind::ClusterRoleBinding, "", "cluster-reconciler");
    let rights = (Class::ObjectMissing, rights);
    let gone = (Class::ObjectMissing, deployment());

    let found = [crd.clone(), root.clone(), rights];
    let opened = round(&mut records, &mut history, 0, &found, None);
    let classes: Vec<_> = opened.iter().map(|h| h.class.as_str()).collect();
    assert_eq!(classes, ["CrdMissing"]);
    records.acted(at(1), &step(crd.0, &crd.1), &Outcome::Done);

    let found = [root, gone.clone()];
    let opened = round(&mut records, &mut history, 2, &found, None);
    let classes: Vec<_> = opened.iter().map(|h| h.class.as_str()).collect();
    assert_eq!(classes, ["ObjectMissing"]);

    // What is left of the CRD's fault is nothing, whatever became of the Deployment.
    let told = round(&mut records, &mut history, 9, &[gone], Some(5));
    let ended: Vec<_> = told.iter().map(|h| (h.class.as_str(), h.result)).collect();
    assert_eq!(ended, [("CrdMissing", HealResult::Healed)]);
}

#[test]
fn what_goes_with_the_namespace_has_no_record_of_its_own() {
    let (mut records, mut history) = adopted();
    let namespace = ObjectId::new(Kind::Namespace, "", "flux-system");
    let found = [
        (Class::NamespaceMissing, namespace),
        (Class::ObjectMissing, deployment()),
    ];
    let opened = round(&mut records, &mut history, 0, &found[..1], None);
    assert_eq!(opened.len(), 1);
    assert_eq!(round(&mut records, &mut history, 1, &found, None), []);
}

/// engines.md, cascade guard, step 6: what a collapse cost is known only when the engine has made it again.
#[test]
fn what_the_engine_made_again_after_a_collapse_is_told_with_its_heal() {
    let (mut records, mut history) = adopted();
    let crd = ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "kustomizations.kustomize.toolkit.fluxcd.io",
    );
    let fault = [
        (Class::CrdTerminating, crd),
        (Class::ObjectMissing, deployment()),
    ];
    round(&mut records, &mut history, 0, &fault, None);
    assert_eq!(records.due(), None);
    let ended = round(&mut records, &mut history, 20, &[], Some(15));
    let ended = ended
        .iter()
        .find(|heal| heal.class == "CrdTerminating")
        .unwrap();
    let remade = |count: u32| Remade {
        count,
        objects: (0..count).map(|n| format!("ConfigMap shop/{n}")).collect(),
    };
    let look = Some((ended.id.clone(), at(0)));
    assert_eq!(
        (records.due(), records.aftermath(at(29))),
        (Some(at(30)), None)
    );
    assert_eq!(
        (records.aftermath(at(30)), records.aftermath(at(30))),
        (look.clone(), None)
    );
    assert_eq!(records.remade(&ended.id, remade(0)), None);
    // The second look finds some, the last no others.
    assert_eq!(records.aftermath(at(80)), look);
    let told = records.remade(&ended.id, remade(2)).unwrap();
    let mut expected = ended.clone();
    expected.scene.remade = remade(2);
    assert_eq!(told, expected);
    let kept = records.kept();
    let kept: Vec<&HealRecord> = kept
        .iter()
        .map(|k| &k.record)
        .filter(|r| r.id == ended.id)
        .collect();
    assert_eq!(kept, [&expected], "an agent after this one tells it, too");
    assert_eq!(records.aftermath(at(300)), look);
    assert_eq!(
        (records.remade(&ended.id, remade(2)), records.due()),
        (None, None)
    );
    assert_eq!(
        records.remade(&ended.id, remade(3)),
        None,
        "it is looked after no more"
    );
}
