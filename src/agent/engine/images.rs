//! Images from a registry that stands in for the ones that a bundle names, and the Secret to pull them with: install values, not
//! part of the digest.

use serde_json::{Value, json};

/// A workload whose images all come from `registry`; other objects as they are.
pub(super) fn moved(mut object: Value, registry: &str) -> Value {
    let Some(pod) = object.pointer_mut("/spec/template/spec") else {
        return object;
    };
    for list in ["initContainers", "containers"] {
        let containers = pod.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(image) = container.get("image").and_then(Value::as_str) {
                let image = from(image, registry);
                container["image"] = json!(image);
            }
        }
    }
    object
}

/// A workload whose Pods pull with this Secret of their namespace, too; other objects as they are.
pub(super) fn pulled_with(mut object: Value, secret: &str) -> Value {
    let pod = object.pointer_mut("/spec/template/spec");
    let Some(pod) = pod.and_then(Value::as_object_mut) else {
        return object;
    };
    let all = pod.entry("imagePullSecrets").or_insert(Value::Null);
    if all.is_null() {
        *all = json!([]);
    }
    if let Some(all) = all.as_array_mut() {
        let named = |one: &Value| one.get("name").and_then(Value::as_str) == Some(secret);
        if !all.iter().any(named) {
            all.push(json!({"name": secret}));
        }
    }
    object
}

/// The image at the same path below `registry`. What stands before the first `/` is a registry if it could be a host;
/// without one it is Docker Hub's, whose own images are in `library/` (distribution/reference).
fn from(image: &str, registry: &str) -> String {
    let registry = registry.trim_end_matches('/');
    let host = |part: &str| part.contains(['.', ':']) || part == "localhost";
    let path = match image.split_once('/') {
        Some((first, rest)) if host(first) => rest.to_owned(),
        Some(_) => image.to_owned(),
        None => format!("library/{image}"),
    };
    format!("{registry}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_keeps_its_path_tag_and_digest_below_the_registry() {
        let cases = [
            (
                "ghcr.io/fluxcd/source-controller:v1.8.0",
                "mirror.lan:5000/fluxcd/source-controller:v1.8.0",
            ),
            (
                "public.ecr.aws/docker/library/redis:8.2.2-alpine",
                "mirror.lan:5000/docker/library/redis:8.2.2-alpine",
            ),
            ("localhost/a@sha256:00", "mirror.lan:5000/a@sha256:00"),
            ("argoproj/argocd:v3", "mirror.lan:5000/argoproj/argocd:v3"),
            ("redis:8", "mirror.lan:5000/library/redis:8"),
        ];
        for (image, expected) in cases {
            assert_eq!(from(image, "mirror.lan:5000"), expected);
        }
        assert_eq!(from("quay.io/a/b:1", "r.lan/x/"), "r.lan/x/a/b:1");
    }

    #[test]
    fn containers_of_both_lists_are_moved_and_nothing_else_is() {
        let object = json!({"kind": "Deployment", "spec": {"replicas": 1, "template": {"spec": {
            "initContainers": [{"name": "i", "image": "quay.io/a/b:1"}],
            "containers": [{"name": "c", "image": "ghcr.io/d/e:2", "args": ["--image=ghcr.io/x/y:1"]}],
        }}}});
        let mut expected = object.clone();
        let pod = &mut expected["spec"]["template"]["spec"];
        pod["initContainers"][0]["image"] = json!("m.lan/a/b:1");
        pod["containers"][0]["image"] = json!("m.lan/d/e:2");
        assert_eq!(moved(object, "m.lan"), expected);
        let service = json!({"kind": "Service", "spec": {"ports": []}});
        assert_eq!(moved(service.clone(), "m.lan"), service);
    }

    #[test]
    fn pods_pull_with_the_secret_beside_those_of_the_manifest() {
        let object = |secrets: Value| {
            let mut pod = json!({"containers": [{"name": "c", "image": "ghcr.io/d/e:2"}]});
            if !secrets.is_null() {
                pod["imagePullSecrets"] = secrets;
            }
            json!({"kind": "Deployment", "spec": {"template": {"spec": pod}}})
        };
        let [one, other] = ["pull", "own"].map(|name| json!({"name": name}));
        for (secrets, expected) in [
            (Value::Null, json!([one])),
            (json!([]), json!([one])),
            (json!([other]), json!([other, one])),
            (json!([one, other]), json!([one, other])),
        ] {
            assert_eq!(pulled_with(object(secrets), "pull"), object(expected));
        }
        // As much as none.
        let mut null = object(json!([]));
        null["spec"]["template"]["spec"]["imagePullSecrets"] = Value::Null;
        assert_eq!(pulled_with(null, "pull"), object(json!([one])));
        let account = json!({"kind": "ServiceAccount"});
        assert_eq!(pulled_with(account.clone(), "pull"), account);
    }
}
