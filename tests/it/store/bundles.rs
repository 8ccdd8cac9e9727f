//! What clusters are to run: the engine's bundles, and the registry that images come from.

use linesman::hub::store::{BundleUse, Images, NewBundle, Reported, Store, StoreError};
use linesman::wire::api::{BundleOrigin, BundleView, EngineKind};
use linesman::wire::id::{ClusterName, Digest};
use linesman::wire::report::{BUNDLES_IN_FORCE, Condition, ConditionType, Status};

use super::{at, cluster, digest, new, on_both, with_bundle};

on_both! {
    a_bundle_is_stored_once,
    what_nobody_vouched_for_is_told_until_somebody_does,
    a_bundle_that_was_removed_is_gone_until_it_comes_again,
    a_bundle_is_kept_for_living_clusters_that_are_to_run_it,
    a_bundle_is_kept_where_the_agent_names_it_and_by_its_words_only_where_it_names_none,
    the_default_registry_comes_and_goes,
}

async fn a_bundle_is_stored_once(store: Store) {
    with_bundle(&store).await;
    with_bundle(&store).await;
    let all = store.bundles().await.unwrap();
    let one = store.bundle(&digest()).await.unwrap().unwrap();
    assert_eq!(all, std::slice::from_ref(&one));
    assert_eq!((one.objects, one.size), (31, 3));
    let data = store.bundle_data(&digest()).await.unwrap();
    assert_eq!(data, Some(vec![0, 1, 255]));
}

async fn what_nobody_vouched_for_is_told_until_somebody_does(store: Store) {
    let import = async |source: &str, verified_by: &str| {
        let origin = BundleOrigin {
            source: source.to_owned(),
            verified_by: verified_by.to_owned(),
        };
        let bundle = NewBundle {
            digest: digest(),
            engine: EngineKind::Flux,
            version: "2.9.5".to_owned(),
            objects: 31,
            images: Vec::new(),
            data: vec![1],
            imported_by: "admin".to_owned(),
            origin: Some(origin),
        };
        let view = store.add_bundle(bundle, at(0)).await.unwrap();
        let origin = view.origin.unwrap();
        (origin.source, origin.verified_by)
    };
    let told = |source: &str, by: &str| (source.to_owned(), by.to_owned());
    assert_eq!(import("a.yaml", "").await, told("a.yaml", ""));
    let given = told("b.yaml", "--sha256");
    assert_eq!(import("b.yaml", "--sha256").await, given);
    // It is the same content.
    assert_eq!(import("c.yaml", "").await, given);
    assert!(store.remove_bundle(&digest(), at(1)).await.unwrap());
    assert_eq!(import("d.yaml", "").await, told("d.yaml", ""));
}

async fn a_bundle_that_was_removed_is_gone_until_it_comes_again(store: Store) {
    with_bundle(&store).await;
    let before = store.bundle(&digest()).await.unwrap().unwrap();
    assert_eq!(store.removed_bundle(&digest()).await.unwrap(), None);
    assert!(store.remove_bundle(&digest(), at(1)).await.unwrap());
    assert!(!store.remove_bundle(&digest(), at(2)).await.unwrap());
    assert!(store.bundles().await.unwrap().is_empty());
    assert_eq!(store.bundle(&digest()).await.unwrap(), None);
    assert_eq!(store.bundle_data(&digest()).await.unwrap(), None);
    let left = BundleView {
        size: 0,
        ..before.clone()
    };
    let known = store.removed_bundle(&digest()).await.unwrap();
    assert_eq!(known, Some(left));
    let made = store.create_cluster(new("eu1"), at(3)).await;
    assert!(matches!(made, Err(StoreError::NoBundle(_))), "{made:?}");
    with_bundle(&store).await;
    assert_eq!(store.bundle(&digest()).await.unwrap(), Some(before));
    let data = store.bundle_data(&digest()).await.unwrap();
    assert_eq!(data, Some(vec![0, 1, 255]));
    store.create_cluster(new("eu1"), at(4)).await.unwrap();
}

