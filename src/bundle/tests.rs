use serde_json::{Value, json};

use super::*;

fn object(kind: Kind, name: &str) -> Value {
    let mut object = json!({
        "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name},
    });
    if kind.namespaced() {
        object["metadata"]["namespace"] = json!("flux-system");
    }
    if kind == Kind::Deployment {
        let image = format!("ghcr.io/fluxcd/{name}:v1.8.0");
        object["spec"] =
            json!({"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}});
    }
    object
}

fn install() -> Vec<Value> {
    [
        (Kind::Deployment, "kustomize-controller"),
        (Kind::Namespace, "flux-system"),
        (
            Kind::CustomResourceDefinition,
            "gitrepositories.source.toolkit.fluxcd.io",
        ),
        (
            Kind::CustomResourceDefinition,
            "kustomizations.kustomize.toolkit.fluxcd.io",
        ),
        (Kind::ClusterRole, "crd-controller-flux-system"),
        (Kind::ClusterRoleBinding, "cluster-reconciler-flux-system"),
        (Kind::ServiceAccount, "source-controller"),
        (Kind::ServiceAccount, "kustomize-controller"),
        (Kind::Service, "source-controller"),
        (Kind::Deployment, "source-controller"),
    ]
    .into_iter()
    .map(|(kind, name)| object(kind, name))
    .collect()
}

fn yaml_of(objects: &[Value]) -> String {
    yaml::print_all(objects).unwrap()
}

#[test]
fn the_digest_does_not_depend_on_order_or_form() {
    let one = Bundle::import(yaml_of(&install()).as_bytes(), None).unwrap();
    let mut reversed = install();
    reversed.reverse();
    reversed[0]["status"] = json!({"x": 1});
    reversed[0]["metadata"]["creationTimestamp"] = Value::Null;
    let two = Bundle::import(yaml_of(&reversed).as_bytes(), None).unwrap();
    assert_eq!(one, two);
    assert_eq!(one.engine, EngineKind::Flux);
    assert_eq!(one.version, "1.8.0");
    let kinds: Vec<&str> = one
        .objects
        .iter()
        .filter_map(|o| o.head()["kind"].as_str())
        .collect();
    assert_eq!(kinds[0], "Namespace");
    assert_eq!(kinds[9], "Deployment");
    assert_eq!(
        one.images(),
        [
            "ghcr.io/fluxcd/kustomize-controller:v1.8.0",
            "ghcr.io/fluxcd/source-controller:v1.8.0"
        ]
    );
}

#[test]
fn a_label_names_the_version() {
    let mut objects = install();
    objects[0]["metadata"]["labels"] = json!({"app.kubernetes.io/version": "v2.9.4"});
    assert_eq!(Bundle::from_objects(objects).unwrap().version, "2.9.4");
}

/// Without the size in the header, readers set aside 8 MiB and the writer 80 MB.
#[test]
fn what_is_packed_tells_its_size_beforehand() {
    let plain = vec![7; 300_000];
    let packed = compress(&plain);
    let size = zstd::zstd_safe::get_frame_content_size(&packed);
    assert_eq!(size.ok().flatten(), Some(300_000));
}

/// W23: what packs takes no more for what is as long as Argo CD's definitions; the C library keeps as much for the next time.
#[test]
fn a_large_bundle_is_packed_in_little_memory() {
    let words = (0..60_000).map(|n: u32| format!("{} ", n.wrapping_mul(2_654_435_761) % 7_919));
    let plain: String = words.collect();
    assert!(plain.len() > 270_000, "{}", plain.len());
    let mut packer = packer().unwrap();
    packer.compress(plain.as_bytes()).unwrap();
    let taken = packer.context_mut().sizeof();
    assert!(taken < 2 << 20, "{taken}");
}

#[test]
fn what_is_packed_unpacks_only_under_its_digest() {
    let bundle = Bundle::from_objects(install()).unwrap();
    let packed = bundle.pack();
    assert_eq!(Bundle::unpack(&packed, &bundle.digest), Ok(bundle));
    let other = Digest::from_bytes([1; 32]);
    assert!(matches!(
        Bundle::unpack(&packed, &other),
        Err(UnpackError::Digest { .. })
    ));
    assert!(matches!(
        Bundle::unpack(b"junk", &other),
        Err(UnpackError::Compressed(_))
    ));
}

/// W32: what is kept and fetched is the same, wherever its objects live.
#[test]
fn a_bundle_for_another_namespace_has_the_same_digest_and_the_same_packed_form() {
    let mut objects = argocd();
    let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "argocd-application-controller", "namespace": namespace});
    let binding = |o: &&mut Value| o["kind"] == "ClusterRoleBinding";
    let binding = objects.iter_mut().find(binding).unwrap();
    binding["subjects"] = json!([account("argocd"), account("monitoring")]);
    let usual = Bundle::import(yaml_of(&objects).as_bytes(), None).unwrap();
    let moved = usual.clone().within("gitops");
    assert_ne!(moved.objects, usual.objects);
    for object in &moved.objects {
        let text = object.whole().to_string();
        assert!(!text.contains(r#""namespace":"argocd""#), "{text}");
    }
    let subjects = |o: &Document| o.head().get("subjects").cloned();
    let subjects = moved.objects.iter().find_map(subjects);
    let there = json!([account("gitops"), account("monitoring")]);
    assert_eq!(subjects, Some(there));
    assert_eq!(moved.digest, usual.digest);
    assert_eq!(moved.pack(), usual.pack());
    assert_eq!(moved.within("argocd"), usual);
}

#[test]
fn compressed_manifests_and_archives_are_read() {
    use std::io::Write as _;
    let text = yaml_of(&install());
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let mut header = [0_u8; 512];
    header[..12].copy_from_slice(b"install.yaml");
    header[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
    header[156] = b'0';
    header[257..262].copy_from_slice(b"ustar");
    let mut archive = header.to_vec();
    archive.extend_from_slice(text.as_bytes());
    archive.resize(archive.len().div_ceil(512) * 512 + 1024, 0);
    let plain = Bundle::import(text.as_bytes(), None).unwrap();
    assert_eq!(Bundle::import(&gzip(text.as_bytes()), None).unwrap(), plain);
    assert_eq!(Bundle::import(&gzip(&archive), None).unwrap(), plain);
    archive.truncate(700);
    assert!(matches!(
        Bundle::import(&gzip(&archive), None),
        Err(ImportError::Compressed(_))
    ));
}

/// Flux with its image-reflector-controller.
fn reflecting() -> Vec<Value> {
    let mut objects = install();
    let mut extra = object(Kind::Deployment, "image-reflector-controller");
    extra["metadata"]["labels"] =
        json!({"app.kubernetes.io/component": "image-reflector-controller"});
    objects.push(extra);
    objects
}

#[test]
fn components_that_were_chosen_are_kept_and_travel() {
    let import = |components: &str| {
        let chosen: Components = components.parse().unwrap();
        Bundle::import(yaml_of(&reflecting()).as_bytes(), Some(&chosen))
    };
    let bundle =
        import("source-controller, kustomize-controller,image-reflector-controller").unwrap();
    assert_eq!(bundle.objects.len(), install().len() + 1);
    assert_eq!(Bundle::unpack(&bundle.pack(), &bundle.digest), Ok(bundle));
    let refused = import("source-controller,kustomize-controller,helm-controller");
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("has no helm-controller"), "{said}");
    for text in ["", "nginx", "source-controller,nginx"] {
        let said = text.parse::<Components>().unwrap_err().to_string();
        assert!(said.contains("none of Flux' controllers: source-controller"));
    }
    let chosen = Components::default();
    assert!(matches!(
        Bundle::import(yaml_of(&argocd()).as_bytes(), Some(&chosen)),
        Err(ImportError::Check(CheckError::NoChoice))
    ));
}

/// A few KiB that would unpack to more than an install ever has, also twice packed.
#[test]
fn a_bomb_is_refused_within_its_bounds() {
    use std::io::Write as _;
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bomb = gzip(&vec![b' '; (33 << 20) as usize]);
    assert!(bomb.len() < 1 << 20);
    for packed in [bomb.clone(), [bomb.clone(), bomb].concat()] {
        let said = Bundle::import(&packed, None).unwrap_err().to_string();
        assert!(said.contains("larger than 32 MiB"), "{said}");
    }
}

#[test]
fn components_that_were_not_chosen_are_left_out() {
    assert_eq!(
        Bundle::from_objects(reflecting()),
        Bundle::from_objects(install())
    );
}

type Change<'a> = &'a dyn Fn(&mut Vec<Value>);

#[test]
fn manifests_that_are_no_whole_install_are_refused() {
    let with = |change: Change| {
        let mut objects = install();
        change(&mut objects);
        Bundle::from_objects(objects)
            .map(|b| b.version)
            .unwrap_err()
            .to_string()
    };
    let cases: [(Change, &str); 8] = [
        (
            &|o| o.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}})),
            "Pod (v1) named 'x'",
        ),
        (
            &|o| {
                o.push(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"}}));
            },
            "ValidatingWebhookConfiguration",
        ),
        (
            &|o| o[0]["metadata"]["namespace"] = json!("kube-system"),
            "outside of the engine's namespace 'flux-system'",
        ),
        (
            &|o| {
                let twin = o[0].clone();
                o.push(twin);
            },
            "is there twice",
        ),
        (
            &|o| {
                o.remove(0);
            },
            "Deployment kustomize-controller is missing",
        ),
        (
            &|o| o[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a.b:5000/c"),
            "has neither tag nor digest",
        ),
        (
            &|o| o.push(json!({"kind": "Service", "metadata": {"name": "x"}})),
            "document 11 has no apiVersion",
        ),
        (&|o| o.clear(), "neither a Flux nor an Argo CD install"),
    ];
    for (change, expected) in cases {
        let error = with(change);
        assert!(error.contains(expected), "{error}");
    }
}

