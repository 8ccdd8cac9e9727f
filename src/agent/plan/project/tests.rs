use super::*;

mod keepsake;
mod pods;

#[test]
fn a_lease_names_its_controller_and_the_pod_that_holds_it() {
    let live = |name: &str| {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "flux-system", "uid": "u"},
            "spec": {
                "holderIdentity": "source-controller-7f_1a2b",
                "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-02T03:04:05.678901Z",
            },
        });
        serde_json::from_value::<DynamicObject>(lease).unwrap()
    };
    let seen = OffsetDateTime::UNIX_EPOCH;
    let plain = "source-controller-leader-election";
    let (name, read) = lease(&live(plain), seen).unwrap();
    assert_eq!(
        (name.as_str(), read.holder.as_str()),
        (plain, "source-controller-7f")
    );
    assert_eq!(clock::rfc3339(read.renewed), "2026-01-02T03:04:05.678Z");
    let acquired = read.acquired.map(clock::rfc3339);
    assert_eq!(acquired.as_deref(), Some("2026-01-01T00:00:00.000Z"));
    // F13: Argo CD's has a name of its own.
    let own = "58ac56fa.applicationsets.argoproj.io";
    assert_eq!(lease(&live(own), seen).unwrap().0, own);
    let of_shard = "source-controller-leader-election-73fdc1be";
    assert_eq!(lease(&live(of_shard), seen).unwrap().0, of_shard);
    assert_eq!(lease(&live("some-other"), seen), None);
}

/// The hashes of `foo` are those of fluxcd/pkg's own tests (`runtime/leaderelection/leaderelection_test.go`), the others of `sha256sum`.
#[test]
fn a_lease_is_named_after_its_controller_and_its_selector() {
    let applicationsets = "argocd-applicationset-controller";
    let ours = "!sharding.fluxcd.io/key";
    for (controller, selector, name) in [
        ("foo", None, "foo-leader-election"),
        ("foo", Some("bar"), "foo-leader-election-fcde2b2e"),
        ("foo", Some("barbaz"), "foo-leader-election-c8f8b724"),
        (
            "helm-controller",
            Some(ours),
            "helm-controller-leader-election-42da7484",
        ),
        (
            "helm-controller",
            Some("sharding.fluxcd.io/key=shard1"),
            "helm-controller-leader-election-73fdc1be",
        ),
        (
            applicationsets,
            None,
            "58ac56fa.applicationsets.argoproj.io",
        ),
    ] {
        assert_eq!(lease_of(controller, selector), name);
        assert_eq!(led_by(name), Some(controller), "{name}");
    }
    for other in [
        "source-controller",
        "source-controller-73fdc1be",
        "source-controller-leader-election-73fdc1b",
        "source-controller-leader-election-73FDC1BE",
        "source-controller-leader-election-shard001",
    ] {
        assert_eq!(led_by(other), None, "{other}");
    }
}

#[test]
fn a_sync_object_at_work_says_nothing_of_itself() {
    let said = |spec: Value, status: &str| {
        let ready = json!({"type": "Ready", "status": status, "reason": "BuildFailed", "message": "no such file"});
        let live = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "apps"},
            "spec": spec, "status": {"conditions": [ready]},
        });
        let live = serde_json::from_value(live).unwrap();
        child("flux-system", Kind::Kustomization, &live)
    };
    let trouble = Some(("BuildFailed".to_owned(), "no such file".to_owned()));
    let broken = Child {
        trouble,
        ..Child::default()
    };
    assert_eq!(said(json!({}), "False"), Some(broken));
    assert_eq!(said(json!({}), "True"), Some(Child::default()));
    assert_eq!(said(json!({}), "Unknown"), None);
    let suspended = Child {
        suspended: true,
        ..Child::default()
    };
    for status in ["False", "Unknown"] {
        let said = said(json!({"suspend": true}), status);
        assert_eq!(said.as_ref(), Some(&suspended), "{status}");
    }
}

/// F39: with no more of a long message than is kept of one that failed.
#[test]
fn an_application_tells_what_it_says_at_work_and_nothing_else_does() {
    let said = |kind: Kind, message: &str| {
        let live = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "shop", "namespace": "apps"},
            "status": {"operationState": {"phase": "Running", "message": message}},
        });
        at_work(kind, &serde_json::from_value(live).unwrap())
    };
    let long = "x".repeat(10_000);
    for (kind, message, expected) in [
        (Kind::Application, "waiting", Some("waiting".to_owned())),
        (Kind::Application, long.as_str(), Some(short(&long))),
        (Kind::Kustomization, "waiting", None),
    ] {
        assert_eq!(said(kind, message), expected, "{kind:?}");
    }
}

