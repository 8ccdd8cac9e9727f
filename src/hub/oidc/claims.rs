//! From a provider's claims to a name and groups of the hub. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::token::Claims;
use crate::hub::access;

/// Groups that are taken over of one person; what is more is told and left out, which only takes access away.
pub const MAX_GROUPS: usize = 500;

/// Which claims mean what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub username_claim: String,
    pub username_prefix: String,
    pub groups_claim: String,
    pub groups_prefix: String,
}

impl Default for Mapping {
    fn default() -> Self {
        Self {
            username_claim: "preferred_username".to_owned(),
            username_prefix: String::new(),
            groups_claim: "groups".to_owned(),
            groups_prefix: String::new(),
        }
    }
}

/// A person as the hub will know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The provider's own, which never changes.
    pub subject: String,
    pub name: String,
    pub groups: BTreeSet<String>,
    /// Groups that were left out, for their names do not fit or for their number.
    pub left_out: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error(
        "the provider sends no claim '{0}'; choose another with --oidc-username-claim, or ask for its scope"
    )]
    NoName(String),
    #[error("the provider says that the address of this e-mail claim is not verified")]
    Unverified,
    #[error("the name '{0}' does not fit: a user's name is 1 to 200 of A-Z a-z 0-9 . _ @ + : -")]
    Name(String),
    #[error("the claim '{0}' is neither a text nor a list of texts")]
    Groups(String),
    #[error(
        "the provider leaves the claim '{0}' out of what it says, for this person has too many groups"
    )]
    LeftOut(String),
}

/// Whether the signed token says it all, so that nobody has to be asked for more.
pub fn complete(claims: &Claims, mapping: &Mapping) -> bool {
    claims.get(&mapping.username_claim).is_some() && claims.get(&mapping.groups_claim).is_some()
}

pub fn identity(claims: &Claims, mapping: &Mapping) -> Result<Identity, ClaimError> {
    let claim = &mapping.username_claim;
    let said = match claim.as_str() {
        "sub" => Some(claims.subject.as_str()),
        name => claims.get(name).and_then(Value::as_str),
    };
    let said = said.ok_or_else(|| ClaimError::NoName(claim.clone()))?;
    // As in Kubernetes: an address that its owner never proved is anyone's.
    if claim == "email"
        && claims
            .get("email_verified")
            .is_some_and(|v| *v != Value::Bool(true))
    {
        return Err(ClaimError::Unverified);
    }
    let name = format!("{}{said}", mapping.username_prefix);
    if !access::named(&name) {
        return Err(ClaimError::Name(name.chars().take(60).collect()));
    }
    let listed = groups(claims, &mapping.groups_claim)?;
    let count = listed.len();
    let groups: BTreeSet<String> = listed
        .into_iter()
        .map(|group| format!("{}{group}", mapping.groups_prefix))
        .filter(|group| access::named(group))
        .take(MAX_GROUPS)
        .collect();
    Ok(Identity {
        subject: claims.subject.clone(),
        name,
        left_out: count - groups.len(),
        groups,
    })
}

/// No claim is no group, unless the provider says that it left the claim out: rights would be gone, and nobody told why.
fn groups<'a>(claims: &'a Claims, name: &str) -> Result<BTreeSet<&'a str>, ClaimError> {
    let wrong = || ClaimError::Groups(name.to_owned());
    match claims.get(name) {
        None | Some(Value::Null) if is_left_out(claims, name) => {
            Err(ClaimError::LeftOut(name.to_owned()))
        }
        None | Some(Value::Null) => Ok(BTreeSet::new()),
        Some(Value::String(one)) => Ok([one.as_str()].into()),
        Some(Value::Array(list)) => list.iter().map(|g| g.as_str().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

/// Whether the provider has such a claim and does not say it: it is to be had elsewhere (a distributed claim, OpenID Connect Core
/// §5.6.2), where the hub does not ask, or Entra ID says no more than that there are groups.
fn is_left_out(claims: &Claims, name: &str) -> bool {
    let sources = claims.get("_claim_names");
    let marked = |mark: &Value| *mark != Value::Bool(false);
    sources.is_some_and(|names| names.get(name).is_some())
        || (name == "groups" && claims.get("hasgroups").is_some_and(marked))
}

#[cfg(test)]
mod tests;
