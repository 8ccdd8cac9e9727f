//! The admission policy that keeps the engine's CRDs, Namespace and roots from being deleted by accident, and its roots from
//! being led elsewhere: either way the engine prunes all that it brought. A race against that can be lost; a write that is
//! refused cannot.
//!
//! Everyone is refused, the cluster's admin too, until the object says that it may go. The API server has no clock in
//! its policies, so the agent takes that word away again when its time is over. What a commit says of a root is for the
//! agent to answer (`plan::quarantine::root`): a controller that is refused would stop at it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compare;
use crate::bundle::{Kind, ObjectId};
use crate::manifests::{AGENT, GUARD_POLICY, NAMESPACE};

/// On a guarded object: it may be deleted until then, and a root led elsewhere, RFC 3339, at most a day ahead.
pub const ALLOW_DELETE: &str = "linesman.dev/allow-delete";

/// Who deletes for the cluster itself what somebody was allowed to delete before.
const EXEMPT: [&str; 3] = [
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    // Where the controllers have no accounts of their own.
    "system:kube-controller-manager",
];

/// A time in CEL; whether it is over is for the agent to see.
const TIME: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}";

/// Of a root Application. To pin it to a commit, and to set it free again, is how people stop a delivery.
const REVISION: &str = "source.targetRevision";
const COMMIT: &str = "^[0-9a-f]{40}$";

/// What we never set, and what narrows the policy or its binding where somebody else does.
const NARROWS: [&str; 6] = [
    "/spec/paramKind",
    "/spec/paramRef",
    "/spec/matchResources",
    "/spec/matchConstraints/excludeResourceRules",
    "/spec/matchConstraints/namespaceSelector",
    "/spec/matchConstraints/objectSelector",
];

/// What a root follows: with another value there the engine prunes what the former one brought. The agent puts each of
/// them back when it is changed all the same.
fn leads(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::GitRepository => &["url", "ref"],
        Kind::Kustomization => &[
            "path",
            "sourceRef",
            "kubeConfig",
            "targetNamespace",
            "namePrefix",
            "nameSuffix",
        ],
        Kind::Application => &[
            "source.repoURL",
            "source.path",
            REVISION,
            "sources",
            "sourceHydrator",
            "destination",
        ],
        Kind::Namespace
        | Kind::CustomResourceDefinition
        | Kind::ClusterRole
        | Kind::ServiceAccount
        | Kind::ClusterRoleBinding
        | Kind::Role
        | Kind::RoleBinding
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::Service
        | Kind::NetworkPolicy
        | Kind::Secret
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::HelmRelease
        | Kind::AppProject
        | Kind::ApplicationSet
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => &[],
    }
}

/// Whether an object is one that the policy is about.
pub fn is_guarded(id: &ObjectId, roots: [&ObjectId; 2]) -> bool {
    id.kind.holds_others() || roots.contains(&id)
}

/// Where the live policy or its binding refuses something else than `wanted` does.
pub fn weakened(kind: Kind, wanted: &Value, live: &Value) -> Vec<String> {
    let mut paths = compare::drift(wanted, live);
    paths.retain(|path| path.starts_with("/spec"));
    paths.extend(narrowed(kind, live));
    paths
}

/// Where somebody added what narrows them. A comparison by what is wanted does not see that, and to apply takes it not away.
pub fn narrowed(kind: Kind, live: &Value) -> Vec<String> {
    if !kind.optional() {
        return Vec::new();
    }
    // The API server puts empty selectors there itself.
    let says = |value: &Value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        other => !other.is_null(),
    };
    let added = NARROWS
        .iter()
        .filter(|path| live.pointer(path).is_some_and(says));
    let mut paths: Vec<String> = added.map(|path| (*path).to_owned()).collect();
    let constraints = "/spec/matchConstraints";
    let policy = format!("{constraints}/matchPolicy");
    if live.pointer(&policy).is_some_and(|value| value == "Exact") {
        paths.push(policy);
    }
    let rules = format!("{constraints}/resourceRules");
    let all = live.pointer(&rules).and_then(Value::as_array);
    for (index, rule) in all.into_iter().flatten().enumerate() {
        if rule.get("resourceNames").is_some_and(says) {
            paths.push(format!("{rules}/{index}/resourceNames"));
        }
        if rule.get("scope").is_some_and(|scope| scope != "*") {
            paths.push(format!("{rules}/{index}/scope"));
        }
    }
    paths
}