/// By it is told whether what one says of itself is of the present commit.
#[test]
fn a_kustomization_tells_the_revision_that_it_tried_last_and_a_release_does_not() {
    for (kind, tried) in [
        (Kind::Kustomization, "main@sha1:2"),
        (Kind::HelmRelease, ""),
    ] {
        let live = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "shop", "namespace": "apps"}, "spec": {},
            "status": {
                "lastAttemptedRevision": "main@sha1:2", "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let expected = Child {
            tried: tried.to_owned(),
            ..Child::default()
        };
        let live = serde_json::from_value(live).unwrap();
        assert_eq!(child("flux-system", kind, &live), Some(expected));
    }
}

/// W18: the engine answers within the second in which it is asked, and so do we.
#[test]
fn the_writer_is_the_engine_although_it_was_asked_or_mended_in_the_same_second_or_asked_later() {
    let spec = json!({"f:spec": {"f:url": {}}});
    let asked = json!({"f:metadata": {"f:annotations": {"f:reconcile.fluxcd.io/requestedAt": {}}}});
    let entry = |manager: &str, operation: &str, second: u8, fields: &Value| {
        json!({
            "manager": manager, "operation": operation, "time": format!("2026-01-02T03:04:{second:02}Z"),
            "fieldsV1": fields,
        })
    };
    let engine = |second| entry("kustomize-controller", "Apply", second, &spec);
    let ours = |second| entry(MANAGER, "Apply", second, &spec);
    let asks = |second| entry(MANAGER, "Update", second, &asked);
    let held = |second| entry(quarantine::MANAGER, "Update", second, &spec);
    let kept = |second| entry(KEPT, "Apply", second, &spec);
    for (entries, writer) in [
        (json!([engine(5), held(5)]), "kustomize-controller"),
        (json!([held(5), engine(5)]), "kustomize-controller"),
        (json!([engine(5), held(6), ours(6)]), MANAGER),
        (json!([engine(5), ours(5), asks(5)]), "kustomize-controller"),
        (json!([ours(4), engine(5), asks(9)]), "kustomize-controller"),
        (json!([engine(5), ours(6), asks(5)]), MANAGER),
        // Put back by us, whoever had it first.
        (json!([engine(5), kept(6)]), MANAGER),
    ] {
        let live = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "flux-system", "managedFields": entries},
        });
        let live = serde_json::from_value(live).unwrap();
        assert_eq!(object(Kind::GitRepository, live).writer, writer);
    }
}

#[test]
fn the_writer_is_who_scaled_last_and_not_who_wrote_the_status() {
    let live = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "source-controller",
            "managedFields": [
                { "manager": "linesman", "time": "2026-01-02T03:00:00Z" },
                { "manager": "kubectl", "subresource": "scale", "time": "2026-01-02T03:10:00Z" },
                { "manager": "kube-controller-manager", "subresource": "status", "time": "2026-01-02T03:11:00Z" },
            ],
        },
        "spec": { "replicas": 0 },
    });
    let live: DynamicObject = serde_json::from_value(live).unwrap();
    let at = Some(time::macros::datetime!(2026-01-02 03:10:00 UTC));
    assert_eq!(written(Kind::Deployment, &live), at);
    let object = object(Kind::Deployment, live);
    assert_eq!((object.writer.as_str(), object.written), ("kubectl", at));
}