async fn a_bundle_is_kept_for_living_clusters_that_are_to_run_it(store: Store) {
    let eu1 = cluster(&store, "eu1").await;
    let eu2 = store.create_cluster(new("eu2"), at(0)).await.unwrap();
    let other = NewBundle {
        digest: Digest::from_bytes([2; 32]),
        engine: EngineKind::Flux,
        version: "2.9.6".to_owned(),
        objects: 31,
        images: Vec::new(),
        data: vec![2],
        imported_by: "admin".to_owned(),
        origin: None,
    };
    let other = store.add_bundle(other, at(1)).await.unwrap();
    let old = store.bundle(&digest()).await.unwrap().unwrap();
    let needed = |wished: &[&ClusterName], kept: &[&ClusterName]| BundleUse {
        wished: wished.iter().map(|name| (*name).clone()).collect(),
        kept: kept.iter().map(|name| (*name).clone()).collect(),
    };
    let both = needed(&[&eu1.name, &eu2.name], &[]);
    assert_eq!(store.bundle_use(&old.digest).await.unwrap(), both);
    assert!(!store.remove_bundle(&old.digest, at(2)).await.unwrap());
    // The record of a cluster that was removed names it still.
    store.remove_cluster(&eu2.id, at(3)).await.unwrap();
    let wish = store.set_engine(eu1.revision(), &other, 300, at(4));
    assert_eq!(wish.await.unwrap(), Some(1));
    let (from, to) = (old.digest.short(), other.digest.short());
    let said = Condition {
        kind: ConditionType::EngineCurrent,
        status: Status::False,
        reason: "Changing".to_owned(),
        message: format!("change 1: flux 2.9.5 ({from}…) to flux 2.9.6 ({to}…): 3 objects to go"),
        since: "2026-01-02T03:04:05Z".to_owned(),
    };
    store.set_condition(&eu1.id, said, at(5)).await.unwrap();
    let kept = needed(&[], &[&eu1.name]);
    assert_eq!(store.bundle_use(&old.digest).await.unwrap(), kept);
    let wished = needed(&[&eu1.name], &[]);
    assert_eq!(store.bundle_use(&other.digest).await.unwrap(), wished);
    assert!(store.remove_bundle(&old.digest, at(6)).await.unwrap());
    let now = store.cluster_by_id(&eu1.id).await.unwrap().unwrap();
    let wish = store.set_engine(now.revision(), &old, 300, at(7));
    assert_eq!(wish.await.unwrap(), None);
    let path = (&old, "clusters/eu1");
    let wish = store.replace_engine(now.revision(), path, 300, at(7));
    assert_eq!(wish.await.unwrap(), None);
    assert!(!store.remove_bundle(&other.digest, at(8)).await.unwrap());
}

async fn a_bundle_is_kept_where_the_agent_names_it_and_by_its_words_only_where_it_names_none(
    store: Store,
) {
    let eu1 = cluster(&store, "eu1").await;
    let said = Digest::from_bytes([0xab; 32]);
    // Both begin alike.
    let mut sum = [0xab; 32];
    sum[31] = 0;
    let alike = Digest::from_bytes(sum);
    let named = Digest::from_bytes([0xcd; 32]);
    let words = Condition {
        kind: ConditionType::EngineCurrent,
        status: Status::False,
        reason: "Changing".to_owned(),
        message: format!("change 1: flux 2.9.5 ({}…) to flux 2.9.6", said.short()),
        since: "2026-01-02T03:04:05Z".to_owned(),
    };
    for (ms, facts, kept) in [
        (1, None, [true, true, false]),
        (2, Some(format!("{alike},{named}")), [false, true, true]),
        (3, Some(named.to_string()), [false, false, true]),
        (4, None, [true, true, false]),
    ] {
        let facts = facts.map(|bundles| (BUNDLES_IN_FORCE.to_owned(), bundles));
        let report = Reported {
            facts: Some(facts.into_iter().collect()),
            conditions: Some(vec![words.clone()]),
            ..Reported::default()
        };
        store.report(&eu1.id, report, at(ms)).await.unwrap();
        for (digest, kept) in [&said, &alike, &named].into_iter().zip(kept) {
            let kept = kept.then(|| eu1.name.clone());
            let expected = BundleUse {
                wished: Vec::new(),
                kept: kept.into_iter().collect(),
            };
            let found = store.bundle_use(digest).await.unwrap();
            assert_eq!(found, expected, "{digest} at {ms} ms");
        }
    }
}

async fn the_default_registry_comes_and_goes(store: Store) {
    let images = |registry: &str, pull_secret: Option<&str>| Images {
        registry: registry.to_owned(),
        pull_secret: pull_secret.map(str::to_owned),
    };
    for said in [
        Some(images("a.invalid", None)),
        Some(images("a.invalid", Some("regcred"))),
        Some(images("", Some("other"))),
        Some(images("b.invalid", None)),
        None,
    ] {
        let before = store.default_registry().await.unwrap();
        let set = store.set_default_registry(before, said.clone());
        assert!(set.await.unwrap());
        // Of what was seen before, nothing is changed any more.
        let late = store.set_default_registry(Some(images("z.invalid", None)), None);
        assert!(!late.await.unwrap());
        assert_eq!(store.default_registry().await.unwrap(), said);
    }
}
