//! The patches of specs and of seen objects, and which kinds are made anew for what nobody may change.

use kube::core::Status;
use serde_json::{Value, json};

use crate::agent::calls::Refused;
use crate::agent::plan::Object;
use crate::bundle::Kind;

/// The patch that makes a spec what is wanted. A root of Flux may have a field that its owner added and that is no business
/// of ours (`verify`, `ignore`, `decryption`): just those that are wanted are replaced, each as a whole, and what leads `astray` goes.
pub(super) fn replacement(kind: Kind, spec: &Value, astray: &[String]) -> Value {
    let by_field = matches!(kind, Kind::GitRepository | Kind::Kustomization);
    let fields = spec.as_object().filter(|_| by_field);
    let Some(fields) = fields else {
        return json!([{"op": "replace", "path": "/spec", "value": spec}]);
    };
    let all = fields.iter().map(
        |(field, value)| json!({"op": "add", "path": format!("/spec/{field}"), "value": value}),
    );
    // What lies in a wanted field goes with that.
    let beside = |path: &&String| {
        let field = path.strip_prefix("/spec/");
        field.is_some_and(|field| !field.contains('/') && !fields.contains_key(field))
    };
    let beside = astray.iter().filter(beside);
    all.chain(beside.map(|path| json!({"op": "remove", "path": path})))
        .collect()
}

/// The same patch, for the object that was seen and no other.
pub(super) fn of_seen(seen: &Object, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(seen.uid);
    if seen.version > 0 {
        patch["metadata"]["resourceVersion"] = json!(seen.version.to_string());
    }
    patch
}

/// Kinds whose immutable fields are mended by a new object. Never a CRD, a Namespace or what holds data.
pub(super) fn replaceable(kind: Kind) -> bool {
    match kind {
        Kind::Deployment
        | Kind::StatefulSet
        | Kind::ClusterRoleBinding
        | Kind::RoleBinding
        | Kind::Service
        | Kind::ServiceAccount
        | Kind::NetworkPolicy
        | Kind::Secret => true,
        Kind::Namespace
        | Kind::CustomResourceDefinition
        | Kind::ClusterRole
        | Kind::Role
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::HelmRelease
        | Kind::AppProject
        | Kind::Application
        | Kind::ApplicationSet
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => false,
    }
}

/// Whether a patch of such an object failed because nobody may change it.
pub(super) fn is_fixed(kind: Kind, error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    matches!(refused, Some(Refused::Status(status)) if immutable(kind, status))
}

pub(super) fn immutable(kind: Kind, status: &Status) -> bool {
    const FIELDS: [&str; 5] = [
        "spec.selector",
        "spec",
        "roleRef",
        "spec.clusterIPs[0]",
        "data",
    ];
    let causes = status.details.iter().flat_map(|d| &d.causes);
    status.code == 422
        && replaceable(kind)
        && causes
            .into_iter()
            .any(|c| FIELDS.contains(&c.field.as_str()))
}
