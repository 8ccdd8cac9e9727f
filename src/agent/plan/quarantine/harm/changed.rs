//! Whether what is another thing now of a Service, a policy, a role or a binding can be why a controller does not get on.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::agent::engine::Install;
use crate::agent::engine::compare::drift;
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};

/// Whether as much of it is another thing than it was as can be why a controller does not get on. Each version of the engine has labels
/// of its own, by which no policy and no Service goes. What only one of both says of a policy counts: as it is, it may let less through.
pub(super) fn can_matter(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let both = install.wanted.get(id).zip(observed.objects.get(id));
    both.is_none_or(|(wanted, live)| {
        let (before, now) = (&*wanted.expect, &live.fields);
        match id.kind {
            Kind::Service => differs(before, now, "/spec"),
            Kind::NetworkPolicy => differs(before, now, "/spec") || differs(now, before, "/spec"),
            Kind::Namespace
            | Kind::CustomResourceDefinition
            | Kind::ClusterRole
            | Kind::ServiceAccount
            | Kind::ClusterRoleBinding
            | Kind::Role
            | Kind::RoleBinding
            | Kind::ResourceQuota
            | Kind::ConfigMap
            | Kind::Secret
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::GitRepository
            | Kind::HelmRepository
            | Kind::OciRepository
            | Kind::Bucket
            | Kind::HelmChart
            | Kind::Kustomization
            | Kind::HelmRelease
            | Kind::AppProject
            | Kind::Application
            | Kind::ApplicationSet
            | Kind::Receiver
            | Kind::ImageRepository
            | Kind::ImageUpdateAutomation
            | Kind::ValidatingAdmissionPolicy
            | Kind::ValidatingAdmissionPolicyBinding => true,
        }
    })
}

/// Whether a controller has less by it than before, so that it waits in vain: a binding no longer gives what it gave to all to whom it
/// gave it, or who reaches whom is another thing now.
pub(super) fn takes(install: &Install, observed: &Observed, id: &ObjectId) -> bool {
    let takes = |is: fn(&Value, &Value) -> bool| {
        let both = install.wanted.get(id).zip(observed.objects.get(id));
        both.is_none_or(|(wanted, live)| is(&wanted.expect, &live.fields))
    };
    match id.kind {
        Kind::ClusterRoleBinding | Kind::RoleBinding => takes(|before, now| {
            differs(before, now, "/roleRef") || !subjects(before).is_subset(&subjects(now))
        }),
        Kind::NetworkPolicy | Kind::Service => takes(|before, now| differs(before, now, "/spec")),
        Kind::Namespace
        | Kind::CustomResourceDefinition
        | Kind::ClusterRole
        | Kind::ServiceAccount
        | Kind::Role
        | Kind::ResourceQuota
        | Kind::ConfigMap
        | Kind::Secret
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::GitRepository
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::Kustomization
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

fn differs(before: &Value, now: &Value, part: &str) -> bool {
    let mut paths = drift(before, now).into_iter();
    paths.any(|path| path.starts_with(part))
}

/// Whom a binding names: kind, namespace and name.
fn subjects(binding: &Value) -> BTreeSet<[&str; 3]> {
    let all = binding.get("subjects").and_then(Value::as_array);
    let named = all.into_iter().flatten().map(|subject| {
        let text = |name| subject.get(name).and_then(Value::as_str);
        ["kind", "namespace", "name"].map(|name| text(name).unwrap_or_default())
    });
    named.collect()
}
