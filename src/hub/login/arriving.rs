//! The provider's word on a person, taken over into the store once it is on record.

use super::LoginError;
use crate::clock;
use crate::hub::oidc::Provider;
use crate::hub::oidc::claims::Identity;
use crate::hub::store::{Arrival, FIRST_ADMIN, Known, UserRow};
use crate::hub::{Hub, grants};

/// Someone whom the provider vouches for, and whom the store does not know so yet.
pub(super) struct Arriving {
    arrival: Arrival,
    user: UserRow,
    /// As they are in the store; None = they are new.
    before: Option<UserRow>,
    /// Whether a local user who was removed has the name until then.
    freed: bool,
}

impl Arriving {
    /// Nothing is changed. The error is for those whom this hub does not let in.
    pub(super) async fn meet(
        hub: &Hub,
        provider: &Provider,
        identity: &Identity,
    ) -> Result<Self, LoginError> {
        let arrival = Arrival {
            id: clock::id(),
            issuer: provider.config.issuer.clone(),
            subject: identity.subject.clone(),
            name: identity.name.clone(),
            groups: identity.groups.clone(),
        };
        let known = hub
            .store
            .would_arrive(arrival.clone(), clock::now())
            .await?;
        let (user, before, freed) = let_in(known, &arrival.name)?;
        Ok(Self {
            arrival,
            user,
            before,
            freed,
        })
    }

    /// As they are from now on.
    pub(super) fn user(&self) -> &UserRow {
        &self.user
    }

    /// The groups before, where they are others.
    pub(super) fn groups_before(&self) -> Option<&[String]> {
        let before = self.before.as_ref().map(|before| &before.groups);
        before
            .filter(|before| **before != self.user.groups)
            .map(Vec::as_slice)
    }

    /// The name before, where it is another.
    pub(super) fn name_before(&self) -> Option<&str> {
        let before = self.before.as_ref().map(|before| before.name.as_str());
        before.filter(|before| *before != self.user.name)
    }

    /// Whether the name was somebody else's, who was removed.
    pub(super) fn has_freed_name(&self) -> bool {
        self.freed
    }

    /// Takes the word over once `told` has put it on record. What runs by groups that are gone ends in any case.
    pub(super) async fn admit(
        &self,
        hub: &Hub,
        told: impl Future<Output = Result<(), LoginError>>,
    ) -> Result<UserRow, LoginError> {
        if let Err(error) = told.await {
            if let Some(before) = self.groups_before() {
                grants::groups_lost(hub, &self.user.id, before, &self.user.groups).await?;
            }
            return Err(error);
        }
        let known = hub.store.arrive(self.arrival.clone(), clock::now()).await?;
        let (user, before, _) = let_in(known, &self.arrival.name)?;
        let same = before.as_ref().is_some_and(|before| *before == user);
        if let Some(before) = before.filter(|before| before.groups != user.groups) {
            grants::groups_lost(hub, &user.id, &before.groups, &user.groups).await?;
        }
        if !same {
            hub.access_changed.notify_one();
        }
        Ok(user)
    }
}

fn let_in(known: Known, name: &str) -> Result<(UserRow, Option<UserRow>, bool), LoginError> {
    match known {
        Known::User {
            user,
            before,
            freed,
        } => Ok((*user, before.map(|before| *before), freed)),
        Known::Removed { name: then } => {
            let who = if then == name {
                then.clone()
            } else {
                format!("{name}, who was {then},")
            };
            // Under another name they would be somebody else, and this person would stay out.
            Err(LoginError::refused(
                format!("{who} was removed from this hub"),
                format!("ask a hub admin to run: linesman user add {then}"),
            ))
        }
        Known::Taken => Err(LoginError::refused(
            format!("the name {name} belongs to another user of this hub"),
            if name == FIRST_ADMIN {
                "this hub's own admin keeps it: a hub admin sets --oidc-username-prefix".to_owned()
            } else {
                format!(
                    "a hub admin removes that user, where it is a local one (linesman user remove {name}), or sets --oidc-username-prefix"
                )
            },
        )),
    }
}
