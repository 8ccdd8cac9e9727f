//! The SSH keys of people: given, listed, taken away. Whoever has a role that lets them reads the catalog by one, and pushes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::super::precondition::{self, Part};
use super::super::problem::{Problem, Slug};
use super::super::users::whose;
use super::super::{Caller, UserBody};
use crate::clock;
use crate::hub::Hub;
use crate::hub::auth::Role;
use crate::hub::store::SshKey;
use crate::keys::Public;
use crate::wire::api::{KeyView, NewSshKey, Page, SshKeyView};

/// Keys that one user may have.
const MAX_KEYS: usize = 20;
/// Characters of a key's title.
const MAX_TITLE: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Wanted {
    /// Whose; absent = the caller's own. Admins may ask for `*`.
    user: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page<SshKeyView>>, Problem> {
    let of = whose(&hub, &caller, wanted.user.as_deref(), "catalog.push-keys").await?;
    let keys = hub.store.ssh_keys(of.as_deref()).await?;
    let part = Part {
        limit: wanted.limit,
        cursor: wanted.cursor,
    };
    let place = |(key, user): &(SshKey, String)| format!("{user}\0{}", key.id);
    let keys = precondition::page(keys, &part, place)?;
    let items = keys.items.into_iter();
    Ok(Json(Page {
        items: items.map(|(key, user)| one(key, user)).collect(),
        cursor: keys.cursor,
    }))
}

fn one(key: SshKey, user: String) -> SshKeyView {
    SshKeyView {
        fingerprint: key.public.fingerprint(),
        created_at: clock::rfc3339(key.created_at),
        id: key.id,
        user,
        title: key.title,
    }
}

/// Lets the caller push with a key of their own. The same key again is the same answer.
pub(super) async fn add(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    UserBody(new): UserBody<NewSshKey>,
) -> Result<(StatusCode, Json<KeyView>), Problem> {
    let action = "catalog.push-key";
    caller.require(&hub, Role::Operator, action).await?;
    caller.unscoped(&hub, action).await?;
    let public = Public::from_openssh(&new.public_key).map_err(|error| {
        Problem::new(
            Slug::BadRequest,
            format!("publicKey: {error}"),
            "make one with: ssh-keygen -t ed25519",
        )
    })?;
    let fingerprint = public.fingerprint();
    let keys = hub.store.ssh_keys(Some(&caller.user.id)).await?;
    let known = keys.iter().any(|(key, _)| key.public == public);
    if !known && keys.len() >= MAX_KEYS {
        return Err(Problem::new(
            Slug::BadRequest,
            format!("you have {MAX_KEYS} SSH keys already"),
            "take one away that nobody needs: linesman catalog key remove FINGERPRINT; see: linesman catalog key list",
        ));
    }
    if !known {
        caller.record(&hub, action, None, &fingerprint).await?;
    }
    let shown = |c: &char| !c.is_control();
    let key = SshKey {
        id: clock::id(),
        user_id: caller.user.id.clone(),
        public,
        title: new.title.chars().filter(shown).take(MAX_TITLE).collect(),
        created_at: clock::now(),
    };
    let stored = hub.store.add_ssh_key(key).await?;
    let stored = stored.ok_or_else(|| {
        Problem::new(
            Slug::Exists,
            format!("the key {fingerprint} belongs to someone else"),
            "make a key of your own: ssh-keygen -t ed25519",
        )
    });
    let stored = caller.outcome(&hub, stored).await?;
    let status = if known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(view(&stored)?)))
}

fn view(key: &SshKey) -> Result<KeyView, Problem> {
    Ok(KeyView {
        kind: "push".to_owned(),
        fingerprint: key.public.fingerprint(),
        public: key
            .public
            .openssh(&key.title)
            .map_err(anyhow::Error::from)?,
        state: "active".to_owned(),
        created_at: None,
    })
}

/// The caller's own, anyone's for admins. What is fetched or pushed by it ends within two seconds.
pub(super) async fn remove(
    State(hub): State<Arc<Hub>>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let (key, user) = known(&hub, &caller, &id).await?;
    let fingerprint = key.public.fingerprint();
    precondition::matches_name(&headers, &key.id, &format!("the SSH key {fingerprint}"))?;
    let target = format!("{fingerprint} of {user}: {}", key.title);
    caller
        .record(&hub, "catalog.push-key-remove", None, &target)
        .await?;
    if !hub.store.remove_ssh_key(&key.id).await? {
        caller.lost(&hub).await?;
        return Err(unknown(&id));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A key that the caller may take away, with its user. Nobody learns by this whose keys there are.
async fn known(hub: &Hub, caller: &Caller, id: &str) -> Result<(SshKey, String), Problem> {
    let of = match &caller.user {
        admin if admin.is(Role::Admin) => None,
        user if user.scoped => return Err(unknown(id)),
        user => Some(user.id.as_str()),
    };
    let keys = hub.store.ssh_keys(of).await?;
    let found = keys.into_iter().find(|(key, _)| key.id == id);
    found.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Problem {
    Problem::new(
        Slug::NotFound,
        format!("there is no SSH key '{}'", crate::hub::cut(id, 60)),
        "see: linesman catalog key list",
    )
}