/// Argo CD's core install, as far as the check looks.
fn argocd() -> Vec<Value> {
    let install = [
        (Kind::CustomResourceDefinition, "applications.argoproj.io"),
        (Kind::CustomResourceDefinition, "appprojects.argoproj.io"),
        (Kind::ClusterRole, "argocd-application-controller"),
        (Kind::ClusterRoleBinding, "argocd-application-controller"),
        (Kind::ServiceAccount, "argocd-application-controller"),
        (Kind::Role, "argocd-redis"),
        (Kind::ConfigMap, "argocd-cm"),
        (Kind::Service, "argocd-redis"),
        (Kind::Service, "argocd-repo-server"),
        (Kind::Secret, "argocd-secret"),
        (Kind::Deployment, "argocd-redis"),
        (Kind::Deployment, "argocd-repo-server"),
        (Kind::StatefulSet, "argocd-application-controller"),
    ];
    let objects = install.into_iter().map(|(kind, name)| {
        let mut object = json!({
            "apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name},
        });
        let image = match name {
            "argocd-redis" => "public.ecr.aws/docker/library/redis:8.2.2-alpine",
            _ => "quay.io/argoproj/argocd:v3.2.6",
        };
        if matches!(kind, Kind::Deployment | Kind::StatefulSet) {
            object["spec"] = json!({"template": {"spec": {"containers": [{"image": image}]}}});
        }
        object
    });
    objects.collect()
}

