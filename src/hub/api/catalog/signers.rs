//! Keys of which one has to have signed the catalog's head.

use std::sync::Arc;

use axum::extract::State;
use axum::{Json, http::StatusCode};

use crate::clock;
use crate::hub::auth::Role;
use crate::hub::signers::{self, Refusal, Signer};
use crate::hub::store::{Cluster, Details};
use crate::hub::{Hub, git};
use crate::wire::api::{DropSigner, EngineKind, NewSigner, SignerView, SignersView};
use crate::wire::id::ClusterName;
use crate::wire::report::{ENGINE_IN_FORCE, VERIFIES, VERIFIES_SSH};

use super::super::clusters::{self, announce_changed};
use super::super::problem::{Problem, Slug};
use super::super::{Caller, UserBody};

/// Clusters whose reports are read at once.
const PAGE: usize = 500;

pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
) -> Result<Json<SignersView>, Problem> {
    caller
        .require(&hub, Role::Viewer, "catalog.signers")
        .await?;
    view(&hub).await.map(Json)
}

pub(super) async fn add(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(new): UserBody<NewSigner>,
) -> Result<(StatusCode, Json<SignersView>), Problem> {
    let action = "catalog.signer-add";
    caller.require(&hub, Role::Admin, action).await?;
    let key = signers::key(&new.public_key)?;
    let before = hub.store.signers().await?;
    let known = before.iter().any(|s| s.key.fingerprint == key.fingerprint);
    let signer = Signer {
        key,
        text: format!("{}\n", new.public_key.trim()),
        added_by: caller.user.name.clone(),
        added_at: clock::now(),
    };
    let head = git::signed_head(&hub.catalog.repo, &hub.catalog.branch).await?;
    let after = signers::add(&before, signer, head.as_ref(), new.force)?;
    read(&hub, &before, &after, new.force).await?;
    change(&hub, &caller, (action, before), after).await?;
    let status = if known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(view(&hub).await?)))
}

pub(super) async fn remove(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(gone): UserBody<DropSigner>,
) -> Result<Json<SignersView>, Problem> {
    let action = "catalog.signer-remove";
    caller.require(&hub, Role::Admin, action).await?;
    let before = hub.store.signers().await?;
    let head = git::signed_head(&hub.catalog.repo, &hub.catalog.branch).await?;
    let after = signers::remove(&before, &gone.fingerprint, head.as_ref(), gone.force)?;
    read(&hub, &before, &after, gone.force).await?;
    change(&hub, &caller, (action, before), after).await?;
    view(&hub).await.map(Json)
}

/// Refuses what would leave clusters behind that do not verify with SSH keys.
async fn read(hub: &Hub, before: &[Signer], after: &[Signer], force: bool) -> Result<(), Problem> {
    if force {
        return Ok(());
    }
    let unread = ssh_unread(hub, after).await?;
    let unread: Vec<String> = unread.iter().map(ToString::to_string).collect();
    signers::is_read(before, after, &unread).map_err(Problem::from)
}

/// On record, then in the store, then on its way to every cluster that listens; the others fetch it when they are back.
async fn change(
    hub: &Arc<Hub>,
    caller: &Caller,
    (action, before): (&str, Vec<Signer>),
    after: Vec<Signer>,
) -> Result<(), Problem> {
    let words = format!("{} -> {}", prints(&before), prints(&after));
    caller.record(hub, action, None, &words).await?;
    if !hub.store.change_signers(before, after).await? {
        caller.lost(hub).await?;
        return Err(Problem::new(
            Slug::PreconditionFailed,
            "the signers' keys changed meanwhile",
            "look at them and decide again: linesman catalog signer list",
        ));
    }
    tracing::info!(
        by = caller.user.name,
        action,
        keys = words,
        "signers' keys changed"
    );
    let telling = hub.clone();
    hub.work
        .spawn(async move { announce_changed(&telling).await });
    Ok(())
}

