//! What an object stands on: nothing is done to it before that is there.

use time::OffsetDateTime;

use crate::agent::engine::Install;
use crate::agent::engine::argocd::signers;
use crate::agent::plan::find::known;
use crate::agent::plan::state::Observed;
use crate::bundle::{Kind, ObjectId};

/// Whether all that an object stands on is there: the stages of the install, from the object's side.
pub(super) fn ready_for(
    now: OffsetDateTime,
    install: &Install,
    observed: &Observed,
    id: &ObjectId,
) -> bool {
    let there = |id: &ObjectId| {
        observed
            .objects
            .get(id)
            .is_some_and(|o| o.deleting.is_none())
    };
    let namespace = ObjectId::new(Kind::Namespace, "", &install.namespace);
    if id.kind.namespaced() && !there(&namespace) {
        return false;
    }
    if id.kind.namespaced() && *id != install.rights && !there(&install.rights) {
        return false;
    }

    let wanted = install.wanted.keys();
    match id.kind {
        // A Pod without its ServiceAccount, or a controller without its rights or kinds, fails and then backs off.
        Kind::Deployment | Kind::StatefulSet => wanted
            .filter(|w| {
                matches!(
                    w.kind,
                    Kind::ServiceAccount | Kind::ClusterRole | Kind::ClusterRoleBinding
                ) || w.kind == Kind::CustomResourceDefinition
                    || install.traits.before_pods.contains(&w.kind)
            })
            .all(|w| observed.objects.contains_key(w) || !known(now, observed, w.kind)),
        Kind::GitRepository
        | Kind::Kustomization
        | Kind::HelmRepository
        | Kind::OciRepository
        | Kind::Bucket
        | Kind::HelmChart
        | Kind::HelmRelease
        | Kind::AppProject
        | Kind::Application
        | Kind::ApplicationSet => {
            let crd = ObjectId::crd_of(id.kind);
            let established = observed
                .objects
                .get(&crd)
                .is_some_and(|c| c.is_true("Established"));
            // A root without its project is refused, and looked at again only after a while.
            let mut before = wanted.filter(|w| w.kind == Kind::AppProject);
            let asks = |w: &ObjectId| there(w) && asks_signers(install, observed, w);
            let project = id.kind != Kind::Application || before.all(asks);
            established && project && there(&install.secret)
        }
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
        | Kind::Receiver
        | Kind::ImageRepository
        | Kind::ImageUpdateAutomation
        | Kind::ValidatingAdmissionPolicy
        | Kind::ValidatingAdmissionPolicyBinding => true,
    }
}

/// Whether a project wants the signatures that it has to want: what a root refers to may be somebody else's of before.
pub(super) fn asks_signers(install: &Install, observed: &Observed, project: &ObjectId) -> bool {
    let wanted = install.wanted.get(project);
    let both = wanted.zip(observed.objects.get(project));
    both.is_some_and(|(wanted, live)| signers::asks(&wanted.expect, &live.fields))
}