/// F29: whoever wrote something else later did not stop it.
#[test]
fn a_root_tells_who_set_what_stops_it_and_when() {
    let suspend = json!({"f:spec": {"f:suspend": {}, "f:path": {}}});
    let path = json!({"f:spec": {"f:path": {}}});
    let skip =
        json!({"f:metadata": {"f:annotations": {"f:argocd.argoproj.io/skip-reconcile": {}}}});
    let entry = |manager: &str, minute: u8, fields: &Value| {
        let at = format!("2026-01-02T03:{minute:02}:00Z");
        json!({"manager": manager, "operation": "Update", "time": at, "fieldsV1": fields})
    };
    let by = |who: &str, minute: i64| {
        let at = time::macros::datetime!(2026-01-02 03:00:00 UTC);
        Some((who.to_owned(), Some(at + time::Duration::minutes(minute))))
    };
    for (entries, expected) in [
        (
            json!([entry("flux", 5, &suspend), entry("kubectl", 9, &path)]),
            by("flux", 5),
        ),
        (
            json!([entry("flux", 5, &suspend), entry("kubectl", 9, &suspend)]),
            by("kubectl", 9),
        ),
        (json!([entry("kubectl", 7, &skip)]), by("kubectl", 7)),
        (json!([entry("kubectl", 9, &path)]), None),
    ] {
        let live = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "flux-system", "managedFields": entries},
        });
        let live = object(Kind::Kustomization, serde_json::from_value(live).unwrap());
        assert_eq!(live.stopped, expected);
    }
}

/// W19, W11: it is read for each object of the engine, pass by pass, however much the catalog has beside that; and for each sync object
/// that goes.
#[test]
fn of_a_roots_inventory_the_engines_part_and_the_sync_objects_are_kept() {
    let ours = json!([
        {"id": "flux-system_source-controller_apps_Deployment", "v": "v1"},
        {"id": "_kustomizations.kustomize.toolkit.fluxcd.io_apiextensions.k8s.io_CustomResourceDefinition", "v": "v1"},
        {"id": "flux-system_shop_kustomize.toolkit.fluxcd.io_Kustomization", "v": "v1"},
        {"id": "shop_web_helm.toolkit.fluxcd.io_HelmRelease", "v": "v2"},
    ]);
    let others = (0..5_000).flat_map(|n| {
        let crd = format!("_kind{n}.example.org_apiextensions.k8s.io_CustomResourceDefinition");
        let role = format!("_team{n}_rbac.authorization.k8s.io_ClusterRole");
        [crd, role, format!("shop_web{n}_apps_Deployment")].map(|id| json!({"id": id, "v": "v1"}))
    });
    let mut entries: Vec<Value> = others.collect();
    entries.extend(ours.as_array().cloned().unwrap());
    let live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "flux-system", "namespace": "flux-system"},
        "status": {"inventory": {"entries": entries}},
    });
    let kept = object(Kind::Kustomization, serde_json::from_value(live).unwrap());
    assert_eq!(kept.fields["status"]["inventory"]["entries"], ours);
}

/// F11: how long it took is kept, and not all of the past.
#[test]
fn of_a_roots_history_the_last_time_is_kept() {
    let one =
        |at: &str| json!({"lastReconciled": at, "lastReconciledDuration": "2s", "digest": "d"});
    let live = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "flux-system"},
        "status": {"history": [one("2026-01-02T03:10:00Z"), one("2026-01-02T03:00:00Z")]},
    });
    let live = object(Kind::Kustomization, serde_json::from_value(live).unwrap());
    let kept = json!([{"lastReconciled": "2026-01-02T03:10:00Z", "lastReconciledDuration": "2s"}]);
    assert_eq!(live.fields["status"]["history"], kept);
}

/// F45
#[test]
fn an_object_tells_the_controller_that_owns_it_and_no_other_owner() {
    let live = |owners: Value| {
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "argocd-repo-server", "namespace": "argocd", "ownerReferences": owners},
        });
        object(Kind::Deployment, serde_json::from_value(live).unwrap()).controller
    };
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "example.com/v1", "kind": kind, "name": "argocd", "uid": "u", "controller": controller});
    let both = json!([owner("Backup", false), owner("ArgoCD", true)]);
    for (owners, told) in [
        (json!([]), ""),
        (json!([owner("Backup", false)]), ""),
        (both, "ArgoCD argocd"),
    ] {
        assert_eq!(live(owners.clone()), told, "{owners}");
    }
}

/// W19: of thousands of resources, those that may be the engine's, and those that it will prune.
#[test]
fn of_an_applications_resources_those_are_kept_that_are_read() {
    let resource = |namespace: &str, extra: bool| {
        let status = if extra { "OutOfSync" } else { "Synced" };
        json!({
            "group": "apps", "kind": "Deployment", "namespace": namespace, "name": "x",
            "status": status, "requiresPruning": extra,
        })
    };
    let kept = json!([
        resource("argocd", false),
        resource("shop", true),
        resource("argocd", true)
    ]);
    let mut all = kept.clone();
    all.as_array_mut()
        .unwrap()
        .insert(1, resource("shop", false));
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "linesman", "namespace": "argocd"}, "status": {"resources": all},
    });
    let live = object(Kind::Application, serde_json::from_value(live).unwrap());
    assert_eq!(live.fields["status"]["resources"], kept);
}

