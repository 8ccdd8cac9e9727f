use serde_json::{Value, json};

use super::*;
use crate::manifests::copy::{ARGOCD_SYNC, FLUX_SYNC};
use crate::yaml;

fn files_of(engine: EngineKind, follows: &str) -> Files {
    let name: ClusterName = "ap1".parse().unwrap();
    files(&Copied {
        name: &name,
        engine,
        engines: &EngineNamespaces::new("gitops".to_owned()),
        follows,
        url: "ssh://git@hub.example.com:2222/catalog.git",
        branch: "main",
        manifests: "kind: Namespace\n",
    })
}

fn sync(files: &Files, path: &str) -> Value {
    let text = std::str::from_utf8(&files[path]).unwrap();
    yaml::documents(text).unwrap().remove(0)
}

/// W27: the engine follows the copy by an object of its own, which prunes nothing and goes without taking anything along.
#[test]
fn each_engine_follows_the_copy_by_an_object_of_its_own() {
    let files = files_of(EngineKind::Flux, "clusters/ap1");
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        ["clusters/ap1/linesman.yaml", "linesman/ap1/agent.yaml"]
    );
    let flux = sync(&files, paths[0]);
    assert_eq!(
        flux["metadata"],
        json!({"name": FLUX_SYNC, "namespace": "flux-system"})
    );
    let spec = &flux["spec"];
    assert_eq!(
        (&spec["path"], &spec["prune"], &spec["deletionPolicy"]),
        (&json!("./linesman/ap1"), &json!(false), &json!("Orphan"))
    );

    let files = files_of(EngineKind::Argocd, "./clusters/ap1.argocd/");
    let argocd = sync(&files, "clusters/ap1.argocd/linesman.yaml");
    assert_eq!(
        argocd["metadata"],
        json!({"name": ARGOCD_SYNC, "namespace": "gitops"})
    );
    let spec = &argocd["spec"];
    assert_eq!(
        spec["source"],
        json!({"repoURL": "ssh://git@hub.example.com:2222/catalog.git", "targetRevision": "main", "path": "linesman/ap1"})
    );
    assert_eq!(
        spec["syncPolicy"]["automated"],
        json!({"prune": false, "selfHeal": true})
    );
    assert_eq!(
        spec["syncPolicy"]["syncOptions"],
        json!(["RespectIgnoreDifferences=true"])
    );
}

/// W27: whatever an object of the agent has at its top, Argo CD ignores it in an object that is there.
#[test]
fn argo_cd_ignores_every_field_of_what_is_there() {
    let files = files_of(EngineKind::Argocd, "clusters/ap1");
    let argocd = sync(&files, "clusters/ap1/linesman.yaml");
    let rule = &argocd["spec"]["ignoreDifferences"][0];
    assert_eq!((&rule["group"], &rule["kind"]), (&json!("*"), &json!("*")));
    let pointers: BTreeSet<&str> = rule["jsonPointers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p.as_str().unwrap())
        .collect();
    let values = crate::manifests::AdoptionValues::placeholders();
    for object in crate::manifests::copy::copy(&values).unwrap() {
        let fields = object.as_object().unwrap().keys();
        for field in fields.filter(|f| !["apiVersion", "kind", "metadata"].contains(&f.as_str())) {
            assert!(pointers.contains(format!("/{field}").as_str()), "{field}");
        }
    }
}

#[test]
fn a_copy_is_looked_for_in_each_directory_that_the_cluster_followed() {
    let name = "ap1".parse().unwrap();
    let all = paths(&name, ["clusters/ap1", "clusters/ap1.argocd", ""]);
    assert_eq!(
        all,
        [
            "clusters/ap1/linesman.yaml",
            "clusters/ap1.argocd/linesman.yaml",
            "linesman.yaml",
            "linesman/ap1/agent.yaml"
        ]
        .map(str::to_owned)
        .into()
    );
}
