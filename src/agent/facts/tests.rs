use serde_json::{Value, json};

use super::*;
use crate::agent::calls;
use crate::agent::lease::Candidate;
use crate::agent::plan;
use crate::agent::plan::change::{Change, Form};
use crate::lifetime::hearts::{Hearts, STILL};

fn node(ready: bool, arch: &str, provider_id: &str, zone: &str) -> NodeFacts {
    NodeFacts {
        ready,
        arch: arch.to_owned(),
        provider_id: provider_id.to_owned(),
        region: "eu-west-1".to_owned(),
        zone: zone.to_owned(),
        labels: BTreeSet::new(),
    }
}

/// L54: facts are read by several calls at once, in pages. However slowly they are answered, the task goes on; where they are
/// never answered, and nothing ends them, it is told of 8 s after the end of a call's time.
#[tokio::test(start_paused = true)]
async fn a_slow_api_server_is_no_standstill_and_a_call_without_end_is() {
    let second = Duration::from_secs(1);
    let slow = calls::LIMIT.saturating_sub(second);
    for (takes, stuck_at) in [(slow, None), (second * 3600, Some(69))] {
        let server = tower::service_fn(move |_: http::Request<kube::client::Body>| async move {
            tokio::time::sleep(takes).await;
            let answer = http::Response::builder().status(404);
            answer.body(kube::client::Body::from(b"{}".to_vec()))
        });
        let kube = kube::Client::new(server, "linesman");
        let hearts = Hearts::default();
        let heart = hearts.heart("facts", STILL);
        let term = Candidate::new(kube.clone(), "linesman", "a".to_owned()).term();
        let (_desired, desired) = watch::channel(None);
        let origin = Origin {
            kube: term.client(&kube, Some(heart.clone())),
            namespace: "linesman".to_owned(),
            desired,
        };
        let out = watch::channel(Facts::new()).0;
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(run(origin, heart, out, CancellationToken::new()));
        let mut told = None;
        for at in 1..600 {
            tokio::time::sleep(second).await;
            if told.is_none() && hearts.say().is_some() {
                told = Some(at);
            }
        }
        assert_eq!(told, stuck_at, "{takes:?}");
    }
}

/// The task with what it goes by and what it tells.
struct Told {
    wished: watch::Sender<Option<Desired>>,
    facts: watch::Receiver<Facts>,
    _task: tokio::task::JoinSet<Result<()>>,
}

/// An API server that has nothing but what stands at these paths.
fn having(objects: watch::Receiver<BTreeMap<&'static str, Value>>) -> kube::Client {
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let found = objects.borrow().get(request.uri().path()).cloned();
        async move {
            let code: u16 = if found.is_some() { 200 } else { 404 };
            let text = found.unwrap_or_else(|| json!({})).to_string();
            let answer = http::Response::builder().status(code);
            answer.body(kube::client::Body::from(text.into_bytes()))
        }
    });
    kube::Client::new(server, "linesman")
}

impl Told {
    /// In an empty cluster.
    fn of(desired: Desired) -> Self {
        Self::in_cluster(having(watch::channel(BTreeMap::new()).1), Some(desired))
    }

    fn in_cluster(kube: kube::Client, desired: Option<Desired>) -> Self {
        let (wished, desired) = watch::channel(desired);
        let origin = Origin {
            kube,
            namespace: "linesman".to_owned(),
            desired,
        };
        let heart = Hearts::default().heart("facts", STILL);
        let (out, facts) = watch::channel(Facts::new());
        let mut task = tokio::task::JoinSet::new();
        task.spawn(run(origin, heart, out, CancellationToken::new()));
        Self {
            wished,
            facts,
            _task: task,
        }
    }
}