#[test]
fn of_what_an_application_was_compared_with_its_source_is_kept() {
    let live = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "linesman"},
        "status": {"sync": {"status": "Synced", "comparedTo": {
            "destination": {"namespace": "argocd"}, "ignoreDifferences": [{"kind": "Application"}],
            "source": {"repoURL": "u", "path": "p", "targetRevision": "main", "helm": {"values": "long"}},
        }}},
    });
    let object = object(Kind::Application, serde_json::from_value(live).unwrap());
    assert_eq!(
        object.fields["status"]["sync"]["comparedTo"],
        json!({"source": {"repoURL": "u", "path": "p", "targetRevision": "main"}})
    );
}

/// Only what applies the catalog's objects marks them; whoever labels one by hand does not. We put a mark back as it was.
#[test]
fn a_mark_of_git_is_the_engines_own() {
    let label =
        json!({"f:metadata": {"f:labels": {".": {}, "f:kustomize.toolkit.fluxcd.io/name": {}}}});
    let id = json!({"f:metadata": {"f:annotations": {"f:argocd.argoproj.io/tracking-id": {}}}});
    let spec = json!({"f:spec": {"f:replicas": {}}});
    let (none, back, own) = ((false, false), (false, true), (true, true));
    for (manager, operation, fields, (marked, vouched)) in [
        ("kustomize-controller", "Apply", &label, own),
        ("kustomize-controller", "Update", &label, none),
        ("kustomize-controller", "Apply", &spec, none),
        ("kustomize-controller", "Apply", &id, none),
        ("kubectl-label", "Update", &label, none),
        (MANAGER, "Apply", &label, back),
        (MANAGER, "Apply", &id, back),
        (MANAGER, "Apply", &spec, none),
        (KEPT, "Apply", &label, back),
        ("argocd-controller", "Update", &id, own),
        ("argocd-controller", "Apply", &id, own),
        ("argocd-controller", "Update", &label, none),
        ("argocd-application-controller", "Update", &id, own),
        ("argocd-application-controller", "Update", &label, none),
        ("kubectl-annotate", "Update", &id, none),
    ] {
        let live = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "x", "managedFields": [
                {"manager": manager, "operation": operation, "time": "2026-01-02T03:00:00Z", "fieldsV1": fields},
            ]},
        });
        let live: DynamicObject = serde_json::from_value(live).unwrap();
        let mut entries = live.metadata.managed_fields.iter().flatten();
        let what = format!("{manager} {operation} {fields}");
        assert_eq!(entries.any(vouches), vouched, "{what}");
        assert_eq!(object(Kind::Deployment, live).marked, marked, "{what}");
    }
}

/// W18: of roles and bindings, Argo CD sets the mark and adds what is missing by another name than that by which it applies.
#[test]
fn a_binding_that_argo_cd_reconciles_is_gits_and_written_by_it() {
    let fields = |part: &str, name: &str| json!({"f:metadata": {part: {name: {}}}});
    let entry = |manager: &str, second: u8, fields: Value| {
        json!({
            "manager": manager, "operation": "Update", "time": format!("2026-01-02T03:04:{second:02}Z"),
            "fieldsV1": fields,
        })
    };
    let id = || fields("f:annotations", "f:argocd.argoproj.io/tracking-id");
    let last = || {
        fields(
            "f:annotations",
            "f:kubectl.kubernetes.io/last-applied-configuration",
        )
    };
    let process = "argocd-application-controller";
    for (kind, entries, told) in [
        (
            Kind::ClusterRoleBinding,
            json!([entry(process, 5, id())]),
            ("argocd-controller", true),
        ),
        (
            Kind::Role,
            json!([
                entry(process, 6, id()),
                entry("argocd-controller", 5, last())
            ]),
            ("argocd-controller", true),
        ),
        (
            Kind::Deployment,
            json!([entry(process, 5, json!({"f:spec": {}}))]),
            (process, false),
        ),
    ] {
        let live = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(),
            "metadata": {"name": "x", "managedFields": entries},
        });
        let object = object(kind, serde_json::from_value(live).unwrap());
        assert_eq!((object.writer.as_str(), object.marked), told, "{kind}");
    }
}
