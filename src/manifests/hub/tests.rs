use super::*;
use crate::manifests::to_yaml;

/// With all that flags leave out as it is then.
pub(crate) fn values() -> HubValues {
    HubValues {
        namespace: NAMESPACE.to_owned(),
        image: "registry.example.org/linesman-hub:0.1.0".to_owned(),
        image_pull_secret: String::new(),
        agent_image: "registry.example.org/linesman-agent:0.1.0".to_owned(),
        url: "https://hub.example.org".to_owned(),
        git_url: "ssh://git@hub.example.org:2222".to_owned(),
        ports: Ports {
            https: 443,
            git: 2222,
        },
        reach: Reach::LoadBalancer,
        service_annotations: BTreeMap::new(),
        tls: None,
        database: None,
        replicas: 1,
        storage: "20Gi".to_owned(),
        storage_class: None,
        memory: "1Gi".to_owned(),
        drain: Duration::from_secs(10),
        secrets: BTreeSet::new(),
        settings: BTreeMap::new(),
    }
}

/// With all that can be said.
pub(crate) fn full() -> HubValues {
    let pairs = |all: &[(&str, &str)]| {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    HubValues {
        image_pull_secret: "regcred".to_owned(),
        service_annotations: pairs(&[("example.org/name", "hub")]),
        tls: Some(Tls {
            secret: "hub-tls".to_owned(),
            ca: true,
        }),
        database: Some("hub-database".to_owned()),
        replicas: 3,
        storage_class: Some("shared".to_owned()),
        drain: Duration::from_mins(10),
        secrets: ["oidc".to_owned()].into(),
        settings: pairs(&[
            ("LINESMAN_OIDC_ISSUER", "https://login.example.org/$(realm)"),
            ("LINESMAN_HEALTH_LISTEN", "[::]:8081"),
        ]),
        ..values()
    }
}

fn find(objects: &[Value], kind: &str) -> Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.cloned().unwrap_or_default()
}

#[test]
fn the_hubs_printed_manifests_equal_the_file() {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test that rewrites its golden file on demand"
    )]
    let update = std::env::var("LINESMAN_UPDATE_GOLDEN").is_ok();
    let (text, path) = (to_yaml(&objects(&values())), "manifests/hub.yaml");
    if update {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == text,
        "{path} drifted: run LINESMAN_UPDATE_GOLDEN=1 cargo test --lib manifests"
    );
}

/// Two hubs on one SQLite refuse each other, and replicas share one volume.
#[test]
fn a_hub_that_is_alone_has_a_volume_of_its_own_and_replicas_share_one() {
    let kinds = |values: &HubValues| {
        let all = objects(values);
        let all = all.iter().map(|object| object["kind"].clone());
        all.collect::<Value>()
    };
    let alone = json!([
        "Namespace",
        "ServiceAccount",
        "NetworkPolicy",
        "Service",
        "StatefulSet"
    ]);
    assert_eq!(kinds(&values()), alone);
    let several = json!([
        "Namespace",
        "ServiceAccount",
        "NetworkPolicy",
        "Service",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "StatefulSet"
    ]);
    assert_eq!(kinds(&full()), several);
    let all = objects(&full());
    let spec = find(&all, "StatefulSet")["spec"].clone();
    assert_eq!(
        (&spec["replicas"], spec.get("volumeClaimTemplates")),
        (&json!(3), None)
    );
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": HUB}});
    let volumes = spec["template"]["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.contains(&claim), "{volumes:#?}");
    assert_eq!(
        find(&all, "PersistentVolumeClaim")["spec"],
        json!({
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "20Gi"}},
            "storageClassName": "shared",
        })
    );
}