/// The policy over those of `ids` that are guarded, and its binding.
pub(super) fn objects<'a>(
    ids: impl Iterator<Item = &'a ObjectId>,
    roots: [&ObjectId; 2],
    applier: &str,
    labels: &Value,
) -> [(ObjectId, Value); 2] {
    let mut guarded: BTreeMap<Kind, Vec<&ObjectId>> = BTreeMap::new();
    for id in ids.filter(|id| is_guarded(id, roots)) {
        guarded.entry(id.kind).or_default().push(id);
    }
    let policy = Kind::ValidatingAdmissionPolicy;
    let binding = Kind::ValidatingAdmissionPolicyBinding;
    let metadata = json!({"name": GUARD_POLICY, "labels": labels});
    let rules: Vec<Value> = guarded.keys().map(|kind| rule(*kind)).collect();
    let named: Vec<String> = guarded.values().flatten().map(|id| names(id)).collect();
    let exempt: Vec<String> = EXEMPT.iter().map(|user| format!("'{user}'")).collect();
    let mine = account(NAMESPACE, AGENT);
    let theirs = account(&roots[1].namespace, applier);
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [
            {"name": "guarded", "expression": named.join(" || ")},
            {"name": "by-a-person", "expression": format!("!(request.userInfo.username in [{}])", exempt.join(", "))},
        ],
        "validations": [
            {
                "expression": format!("request.operation != 'DELETE' || {}", allowed()),
                "reason": "Forbidden",
                "message": format!("linesman guards this object; to delete it, annotate it first: {ALLOW_DELETE}=TIME"),
                "messageExpression": message("'linesman guards '", "without it", "delete it"),
            },
            {
                "expression": format!(
                    "request.operation != 'UPDATE' || request.userInfo.username in ['{mine}', '{theirs}'] || {} || {}",
                    roots.map(follows).join(" && "), allowed()
                ),
                "reason": "Forbidden",
                "message": format!("linesman guards what this object follows; to lead it elsewhere, annotate it first: {ALLOW_DELETE}=TIME"),
                "messageExpression": message("'linesman guards what is followed by '", "led elsewhere", "change it"),
            },
        ],
    });
    [
        (
            ObjectId::new(policy, "", GUARD_POLICY),
            json!({
                "apiVersion": policy.api_version(), "kind": policy.as_str(),
                "metadata": metadata, "spec": spec,
            }),
        ),
        (
            ObjectId::new(binding, "", GUARD_POLICY),
            json!({
                "apiVersion": binding.api_version(), "kind": binding.as_str(),
                "metadata": metadata,
                "spec": {"policyName": GUARD_POLICY, "validationActions": ["Deny"]},
            }),
        ),
    ]
}

fn rule(kind: Kind) -> Value {
    let (group, _, plural) = kind.resource();
    let operations: &[&str] = if leads(kind).is_empty() {
        &["DELETE"]
    } else {
        &["DELETE", "UPDATE"]
    };
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": [plural]})
}

fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Whether an update of this root, if it is one, leaves alone what the root follows. A field that is absent is like one of
/// the same kind that was absent before.
fn follows(root: &ObjectId) -> String {
    let (_, _, plural) = root.kind.resource();
    let same = leads(root.kind).iter().map(|field| {
        let path = format!("?spec.?{}", field.replace('.', ".?"));
        let same = format!("object.{path} == oldObject.{path}");
        if *field == REVISION {
            format!("({same} || [object, oldObject].exists(o, o.{path}.orValue('').matches('{COMMIT}')))")
        } else {
            same
        }
    });
    let same: Vec<String> = same.collect();
    format!(
        "(request.resource.resource != '{plural}' || ({}))",
        same.join(" && ")
    )
}

