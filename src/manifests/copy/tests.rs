use super::*;
use crate::manifests::scope::Scope;
use crate::manifests::{AGENT, NAMESPACE};
use crate::secret::Secret;
use crate::wire::api::AccessLevel;

fn values() -> AdoptionValues {
    AdoptionValues {
        token: Secret::new("lmj1.id.secret".to_owned()),
        hub_ca: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        https_proxy: "http://proxy:3128".to_owned(),
        no_proxy: ".svc".to_owned(),
        ..AdoptionValues::placeholders()
    }
}

fn named(objects: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = |o: &Value| format!("{} {}", text(&o["kind"]), text(&o["metadata"]["name"]));
    objects.iter().map(name).collect()
}

/// W27: all that makes the agent run is there, each object marked so that no engine changes or prunes it.
#[test]
fn the_copy_is_the_agent_without_its_secret_and_without_the_rights_of_people() {
    let whole = named(&adoption(&values()));
    let objects = copy(&values()).unwrap();
    let expected: Vec<_> = whole
        .into_iter()
        .filter(|o| {
            !["view", "edit", "admin"]
                .iter()
                .any(|l| *o == format!("ClusterRoleBinding linesman-{l}"))
        })
        .map(|o| o.replace("Secret linesman-join", "ConfigMap linesman-hub"))
        .collect();
    assert_eq!(named(&objects), expected);
    let marks = json!({
        "kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent",
        "kustomize.toolkit.fluxcd.io/prune": "disabled",
        "argocd.argoproj.io/sync-options": "Prune=false",
    });
    for object in &objects {
        assert_eq!(object["metadata"]["annotations"], marks, "{object}");
    }
    let hub = objects.iter().find(|o| o["metadata"]["name"] == HUB_MAP);
    assert_eq!(
        hub.unwrap()["data"],
        json!({
            "hub": "https://hub.example.com",
            "hub-key": "KEY-ID HUB-PUBLIC-KEY\n",
            "ca.crt": "-----BEGIN CERTIFICATE-----\n",
            "cluster": "example",
            "proxy": "http://proxy:3128",
            "no-proxy": ".svc",
        })
    );
}

/// W27, H12: nothing that is secret comes into Git, whatever it is called.
#[test]
fn the_copy_holds_no_secret() {
    let text = to_yaml(&copy(&values()).unwrap());
    for word in ["lmj1.", "kind: Secret", "stringData", "token:"] {
        assert!(!text.contains(word), "{word}");
    }
    let passwords = AdoptionValues {
        https_proxy: "http://user:word@proxy:3128".to_owned(),
        ..values()
    };
    assert_eq!(copy(&passwords), Err(HasPassword));
}

/// W27: a cluster that is covered in part comes back covered in part, with the rights that its owner gave.
#[test]
fn the_copy_of_a_cluster_that_is_covered_in_part_has_its_list() {
    let scope = Scope {
        namespaces: ["shop".to_owned()].into(),
        strict: false,
        access: AccessLevel::View,
    };
    let scoped = AdoptionValues {
        scope: Some(scope),
        ..values()
    };
    let names = named(&copy(&scoped).unwrap());
    assert!(names.contains(&"ConfigMap linesman-scope".to_owned()));
    assert!(names.contains(&"RoleBinding linesman-read".to_owned()));
    assert_eq!(names.first().unwrap(), &format!("Namespace {NAMESPACE}"));
    assert_eq!(names.last().unwrap(), &format!("Deployment {AGENT}"));
}