/// H47: what cannot be read any more is not told any more, from the next look on.
#[tokio::test(start_paused = true)]
async fn facts_whose_source_is_gone_are_gone_within_a_minute() {
    let node = json!({
        "metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let nodes = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [node]});
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "linesman-facts"}, "data": {"tier": "gold"},
    });
    let objects = [
        ("/api/v1/nodes", nodes),
        (
            "/api/v1/namespaces/linesman/configmaps/linesman-facts",
            owner,
        ),
    ];
    let (objects, served) = watch::channel(BTreeMap::from(objects));
    let mut told = Told::in_cluster(having(served), None);
    let own = BTreeMap::from([
        ("agent.replaces-engines", "true"),
        ("agent.version", env!("CARGO_PKG_VERSION")),
    ]);
    let mut all = own.clone();
    all.extend([("nodes.count", "1"), ("nodes.ready", "1")]);
    all.insert("owner/tier", "gold");
    for expected in [all, own] {
        let wanted = |facts: &Facts| {
            let facts = facts
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()));
            facts.eq(expected.iter().map(|(key, value)| (*key, *value)))
        };
        let seen = told.facts.wait_for(wanted);
        // And the time that the look itself takes.
        let seen = tokio::time::timeout(EVERY + Duration::from_secs(1), seen).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()), "{expected:?}");
        objects.send_replace(BTreeMap::new());
    }
}

/// `cluster git --wait` goes by that: it is told when it is so, not with the next look.
#[tokio::test(start_paused = true)]
async fn another_way_to_the_git_host_is_told_at_once() {
    let told = Told::of(plan::tests::desired_of(EngineKind::Flux));
    let (wished, mut facts) = (&told.wished, told.facts.clone());
    for via in [Via::Direct, Via::Line, Via::Direct] {
        wished.send_modify(|desired| desired.as_mut().unwrap().assignment.catalog.via = via);
        let told = facts.wait_for(|f| f.get(GIT_IN_FORCE).is_some_and(|way| way == via.as_str()));
        let told = tokio::time::timeout(EVERY / 2, told).await;
        assert!(told.is_ok_and(|told| told.is_ok()), "{via:?}");
    }
}

/// The hub lets go of no bundle that is named there: with the next look it might be gone by then.
#[tokio::test(start_paused = true)]
async fn the_bundle_in_force_and_the_one_that_may_come_back_are_told_at_once() {
    let desired = plan::tests::desired_of(EngineKind::Flux);
    let old = desired.install.form.clone();
    let new = Form {
        bundle: Digest::from_bytes([9; 32]),
        ..old.clone()
    };
    let change = |failed: Option<&str>| Change {
        from: old.clone(),
        to: new.clone(),
        number: 1,
        since: "2026-01-02T03:04:05Z".to_owned(),
        within: 300,
        both: false,
        objects: Vec::new(),
        failed: failed.map(str::to_owned),
        ending: None,
    };
    let told = Told::of(desired);
    let mut facts = told.facts.clone();
    let both = format!("{},{}", new.bundle, old.bundle);
    let [old_alone, new_alone] = [&old, &new].map(|form| form.bundle.to_string());
    for (form, change, expected) in [
        (&old, None, &old_alone),
        (&new, Some(change(None)), &both),
        (&new, None, &new_alone),
        (&old, Some(change(Some("why"))), &old_alone),
    ] {
        told.wished.send_modify(|desired| {
            let install = &mut desired.as_mut().unwrap().install;
            install.form = form.clone();
            install.change = change;
        });
        let said = facts.wait_for(|f| f.get(BUNDLES_IN_FORCE) == Some(expected));
        let said = tokio::time::timeout(EVERY / 2, said).await;
        assert!(said.is_ok_and(|said| said.is_ok()), "{expected}");
    }
}

