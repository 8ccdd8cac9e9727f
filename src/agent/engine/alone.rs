//! Secrets in which others have no say: one key more among those of which one has to have signed, and somebody else's commits are
//! applied; one word more beside the catalog's address, and Argo CD looks at no host key. To apply takes away nothing that others wrote.

use serde_json::{Map, Value, json};

use super::argocd::REPOSITORY;
use super::flux::SIGNERS;
use crate::bundle::{Kind, ObjectId};

/// With which the words begin by which Argo CD trusts whatever host answers (argo-cd, `util/db/repository_secrets.go`).
const TRUSTS_ANY: &str = "insecure";

/// Where others have a say that they must not have.
pub fn surplus(id: &ObjectId, wanted: &Value, live: &Value) -> Vec<String> {
    let keys = foreign(id, wanted, live);
    keys.map(|key| format!("/data/{key}")).collect()
}

/// The patch that takes it away; none = there is nothing of that.
pub fn without(id: &ObjectId, wanted: &Value, live: &Value) -> Option<Value> {
    let keys = foreign(id, wanted, live);
    let data: Map<String, Value> = keys.map(|key| (key.clone(), Value::Null)).collect();
    (!data.is_empty()).then(|| json!({ "data": data }))
}

fn foreign<'a>(
    id: &ObjectId,
    wanted: &'a Value,
    live: &'a Value,
) -> impl Iterator<Item = &'a String> {
    let is_listed = id.kind == Kind::Secret && [SIGNERS, REPOSITORY].contains(&id.name.as_str());
    let any = id.name == SIGNERS;
    let data = |object: &'a Value| object.get("data").and_then(Value::as_object);
    let ours = data(wanted);
    let there = data(live).filter(|_| is_listed);
    let keys = there.into_iter().flat_map(Map::keys);
    keys.filter(move |key| {
        let is_ours = ours.is_some_and(|ours| ours.contains_key(*key));
        !is_ours && (any || key.starts_with(TRUSTS_ANY))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F24, F30: the API server takes them beside ours.
    #[test]
    fn what_others_add_to_the_signers_or_to_trust_any_host_is_told_and_taken_away() {
        let ours = json!({"data": {"a": "1", "url": "2"}});
        let live = |more: &str| json!({"data": {"a": "1", "url": "3", more: "4"}});
        for (kind, name, more, is_foreign) in [
            (Kind::Secret, SIGNERS, "b.asc", true),
            (Kind::Secret, SIGNERS, "a", false),
            (Kind::Secret, REPOSITORY, "insecure", true),
            (Kind::Secret, REPOSITORY, "insecureIgnoreHostKey", true),
            // A way that the cluster needs.
            (Kind::Secret, REPOSITORY, "proxy", false),
            (Kind::Secret, "another", "insecure", false),
            (Kind::ConfigMap, SIGNERS, "b.asc", false),
        ] {
            let id = ObjectId::new(kind, "flux-system", name);
            let live = live(more);
            let paths = surplus(&id, &ours, &live);
            let expected = is_foreign.then(|| format!("/data/{more}"));
            assert_eq!(paths, expected.into_iter().collect::<Vec<_>>(), "{id}");
            let patch = is_foreign.then(|| json!({"data": {more: null}}));
            assert_eq!(without(&id, &ours, &live), patch, "{id} {more}");
        }
        let id = ObjectId::new(Kind::Secret, "flux-system", SIGNERS);
        assert_eq!(without(&id, &ours, &json!({})), None);
    }
}
