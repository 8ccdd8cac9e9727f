//! The cluster's two Ed25519 key pairs, their form in Secret `linesman-keys`, and what they sign.
//!
//! `identity` proves the cluster to the hub; `deploy` reads the catalog. Both are made in the cluster, and
//! their private halves never leave it. Beside each its successor stands while it is being replaced, so that a
//! rotation goes on after a kill at any point. Pure: the caller brings seeds and time, and does the reading and writing.

use std::collections::BTreeMap;

use crate::agent::DeployKey;
use crate::keys::{self, KeyError, KeyPair, Public};
use crate::secret::Secret;
use crate::wire::api::{self, IdentityRequest, RecoverRequest};
use crate::wire::id::ClusterName;

const IDENTITY: &str = "identity";
const DEPLOY: &str = "deploy";
const DEPLOY_PUBLIC: &str = "deploy.pub";
const NEXT_IDENTITY: &str = "identity.next";
const NEXT_DEPLOY: &str = "deploy.next";
/// Set while the hub knows another identity of this cluster, which was lost here.
const LOST: &str = "identity.lost";
/// Set while the hub may hold other deploy keys of this cluster beside the present one.
const UNSETTLED: &str = "deploy.unsettled";
/// What a mark says that is not set.
const UNSET: &[u8] = b"false";

/// The data of a Secret.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// Both key pairs of a cluster; its debug form shows fingerprints only.
#[derive(Debug, Clone)]
pub struct Identity {
    pub identity: KeyPair,
    pub deploy: KeyPair,
    /// To be the identity as soon as the hub knows it.
    pub next_identity: Option<KeyPair>,
    /// To be the deploy key as soon as the Git host lets it read.
    pub next_deploy: Option<KeyPair>,
    /// The engine has not been seen to fetch with `deploy` yet: its predecessor still stands at the Git host.
    pub unsettled: bool,
    /// The hub does not know `identity` yet: the one that it knows was lost.
    pub lost: bool,
}

impl Identity {
    /// New pairs from 64 random bytes.
    pub fn from_seeds(identity: &[u8; 32], deploy: &[u8; 32]) -> Self {
        Self {
            identity: KeyPair::from_seed(identity),
            deploy: KeyPair::from_seed(deploy),
            next_identity: None,
            next_deploy: None,
            unsettled: false,
            lost: false,
        }
    }

    /// What is left where [`Identity::from_data`] finds nothing whole: identity and deploy key, each if it can be read.
    pub fn halves(data: &SecretData) -> [Option<KeyPair>; 2] {
        [pair(data, IDENTITY), pair(data, DEPLOY)]
    }

    /// The successor takes the deploy key's place; the engine has to show that it works.
    #[must_use]
    pub fn with_deploy_promoted(self) -> Self {
        match self.next_deploy {
            Some(next) => Self {
                deploy: next,
                next_deploy: None,
                unsettled: true,
                ..self
            },
            None => self,
        }
    }

    /// The successor takes the identity's place.
    #[must_use]
    pub fn with_identity_promoted(self) -> Self {
        match self.next_identity {
            Some(next) => Self {
                identity: next,
                next_identity: None,
                ..self
            },
            None => self,
        }
    }

    /// Reads the Secret's data. `None` where a private half is missing or garbled, or both are the same key: such
    /// a Secret counts as missing.
    pub fn from_data(data: &SecretData) -> Option<Self> {
        let pair = |key: &str| pair(data, key);
        let (identity, deploy) = (pair(IDENTITY)?, pair(DEPLOY)?);
        (identity.public() != deploy.public()).then_some(Self {
            identity,
            deploy,
            // A garbled successor is made anew: nobody has begun to rely on it.
            next_identity: pair(NEXT_IDENTITY),
            next_deploy: pair(NEXT_DEPLOY),
            unsettled: is_set(data, UNSETTLED),
            lost: is_set(data, LOST),
        })
    }

    /// The Secret's data. The same pairs give the same bytes only through [`Identity::same_as`]: the OpenSSH form
    /// carries a random check number.
    pub fn to_data(&self, cluster: &ClusterName) -> Result<SecretData, KeyError> {
        let private = |pair: &KeyPair| -> Result<Vec<u8>, KeyError> {
            Ok(private_file(pair, cluster)?.into_inner().into_bytes())
        };
        let mut data: SecretData = [
            (IDENTITY.to_owned(), private(&self.identity)?),
            (DEPLOY.to_owned(), private(&self.deploy)?),
            (
                DEPLOY_PUBLIC.to_owned(),
                public_line(&self.deploy, cluster)?.into_bytes(),
            ),
        ]
        .into();
        for (key, next) in [
            (NEXT_IDENTITY, &self.next_identity),
            (NEXT_DEPLOY, &self.next_deploy),
        ] {
            if let Some(next) = next {
                data.insert(key.to_owned(), private(next)?);
            }
        }
        // A mark is never left out: a Secret that was created by POST keeps what a later server-side apply does not name.
        // Another value is taken over.
        for (key, is) in [(UNSETTLED, self.unsettled), (LOST, self.lost)] {
            let value: &[u8] = if is { b"true" } else { UNSET };
            data.insert(key.to_owned(), value.to_vec());
        }
        Ok(data)
    }