/// Whoever ends an attempt is led back to where the engine was: the hub knows only what it named last.
#[test]
fn the_path_that_is_followed_is_told_with_that_of_the_engine_that_may_come_back() {
    let mut desired = plan::tests::desired_of(EngineKind::Argocd);
    desired.assignment.catalog.path = "clusters/eu1.argocd".to_owned();
    let argocd = desired.install.form.clone();
    let flux = Form {
        kind: Some(EngineKind::Flux),
        bundle: Digest::from_bytes([9; 32]),
        ..argocd.clone()
    };
    let change = |from: Form| Change {
        from,
        to: argocd.clone(),
        number: 1,
        since: "2026-01-02T03:04:05Z".to_owned(),
        within: 300,
        both: true,
        objects: Vec::new(),
        failed: None,
        ending: None,
    };
    let own = (EngineKind::Argocd, "clusters/eu1.argocd".to_owned());
    let before = (EngineKind::Flux, "clusters/eu1".to_owned());
    for (change, expected) in [
        (None, vec![own.clone()]),
        // Another version of the same engine.
        (
            Some(change(argocd.clone().following("x"))),
            vec![own.clone()],
        ),
        // Of an agent of before, which kept none.
        (Some(change(flux.clone())), vec![own.clone()]),
        (
            Some(change(flux.following("clusters/eu1"))),
            vec![own, before],
        ),
    ] {
        desired.install.change = change;
        assert_eq!(Setup::of(&desired).paths, expected);
    }
}

#[test]
fn a_whole_cluster_is_summarised() {
    let bundles = [1, 2].map(|n| Digest::from_bytes([n; 32]));
    let both = format!("{},{}", bundles[0], bundles[1]);
    let sources = Sources {
        version: Some(("v1.33.1-eks-1".into(), "33+".into(), "linux/amd64".into())),
        incarnation: Some("uid-1".into()),
        nodes: Some(vec![
            node(true, "amd64", "aws:///eu-west-1a/i-0", "eu-west-1a"),
            node(false, "arm64", "aws:///eu-west-1b/i-1", "eu-west-1b"),
        ]),
        openshift: None,
        owner: [("tier".to_owned(), "gold".to_owned())].into(),
        agent_version: "0.1.0".into(),
        setup: Some(Setup {
            engine: EngineKind::Argocd,
            bundles: bundles.to_vec(),
            paths: vec![
                (EngineKind::Argocd, "clusters/eu1.argocd".to_owned()),
                (EngineKind::Flux, "clusters/eu1".to_owned()),
            ],
            git: Via::Line,
            namespace: "argocd".to_owned(),
            verifies: true,
            verifies_ssh: true,
        }),
        unverified: Some(false),
    };
    let expected = [
        ("agent.replaces-engines", "true"),
        ("agent.version", "0.1.0"),
        ("cloud", "aws"),
        ("distribution", "eks"),
        ("engine.bundles", both.as_str()),
        ("engine.in-force", "argocd"),
        (
            "engine.paths",
            "argocd=clusters/eu1.argocd,flux=clusters/eu1",
        ),
        ("engine.verifies", "true"),
        ("engine.verifies-ssh", "true"),
        ("git.in-force", "line"),
        ("incarnation", "uid-1"),
        ("kubernetes.minor", "33"),
        ("kubernetes.platform", "linux/amd64"),
        ("kubernetes.version", "v1.33.1-eks-1"),
        ("nodes.arch", "amd64,arm64"),
        ("nodes.count", "2"),
        ("nodes.ready", "1"),
        ("owner/tier", "gold"),
        ("region", "eu-west-1"),
        ("zone", "eu-west-1a,eu-west-1b"),
    ];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(summarize(&sources), expected);
}

