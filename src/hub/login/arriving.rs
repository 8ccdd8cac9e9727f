//! The provider's word on a person, taken over into the store once it is on record.

use super::LoginError;
use crate::clock;
use crate::hub::oidc::Provider;
use crate::hub::oidc::claims::Identity;
use crate::hub::store::{Arrival, Known, UserRow};
use crate::hub::{Hub, grants};

/// Someone whom the provider vouches for, and whom the store does not know so yet.
pub(super) struct Arriving {
    arrival: Arrival,
    user: UserRow,
    /// As they are in the store; None = they are new.
    before: Option<UserRow>,
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
        let (user, before) = let_in(known, &arrival.name)?;
        Ok(Self {
            arrival,
            user,
            before,
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
        let (user, before) = let_in(known, &self.arrival.name)?;
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

fn let_in(known: Known, name: &str) -> Result<(UserRow, Option<UserRow>), LoginError> {
    match known {
        Known::User { user, before } => Ok((*user, before.map(|before| *before))),
        Known::Removed => Err(LoginError::refused(
            format!("{name} was removed from this hub"),
            format!("ask a hub admin to run: linesman user add {name}"),
        )),
        Known::Taken => Err(LoginError::refused(
            format!("the name {name} belongs to another user of this hub"),
            "a hub admin removes or renames that user, or sets --oidc-username-prefix",
        )),
    }
}