    /// Whether the Secret's data holds these pairs, whole.
    pub fn same_as(&self, data: &SecretData) -> bool {
        let public = data
            .get(DEPLOY_PUBLIC)
            .and_then(|line| std::str::from_utf8(line).ok())
            .and_then(|line| Public::from_openssh(line).ok());
        public == Some(self.deploy.public())
            && Self::from_data(data).is_some_and(|other| other.publics() == self.publics())
    }

    /// All that tells two states of the Secret apart.
    fn publics(&self) -> ([Option<Public>; 4], [bool; 2]) {
        let of = |pair: &Option<KeyPair>| pair.as_ref().map(KeyPair::public);
        let pairs = [
            Some(self.identity.public()),
            Some(self.deploy.public()),
            of(&self.next_identity),
            of(&self.next_deploy),
        ];
        (pairs, [self.unsettled, self.lost])
    }

    /// The deploy key as engines and the SSH probe take it.
    pub fn deploy_key(&self, cluster: &ClusterName) -> Result<DeployKey, KeyError> {
        Ok(DeployKey {
            private: private_file(&self.deploy, cluster)?,
            public: public_line(&self.deploy, cluster)?,
            unsettled: self.unsettled,
        })
    }

    /// base64url; proves to the hub that the private half of `deploy` is here: the present key or its successor.
    pub fn deploy_proof(&self, deploy: &KeyPair, hub_id: &str, cluster: &ClusterName) -> String {
        let identity = self.identity.public().to_base64();
        let input = api::deploy_proof_input(hub_id, cluster.as_str(), &identity);
        keys::encode(&deploy.sign(input.as_bytes()))
    }
}

fn pair(data: &SecretData, key: &str) -> Option<KeyPair> {
    let text = std::str::from_utf8(data.get(key)?).ok()?;
    KeyPair::from_openssh(text).ok()
}

/// An agent of before left out the marks that are not set.
fn is_set(data: &SecretData, mark: &str) -> bool {
    data.get(mark).is_some_and(|value| value != UNSET)
}

/// base64url: the deploy key's word for an identity that takes the place of one that was lost.
pub fn recovery_proof(
    own: &Identity,
    hub_id: &str,
    cluster: &ClusterName,
    incarnation: &str,
) -> String {
    let new = own.identity.public().to_base64();
    let input = api::recovery_input(hub_id, cluster.as_str(), incarnation, &new);
    keys::encode(&own.deploy.sign(input.as_bytes()))
}

/// `POST /v1/recover`: the deploy key names the identity of `own` in place of one that was lost.
pub fn recovery(
    own: &Identity,
    hub_id: &str,
    cluster: &ClusterName,
    incarnation: String,
) -> Result<RecoverRequest, KeyError> {
    Ok(RecoverRequest {
        cluster: cluster.clone(),
        new_identity_key: own.identity.public().to_base64(),
        deploy_key: public_line(&own.deploy, cluster)?,
        sig: recovery_proof(own, hub_id, cluster, &incarnation),
        incarnation,
    })
}

/// What both identity keys sign, so that `new` takes the place of `old`.
pub fn identity_change(
    old: &KeyPair,
    new: &KeyPair,
    hub_id: &str,
    cluster: &ClusterName,
) -> IdentityRequest {
    let new_key = new.public().to_base64();
    let old_key = old.public().to_base64();
    let input = api::identity_change_input(hub_id, cluster.as_str(), &old_key, &new_key);
    let sign = |pair: &KeyPair| keys::encode(&pair.sign(input.as_bytes()));
    IdentityRequest {
        sig_old: sign(old),
        sig_new: sign(new),
        new_key,
    }
}

/// The OpenSSH private key file of one of the cluster's keys.
pub fn private_file(pair: &KeyPair, cluster: &ClusterName) -> Result<Secret<String>, KeyError> {
    pair.openssh(&comment(cluster))
}

/// `ssh-ed25519 AAAA… linesman/<cluster>`
pub fn public_line(pair: &KeyPair, cluster: &ClusterName) -> Result<String, KeyError> {
    pair.public().openssh(&comment(cluster))
}

/// What an HTTP call to the hub is signed over.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    pub hub_id: &'a str,
    pub method: &'a str,
    pub path_and_query: &'a str,
    /// Unix seconds on the hub's clock.
    pub time: i64,
    pub body: &'a [u8],
}

/// The value of the header [`api::SIGNATURE_HEADER`].
pub fn signature(identity: &KeyPair, call: Signed<'_>) -> String {
    let Signed {
        hub_id,
        method,
        path_and_query,
        time,
        body,
    } = call;
    let hash = keys::sha256_hex(body);
    let input = api::signing_input(hub_id, method, path_and_query, time, &hash);
    let signature = keys::encode(&identity.sign(input.as_bytes()));
    let key = identity.public().fingerprint();
    format!("v1;key={key};t={time};sig={signature}")
}

/// The part of a join token that may be stored and logged: `lmj1.<id>.<secret>` → `<id>`.
pub fn token_id(token: &Secret<String>) -> Option<&str> {
    let mut parts = token.expose().trim().split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("lmj1"), Some(id), Some(_), None) if !id.is_empty() => Some(id),
        _ => None,
    }
}

fn comment(cluster: &ClusterName) -> String {
    format!("linesman/{cluster}")
}

#[cfg(test)]
mod tests;