/// W43: who signs is verified where the engine can, and was not told to leave that; of one that cannot be read nothing is said.
#[tokio::test(start_paused = true)]
async fn an_engine_that_was_told_to_verify_nothing_is_not_said_to_verify() {
    let path = "/apis/apps/v1/namespaces/argocd/statefulsets/argocd-application-controller";
    let controller = |env: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "argocd-application-controller"},
            "spec": {
                "selector": {}, "serviceName": "",
                "template": {"spec": {"containers": [{"name": "controller", "env": env}]}},
            },
        })
    };
    let off = json!([{"name": "ARGOCD_GPG_ENABLED", "value": "false"}]);
    let (objects, served) = watch::channel(BTreeMap::from([(path, controller(off))]));
    let desired = plan::tests::desired_of(EngineKind::Argocd);
    let told = Told::in_cluster(having(served), Some(desired));
    let mut facts = told.facts.clone();
    for verifies in [false, true] {
        let said =
            |f: &Facts| f.contains_key(ENGINE_IN_FORCE) && f.contains_key(VERIFIES) == verifies;
        let seen = tokio::time::timeout(EVERY * 2, facts.wait_for(said)).await;
        assert!(seen.is_ok_and(|seen| seen.is_ok()), "{verifies}");
        objects.send_replace(BTreeMap::from([(path, controller(json!([])))]));
    }
}

/// W43: Git may have brought an older Flux than the bundle in force.
#[tokio::test(start_paused = true)]
async fn ssh_keys_are_said_to_be_read_by_the_version_that_is_there() {
    let path = "/apis/apps/v1/namespaces/flux-system/deployments/source-controller";
    let controller = |tag: &str| {
        let image = format!("ghcr.io/fluxcd/source-controller:{tag}");
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "source-controller"},
            "spec": {
                "selector": {},
                "template": {"spec": {"containers": [{"name": "manager", "image": image}]}},
            },
        })
    };
    let desired = plan::tests::desired_of(EngineKind::Flux);
    for (bundled, live, said) in [
        (true, Some("v1.9.0"), true),
        (true, Some("v1.8.5"), false),
        (false, Some("v1.9.0"), false),
        (true, None, false),
    ] {
        let objects = live.map(|tag| (path, controller(tag)));
        let kube = having(watch::channel(objects.into_iter().collect()).1);
        let setup = Setup {
            verifies_ssh: bundled,
            ..Setup::of(&desired)
        };
        let facts = collect(&kube, "linesman", Some(setup)).await;
        assert_eq!(facts.contains_key(VERIFIES_SSH), said, "{bundled} {live:?}");
    }
}

#[test]
fn what_cannot_be_read_is_absent() {
    assert_eq!(summarize(&Sources::default()), Facts::new());
    let empty = Sources {
        nodes: Some(Vec::new()),
        ..Sources::default()
    };
    let expected = [("nodes.count", "0"), ("nodes.ready", "0")];
    let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(summarize(&empty), expected);
}

#[test]
fn distributions_are_told_apart() {
    let of = |version: &str, provider: &str, label: &str| {
        let mut node = node(true, "amd64", provider, "");
        node.labels = [label.to_owned()].into();
        distribution(version, &[node], false)
    };
    assert_eq!(of("v1.33.1+k3s1", "k3s://a", ""), "k3s");
    assert_eq!(of("v1.33.1+rke2r1", "", ""), "rke2");
    assert_eq!(of("v1.33.1-gke.1", "gce://p/z/n", ""), "gke");
    assert_eq!(
        of("v1.33.1", "azure:///x", "kubernetes.azure.com/role"),
        "aks"
    );
    assert_eq!(of("v1.33.1", "kind://docker/kind/n", ""), "kind");
    assert_eq!(of("v1.33.1", "", ""), "");
    assert_eq!(distribution("v1.33.1", &[], true), "openshift");
    assert_eq!(cloud("gce://p/z/n"), "gcp");
}

#[test]
fn an_owner_cannot_send_more_than_fits() {
    let owner = (0..200).map(|n| (format!("k{n:03}"), "é".repeat(4096)));
    let sources = Sources {
        owner: owner.collect(),
        ..Sources::default()
    };
    let facts = summarize(&sources);
    assert_eq!(facts.len(), OWNER_FACTS);
    assert!(facts.values().all(|v| v.len() == LONGEST_VALUE));
}
