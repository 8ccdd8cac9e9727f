//! Asks the API server which of its rights the agent has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, PostParams};
use tokio::time::timeout;

use crate::agent::plan::rights::{self, Place, Right, Rule};
use crate::manifests::{self, EngineNamespaces, scope::Extent};

const CALL: Duration = Duration::from_secs(10);
/// Kinds of rights that are asked for one by one; what goes beyond is taken from the rules alone.
const MAX_ASKED: usize = 32;
/// A review is always of a namespace. No namespace has such a name, so what is allowed here is allowed everywhere.
const NOWHERE: &str = "-";

/// The rights that the agent should have and has not.
///
/// # Errors
/// The API server does not answer, or gives nobody this answer.
pub(super) async fn missing(
    kube: &kube::Client,
    all: &EngineNamespaces,
    extent: Extent,
) -> Result<BTreeMap<Place, BTreeSet<Right>>> {
    let mut engines = Vec::new();
    for namespace in all.all() {
        if bound(kube, namespace).await {
            engines.push(namespace);
        }
    }
    let mut lost = BTreeMap::new();
    let mut asked = 0;
    for (place, needed) in rights::needed(all, &engines, extent) {
        let rules = rules(kube, &place).await?;
        let mut missing = rights::missing(needed, &rules);
        for (kind, of_kind) in rights::kinds(&missing) {
            asked += 1;
            let Some(one) = of_kind.first().filter(|_| asked <= MAX_ASKED) else {
                break;
            };
            if allowed(kube, &place, one).await? {
                missing.retain(|right| !right.is_of(&kind));
            }
        }
        // A namespace that goes takes the binding with it, and that is no loss of rights.
        let gone = match &place {
            Place::Namespace(of) if engines.contains(&of.as_str()) => {
                !missing.is_empty() && !bound(kube, of).await
            }
            Place::Namespace(_) | Place::Cluster => false,
        };
        if !missing.is_empty() && !gone {
            lost.insert(place, missing);
        }
    }
    Ok(lost)
}

/// Whether the agent's role is bound in the engine's namespace; one that cannot be read counts as not bound.
async fn bound(kube: &kube::Client, namespace: &str) -> bool {
    let api: Api<RoleBinding> = Api::namespaced(kube.clone(), namespace);
    let read = timeout(CALL, api.get_opt(manifests::ENGINE_ROLE)).await;
    let found = read.ok().and_then(Result::ok).flatten();
    found.is_some_and(|binding| binding.metadata.deletion_timestamp.is_none())
}

async fn rules(kube: &kube::Client, place: &Place) -> Result<Vec<Rule>> {
    let namespace = match place {
        Place::Cluster => NOWHERE,
        Place::Namespace(namespace) => namespace,
    };
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..SelfSubjectRulesReview::default()
    };
    let api: Api<SelfSubjectRulesReview> = Api::all(kube.clone());
    let params = PostParams::default();
    let answer = timeout(CALL, api.create(&params, &review))
        .await
        .context("review own rights: no answer")?
        .context("review own rights")?;
    let rules = answer.status.map(|status| status.resource_rules);
    Ok(rules.unwrap_or_default().into_iter().map(rule).collect())
}

fn rule(rule: ResourceRule) -> Rule {
    Rule {
        verbs: rule.verbs,
        groups: rule.api_groups.unwrap_or_default(),
        resources: rule.resources.unwrap_or_default(),
        names: rule.resource_names.unwrap_or_default(),
    }
}

/// What each authorizer together say of one right.
///
/// # Errors
/// The API server does not answer, or gives nobody this answer.
pub(in crate::agent) async fn allowed(
    kube: &kube::Client,
    place: &Place,
    right: &Right,
) -> Result<bool> {
    let namespace = match place {
        Place::Cluster => None,
        Place::Namespace(namespace) => Some(namespace.clone()),
    };
    let part = Some(right.subresource.clone()).filter(|part| !part.is_empty());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace,
                verb: Some(right.verb.clone()),
                group: Some(right.group.clone()),
                resource: Some(right.resource.clone()),
                subresource: part,
                name: right.name.clone(),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(kube.clone());
    let params = PostParams::default();
    let answer = timeout(CALL, api.create(&params, &review))
        .await
        .context("ask for an own right: no answer")?
        .context("ask for an own right")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
