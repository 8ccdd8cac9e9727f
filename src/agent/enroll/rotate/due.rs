//! What is to be done about the keys, by what is known of them.

use crate::agent::identity::Identity;
use crate::wire::api::{DeployKeyState, RotateWish};

/// So many looks at the catalog in a row that were refused say something about the key.
const DENIED: u32 = 2;

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Both keys were revoked, and a token waits for others: they are made.
    Renew,
    /// The hub is asked to take a new identity for one that was lost, on the word of the deploy key.
    Recover,
    /// A successor of the deploy key is made.
    Make,
    /// The successor is registered, proven and promoted.
    Prove,
    /// The deploy keys before the present one end.
    Settle,
    /// The hub is asked to register the present deploy key.
    Ask,
    /// A successor of the identity key is made.
    MakeIdentity,
    /// The successor is told to the hub and promoted.
    ProveIdentity,
}

/// What decides on the next thing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) wish: &'a RotateWish,
    pub(super) registered: DeployKeyState,
    pub(super) fetched: &'a str,
    pub(super) denied: u32,
}

/// The next thing to do, if there is any.
pub(super) fn due(identity: &Identity, moment: Moment<'_>) -> Option<Work> {
    let deploy = identity.deploy.public().fingerprint();
    let own = identity.identity.public().fingerprint();
    let doubted = moment.registered == DeployKeyState::Refused || moment.denied >= DENIED;
    match () {
        () if identity.lost => Some(Work::Recover),
        () if identity.next_deploy.is_some() => Some(Work::Prove),
        () if identity.unsettled && moment.fetched == deploy => Some(Work::Settle),
        () if identity.next_identity.is_some() => Some(Work::ProveIdentity),
        () if doubted => Some(Work::Ask),
        () if moment.wish.identity.as_deref() == Some(own.as_str()) => Some(Work::MakeIdentity),
        () if identity.unsettled => None,
        () if moment.wish.deploy_key.as_deref() == Some(deploy.as_str()) => Some(Work::Make),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    fn keys() -> Identity {
        Identity::from_seeds(&[1; 32], &[2; 32])
    }

    fn wish(fingerprint: &str) -> RotateWish {
        RotateWish {
            deploy_key: Some(fingerprint.to_owned()),
            ..RotateWish::default()
        }
    }

    #[test]
    fn a_deploy_key_is_replaced_only_where_that_very_key_is_meant() {
        let own = keys().deploy.public().fingerprint();
        let work = |identity: &Identity, wish: &RotateWish, fetched: &str| {
            let moment = Moment {
                wish,
                registered: DeployKeyState::Registered,
                fetched,
                denied: 0,
            };
            due(identity, moment)
        };
        assert_eq!(work(&keys(), &RotateWish::default(), ""), None);
        assert_eq!(work(&keys(), &wish("SHA256:other"), ""), None);
        assert_eq!(work(&keys(), &wish(&own), &own), Some(Work::Make));
        let made = Identity {
            next_deploy: Some(KeyPair::from_seed(&[3; 32])),
            ..keys()
        };
        assert_eq!(work(&made, &wish(&own), &own), Some(Work::Prove));
        // The wish may be gone: what was begun is ended.
        assert_eq!(work(&made, &RotateWish::default(), &own), Some(Work::Prove));
        let promoted = made.with_deploy_promoted();
        let new = promoted.deploy.public().fingerprint();
        for fetched in ["", own.as_str()] {
            assert_eq!(work(&promoted, &wish(&own), fetched), None);
            // Nor is the next one begun before this one has ended.
            assert_eq!(work(&promoted, &wish(&new), fetched), None);
        }
        let settle = work(&promoted, &wish(&own), &new);
        assert_eq!(settle, Some(Work::Settle));
    }

    #[test]
    fn an_identity_is_replaced_beside_a_deploy_key_that_waits_for_its_engine() {
        let own = keys().identity.public().fingerprint();
        let wish = RotateWish {
            deploy_key: Some(keys().deploy.public().fingerprint()),
            identity: Some(own),
        };
        let work = |identity: &Identity| {
            let moment = Moment {
                wish: &wish,
                registered: DeployKeyState::Registered,
                fetched: "",
                denied: 0,
            };
            due(identity, moment)
        };
        assert_eq!(work(&keys()), Some(Work::MakeIdentity));
        let made = Identity {
            next_identity: Some(KeyPair::from_seed(&[4; 32])),
            unsettled: true,
            ..keys()
        };
        assert_eq!(work(&made), Some(Work::ProveIdentity));
        let promoted = made.with_identity_promoted();
        assert_eq!(work(&promoted), None);
        let settled = Identity {
            unsettled: false,
            ..promoted
        };
        assert_eq!(work(&settled), Some(Work::Make));
    }

    #[test]
    fn the_hub_is_asked_for_a_key_that_the_host_refuses() {
        let work = |registered, denied| {
            let wish = RotateWish::default();
            let moment = Moment {
                wish: &wish,
                registered,
                fetched: "",
                denied,
            };
            due(&keys(), moment)
        };
        assert_eq!(work(DeployKeyState::Registered, 1), None);
        assert_eq!(work(DeployKeyState::Registered, DENIED), Some(Work::Ask));
        assert_eq!(work(DeployKeyState::Refused, 0), Some(Work::Ask));
        assert_eq!(work(DeployKeyState::Pending, 0), None);
        // Where that key is to be replaced, too: a rotation does not mend it.
        let wish = wish(&keys().deploy.public().fingerprint());
        let moment = Moment {
            wish: &wish,
            registered: DeployKeyState::Registered,
            fetched: "",
            denied: DENIED,
        };
        assert_eq!(due(&keys(), moment), Some(Work::Ask));
    }
}