async fn view(hub: &Hub) -> Result<SignersView, Problem> {
    let signers = hub.store.signers().await?;
    let head = git::signed_head(&hub.catalog.repo, &hub.catalog.branch).await?;
    let by = head.as_ref().and_then(|h| signers::signed_by(&signers, h));
    let not_verifying = unverified(hub).await?;
    let ssh_unread = ssh_unread(hub, &signers).await?;
    Ok(SignersView {
        head_signed_by: by.map(|s| s.key.fingerprint.clone()),
        head: head.map(|h| h.commit),
        keys: signers.into_iter().map(one).collect(),
        not_verifying,
        ssh_unread,
    })
}

/// Clusters that refuse what only an SSH key of these signed: those with Argo CD, which reads OpenPGP alone, or that are to have it, and
/// those whose agent does not say that their Flux verifies with them. What has not reported yet does not count by that.
async fn ssh_unread(hub: &Hub, signers: &[Signer]) -> Result<Vec<ClusterName>, Problem> {
    if !signers.iter().any(Signer::is_ssh) {
        return Ok(Vec::new());
    }
    let clusters = clusters::each(hub, |c: &Cluster| Some(c.clone())).await?;
    let mut found = Vec::new();
    for some in clusters.chunks(PAGE) {
        let ids: Vec<String> = some.iter().map(|c| c.id.clone()).collect();
        let told = hub.store.details(&ids).await?;
        let theirs = some.iter().zip(&told).filter(|(cluster, told)| {
            let silent = !told.facts.is_empty() && !told.facts.contains_key(VERIFIES_SSH);
            cluster.engine == EngineKind::Argocd || silent
        });
        found.extend(theirs.map(|(cluster, _)| cluster.name.clone()));
    }
    Ok(found)
}

/// Clusters in which Argo CD follows the catalog, or is to, and does not verify: where one engine takes the other's place, both count.
/// Their agent is older, or Argo CD was told to look at no signature.
async fn unverified(hub: &Hub) -> Result<Vec<ClusterName>, Problem> {
    let argocd = EngineKind::Argocd;
    // No other engine is in force than the one that was wished first, unless another wish came.
    let maybe = |c: &Cluster| (c.engine == argocd || c.engine_change > 0).then(|| c.clone());
    let clusters = clusters::each(hub, maybe).await?;
    let runs = |told: &Details| {
        let in_force = told.facts.get(ENGINE_IN_FORCE);
        in_force.is_some_and(|engine| engine == argocd.as_str())
    };
    let mut found = Vec::new();
    for some in clusters.chunks(PAGE) {
        let ids: Vec<String> = some.iter().map(|c| c.id.clone()).collect();
        let told = hub.store.details(&ids).await?;
        let both = some.iter().zip(&told);
        let theirs = both.filter(|(cluster, told)| {
            (cluster.engine == argocd || runs(told)) && !told.facts.contains_key(VERIFIES)
        });
        found.extend(theirs.map(|(cluster, _)| cluster.name.clone()));
    }
    Ok(found)
}

fn one(signer: Signer) -> SignerView {
    SignerView {
        fingerprint: signer.key.fingerprint,
        subkeys: signer.key.subkeys,
        user: signer.key.user,
        public_key: signer.text,
        added_by: signer.added_by,
        added_at: clock::rfc3339(signer.added_at),
    }
}

fn prints(signers: &[Signer]) -> String {
    let prints: Vec<&str> = signers.iter().map(|s| s.key.fingerprint.as_str()).collect();
    if prints.is_empty() {
        "none".to_owned()
    } else {
        prints.join(", ")
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let slug = match refusal {
            Refusal::Key(_) | Refusal::Ssh(_) | Refusal::Large => Slug::BadRequest,
            Refusal::Full => Slug::Full,
            Refusal::Unknown(_) => Slug::NotFound,
            Refusal::Head(_) | Refusal::Unread(_) => Slug::HeadUnsigned,
            Refusal::Argocd => Slug::OtherEngine,
        };
        Self::new(slug, refusal.to_string(), refusal.next())
    }
}
