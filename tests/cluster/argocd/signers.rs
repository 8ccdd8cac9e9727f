//! W43, F30: commits of the catalog that have to be signed, with Argo CD as the engine, as with Flux (`crate::signers`).

use crate::signers::refused_and_kept;
use crate::support::world;

/// F30, W43: by GnuPG in the repo-server, which gets a new key within seconds.
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_unsigned_head_is_refused_by_argo_cd_and_the_last_good_revision_kept() {
    refused_and_kept(&world::adopted_argocd(), |_| ());
}
