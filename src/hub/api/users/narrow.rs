//! What a token for some clusters is shown of its user's others: nothing that says of other clusters.

use std::collections::BTreeSet;

use crate::hub::store::ApiToken;
use crate::wire::id::ClusterName;

/// A token as far as it is for `own` clusters, where those are all that is to be told of; None = it is for others.
pub(super) fn shown(token: ApiToken, own: Option<&BTreeSet<ClusterName>>) -> Option<ApiToken> {
    let Some(own) = own else {
        return Some(token);
    };
    let clusters = match token.clusters {
        None => None,
        Some(mut names) => {
            names.retain(|name| own.contains(name));
            if names.is_empty() {
                return None;
            }
            Some(names)
        }
    };
    Some(ApiToken { clusters, ..token })
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn a_token_for_some_clusters_is_told_of_no_other() {
        let names = |names: &[&str]| -> Option<BTreeSet<ClusterName>> {
            Some(names.iter().map(|name| name.parse().unwrap()).collect())
        };
        let token = |clusters| ApiToken {
            id: "t".to_owned(),
            user_id: "u".to_owned(),
            hash: [0; 32],
            title: "ci".to_owned(),
            scopes: vec!["kube".to_owned()],
            clusters,
            created_by: "ada".to_owned(),
            created_at: OffsetDateTime::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
        };
        let own = names(&["eu1", "eu2"]);
        for (clusters, of_some) in [
            (None, Some(token(None))),
            (names(&["eu1", "us1"]), Some(token(names(&["eu1"])))),
            (names(&["us1"]), None),
        ] {
            assert_eq!(shown(token(clusters.clone()), own.as_ref()), of_some);
            let all = shown(token(clusters.clone()), None);
            assert_eq!(all, Some(token(clusters)));
        }
    }
}