/// By the object's own name: a deletion of a whole collection carries none in its request.
fn names(id: &ObjectId) -> String {
    let (group, _, plural) = id.kind.resource();
    let mut parts = vec![
        format!("request.resource.group == '{group}'"),
        format!("request.resource.resource == '{plural}'"),
        format!("oldObject.metadata.name == '{}'", id.name),
    ];
    if !id.namespace.is_empty() {
        parts.push(format!(
            "oldObject.metadata.namespace == '{}'",
            id.namespace
        ));
    }
    format!("({})", parts.join(" && "))
}

fn allowed() -> String {
    let annotations = "oldObject.metadata.annotations";
    format!(
        "(has({annotations}) && '{ALLOW_DELETE}' in {annotations} && {annotations}['{ALLOW_DELETE}'].matches('{TIME}'))"
    )
}

/// Names the object and the command that allows what was tried.
fn message(guards: &str, without: &str, tried: &str) -> String {
    let kind = "(request.resource.group == '' ? request.resource.resource : request.resource.resource + '.' + request.resource.group)";
    let name = "oldObject.metadata.name";
    let place = "(has(oldObject.metadata.namespace) ? ' -n ' + oldObject.metadata.namespace : '')";
    format!(
        "{guards} + {kind} + ' ' + {name} + ': {without} the engine prunes what it brought. To {tried} all the \
         same, allow it first, for at most a day (UTC; macOS has date -u -v+1H): kubectl annotate --overwrite ' + {kind} + \
         ' ' + {name} + {place} + ' {ALLOW_DELETE}=$(date -u -d +1hour +%FT%TZ)'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: Kind, name: &str) -> ObjectId {
        ObjectId::new(kind, "flux-system", name)
    }

    #[test]
    fn crds_namespace_and_roots_are_guarded_by_name_and_nothing_else_is() {
        let roots = [
            id(Kind::GitRepository, "flux-system"),
            id(Kind::Kustomization, "flux-system"),
        ];
        let all = [
            id(Kind::Namespace, "flux-system"),
            id(
                Kind::CustomResourceDefinition,
                "gitrepositories.source.toolkit.fluxcd.io",
            ),
            id(Kind::Deployment, "source-controller"),
            roots[0].clone(),
            roots[1].clone(),
        ];
        let [(_, policy), (_, binding)] = objects(
            all.iter(),
            [&roots[0], &roots[1]],
            "kustomize-controller",
            &json!({}),
        );
        let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array();
        let resources: Vec<&Value> = rules.unwrap().iter().map(|r| &r["resources"][0]).collect();
        assert_eq!(
            resources,
            [
                "namespaces",
                "customresourcedefinitions",
                "gitrepositories",
                "kustomizations"
            ]
        );
        let operations: Vec<&Value> = rules.unwrap().iter().map(|r| &r["operations"]).collect();
        let [gone, changed] = [json!(["DELETE"]), json!(["DELETE", "UPDATE"])];
        assert_eq!(operations, [&gone, &gone, &changed, &changed]);
        let said = policy["spec"]["validations"][1]["expression"].as_str();
        assert_eq!(
            said.unwrap().split(" || ").take(5).collect::<Vec<_>>(),
            [
                "request.operation != 'UPDATE'",
                "request.userInfo.username in ['system:serviceaccount:linesman:linesman-agent', \
                 'system:serviceaccount:flux-system:kustomize-controller']",
                "(request.resource.resource != 'gitrepositories'",
                "(object.?spec.?url == oldObject.?spec.?url && object.?spec.?ref == oldObject.?spec.?ref)) && \
                 (request.resource.resource != 'kustomizations'",
                "(object.?spec.?path == oldObject.?spec.?path && object.?spec.?sourceRef == oldObject.?spec.?sourceRef && \
                 object.?spec.?kubeConfig == oldObject.?spec.?kubeConfig && \
                 object.?spec.?targetNamespace == oldObject.?spec.?targetNamespace && \
                 object.?spec.?namePrefix == oldObject.?spec.?namePrefix && \
                 object.?spec.?nameSuffix == oldObject.?spec.?nameSuffix))",
            ]
        );
        let guarded = policy["spec"]["matchConditions"][0]["expression"].as_str();
        assert_eq!(
            guarded.unwrap().split(" || ").nth(2),
            Some(
                "(request.resource.group == 'source.toolkit.fluxcd.io' && \
                 request.resource.resource == 'gitrepositories' && \
                 oldObject.metadata.name == 'flux-system' && \
                 oldObject.metadata.namespace == 'flux-system')"
            )
        );
        assert!(!policy.to_string().contains("source-controller"));
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
    }

    /// What the API server fills in by itself narrows nothing, and is not taken for somebody's doing.
    #[test]
    fn what_is_added_to_the_policy_or_its_binding_is_seen_where_it_narrows_them() {
        let roots = [
            id(Kind::GitRepository, "flux-system"),
            id(Kind::Kustomization, "flux-system"),
        ];
        let none = json!({});
        let all = objects(roots.iter(), [&roots[0], &roots[1]], "a", &none);
        let wanted = all.map(|(id, object)| (id.kind, object));
        let mut live = wanted.clone();
        let constraints = &mut live[0].1["spec"]["matchConstraints"];
        constraints["matchPolicy"] = json!("Equivalent");
        constraints["namespaceSelector"] = json!({});
        constraints["objectSelector"] = json!({});
        for rule in constraints["resourceRules"].as_array_mut().unwrap() {
            rule["scope"] = json!("*");
        }
        for (of, (kind, live)) in live.iter().enumerate() {
            assert_eq!(weakened(*kind, &wanted[of].1, live), [""; 0], "{kind}");
        }
        let cases = json!([
            ["binding", "/spec/validationActions/0", "Warn"],
            ["binding", "/spec/validationActions", ["Deny", "Audit"]],
            ["binding", "/spec/matchResources", {"matchPolicy": "Equivalent"}],
            ["binding", "/spec/paramRef", {"name": "a"}],
            ["policy", "/spec/paramKind", {"kind": "ConfigMap"}],
            ["policy", "/spec/matchConditions", [{"name": "off", "expression": "false"}]],
            ["policy", "/spec/matchConstraints/objectSelector", {"matchLabels": {"a": "b"}}],
            ["policy", "/spec/matchConstraints/namespaceSelector", {"matchLabels": {"a": "b"}}],
            ["policy", "/spec/matchConstraints/excludeResourceRules", [{"resources": ["*"]}]],
            ["policy", "/spec/matchConstraints/matchPolicy", "Exact"],
            ["policy", "/spec/matchConstraints/resourceRules/0/resourceNames", ["a"]],
            ["policy", "/spec/matchConstraints/resourceRules/0/scope", "Cluster"],
        ]);
        for case in cases.as_array().unwrap() {
            let (of, at) = (usize::from(case[0] == "binding"), case[1].as_str().unwrap());
            let (kind, mut changed) = live[of].clone();
            let (parent, field) = at.rsplit_once('/').unwrap();
            if let Some(there) = changed.pointer_mut(at) {
                *there = case[2].clone();
            } else {
                changed.pointer_mut(parent).unwrap()[field] = case[2].clone();
            }
            assert_eq!(weakened(kind, &wanted[of].1, &changed), [at], "{case}");
        }
    }

    /// F29: to pin the root Application to a commit, and to set it free again, is left to people.
    #[test]
    fn a_root_application_keeps_its_place_and_may_be_pinned_to_a_commit() {
        let root = ObjectId::new(Kind::Application, "argocd", "linesman");
        let same = |field: &str| format!("object.?spec.?{field} == oldObject.?spec.?{field}");
        let revision = "source.?targetRevision";
        assert_eq!(
            follows(&root),
            format!(
                "(request.resource.resource != 'applications' || ({} && {} && ({} || [object, oldObject].exists(o, \
                 o.?spec.?{revision}.orValue('').matches('^[0-9a-f]{{40}}$'))) && {} && {} && {}))",
                same("source.?repoURL"),
                same("source.?path"),
                same(revision),
                same("sources"),
                same("sourceHydrator"),
                same("destination"),
            )
        );
    }
}