/// A hub that is killed in the midst of its drain cuts what it was to let end.
#[test]
fn the_kubelet_waits_for_as_long_as_requests_may_take_to_end() {
    let grace = |values: &HubValues| {
        let set = find(&objects(values), "StatefulSet");
        set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!((grace(&values()), grace(&full())), (json!(30), json!(625)));
}

/// Whoever the Service still led to a replica that had begun to end was refused, where another one would have taken them in.
#[test]
fn a_replica_that_ends_takes_people_in_until_the_service_has_heard_of_it() {
    let hooks = |values: &HubValues| {
        let set = find(&objects(values), "StatefulSet");
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        container.get("lifecycle").cloned()
    };
    let pause = json!({"preStop": {"exec": {"command": ["sleep", "5"]}}});
    assert_eq!((hooks(&values()), hooks(&full())), (None, Some(pause)));
}

#[test]
fn what_the_hub_is_told_is_in_variables_and_secrets_in_files() {
    let set = find(&objects(&full()), "StatefulSet");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let entry = |name: &str, value: &str| json!({"name": name, "value": value});
    assert_eq!(
        container["env"],
        json!([
            entry(
                "LINESMAN_AGENT_IMAGE",
                "registry.example.org/linesman-agent:0.1.0"
            ),
            entry("LINESMAN_DATA", "/var/lib/linesman/hub"),
            entry("LINESMAN_DATABASE_URL_FILE", "/etc/linesman/database/url"),
            entry("LINESMAN_DRAIN", "600s"),
            entry("LINESMAN_GIT_URL", "ssh://git@hub.example.org:2222"),
            entry("LINESMAN_HEALTH_LISTEN", "[::]:8081"),
            entry(
                "LINESMAN_OIDC_ISSUER",
                "https://login.example.org/$$(realm)"
            ),
            entry("LINESMAN_PEER_LISTEN", "0.0.0.0:8444"),
            entry("LINESMAN_TLS_CA", "/etc/linesman/tls/ca.crt"),
            entry("LINESMAN_TLS_CERT", "/etc/linesman/tls/tls.crt"),
            entry("LINESMAN_TLS_KEY", "/etc/linesman/tls/tls.key"),
            entry("LINESMAN_URL", "https://hub.example.org"),
        ])
    );
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    assert_eq!(
        container["volumeMounts"],
        json!([
            {"name": "data", "mountPath": "/var/lib/linesman"},
            {"name": "tmp", "mountPath": "/tmp"},
            mount("tls", "/etc/linesman/tls"),
            mount("database", "/etc/linesman/database"),
            mount("secret-0", "/etc/linesman/secrets/oidc"),
        ])
    );
}

#[test]
fn the_service_has_the_ports_of_the_urls() {
    let spec = |reach: Reach, https: u16| {
        let values = HubValues {
            reach,
            ports: Ports { https, git: 30_022 },
            ..values()
        };
        find(&objects(&values), "Service")["spec"].clone()
    };
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": name, "protocol": "TCP"});
    let at_nodes = |name: &str, number: u16| {
        let mut entry = port(name, number);
        entry["nodePort"] = json!(number);
        entry
    };
    let selector = json!({"app.kubernetes.io/name": HUB});
    assert_eq!(
        spec(Reach::LoadBalancer, 443),
        json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": selector,
            "ports": [port("https", 443), port("git", 30_022)],
        })
    );
    assert_eq!(
        spec(Reach::ClusterIp, 443),
        json!({
            "type": "ClusterIP", "selector": selector,
            "ports": [port("https", 443), port("git", 30_022)],
        })
    );
    // One that no node has is that of a balancer before them.
    assert_eq!(
        spec(Reach::NodePort, 443),
        json!({
            "type": "NodePort", "selector": selector,
            "ports": [port("https", 443), at_nodes("git", 30_022)],
        })
    );
}

/// `cluster remove` names the agent's namespace in a command that deletes it.
#[test]
fn the_hub_lives_in_a_namespace_of_its_own() {
    assert_eq!(namespace("gitops-hub"), Ok("gitops-hub".to_owned()));
    for wrong in [
        "linesman",
        "flux-system",
        "argocd",
        "default",
        "kube-system",
        "",
        "Hub",
        "a.b",
    ] {
        assert!(namespace(wrong).is_err(), "{wrong}");
    }
}