#[test]
fn argo_cds_core_install_is_put_into_its_namespace_and_its_image_says_the_version() {
    let bundle = Bundle::import(yaml_of(&argocd()).as_bytes(), None).unwrap();
    assert_eq!(
        (bundle.engine, bundle.version.as_str()),
        (EngineKind::Argocd, "3.2.6")
    );
    for object in bundle.objects.iter().map(Document::head) {
        let kind = Kind::parse(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        let expected = kind.unwrap().namespaced().then_some("argocd");
        assert_eq!(object["metadata"]["namespace"].as_str(), expected);
    }
    assert_eq!(Bundle::unpack(&bundle.pack(), &bundle.digest), Ok(bundle));
}

#[test]
fn what_is_more_or_less_than_argo_cds_install_is_refused() {
    let refusal = |change: Change| {
        let mut objects = argocd();
        change(&mut objects);
        let refused = Bundle::from_objects(objects).map(|b| b.version);
        refused.unwrap_err().to_string()
    };
    let cases: [(Change, &str); 4] = [
        (
            &|o| {
                let mut full = o[2].clone();
                full["metadata"]["name"] = json!("argocd-extension");
                o.push(full);
            },
            "ClusterRole argocd-extension is no role of Argo CD's install; give 'manifests/core-install.yaml' or 'manifests/install.yaml'",
        ),
        (
            &|o| {
                o.retain(|o| o["kind"] != "StatefulSet");
            },
            "StatefulSet argocd-application-controller is missing",
        ),
        (
            &|o| o[7]["metadata"]["namespace"] = json!("gitops"),
            "outside of the engine's namespace 'argocd'",
        ),
        (
            &|o| {
                o.push(json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "a"}}));
            },
            "Application (argoproj.io/v1alpha1) named 'a'",
        ),
    ];
    for (change, expected) in cases {
        let error = refusal(change);
        assert!(error.contains(expected), "{error}");
    }
}

/// Argo CD's CRDs: 2 MB in all, one of them 425 KB, and 40 KB when packed.
#[test]
fn a_manifest_of_two_megabytes_with_huge_documents_is_read_and_packed_small() {
    let mut objects = argocd();
    for crd in &mut objects[..2] {
        let field = |n: usize| {
            let about = json!({"description": format!("Field {n} of something that has a long description, as schemas have."), "type": "string"});
            (format!("field{}", n % 500), about)
        };
        let level = |n: usize| {
            let fields: serde_json::Map<String, Value> =
                (0..500).map(|f| field(n * 500 + f)).collect();
            (format!("level{n}"), json!({"properties": fields}))
        };
        let levels: serde_json::Map<String, Value> = (0..15).map(level).collect();
        crd["spec"] = json!({"versions": [{"name": "v1alpha1", "schema": {"properties": levels}}]});
    }
    let text = yaml_of(&objects);
    assert!(text.len() > 2_000_000, "{}", text.len());
    let bundle = Bundle::import(text.as_bytes(), None).unwrap();
    assert_eq!(bundle.objects.len(), objects.len());
    assert!(bundle.pack().len() < 200_000);
}
