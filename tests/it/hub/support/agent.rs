//! An agent by its keys alone: the calls that it signs.

use linesman::clock;
use linesman::keys::{self, KeyPair};
use linesman::wire::PROTOCOL;
use linesman::wire::api::{
    AgentBuild, JoinRequest, SIGNATURE_HEADER, deploy_proof_input, signing_input,
};
use linesman::wire::report::Facts;
use serde_json::Value;

use super::TestHub;
use super::calls::answer;

/// One call that an agent signs.
pub(crate) struct Call<'a> {
    pub(super) hub: &'a TestHub,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) body: &'a str,
}

impl Call<'_> {
    /// Signed with this key, at the hub's time plus `skew` seconds.
    pub(crate) async fn signed_by(&self, key: &KeyPair, skew: i64) -> (u16, Value) {
        answer(self.send(key, skew).await).await
    }

    pub(crate) async fn stream(&self, key: &KeyPair) -> reqwest::Response {
        self.send(key, 0).await
    }

    async fn send(&self, key: &KeyPair, skew: i64) -> reqwest::Response {
        let call = (self.method, self.path, self.body);
        let header = signature(&self.hub.hub.id, key, call, skew);
        let method = self.method.parse().unwrap();
        self.hub
            .client
            .request(method, self.hub.url(self.path))
            .header(SIGNATURE_HEADER, header)
            .body(self.body.to_owned())
            .send()
            .await
            .unwrap()
    }
}

/// The header of a call (method, path, body) to this hub that the key signs, at the hub's time plus `skew` seconds.
pub(crate) fn signature(
    hub_id: &str,
    key: &KeyPair,
    (method, path, body): (&str, &str, &str),
    skew: i64,
) -> String {
    let time = clock::now().unix_timestamp() + skew;
    let sum = keys::sha256_hex(body.as_bytes());
    let input = signing_input(hub_id, method, path, time, &sum);
    let signature = keys::encode(&key.sign(input.as_bytes()));
    let fingerprint = key.public().fingerprint();
    format!("v1;key={fingerprint};t={time};sig={signature}")
}

/// A cluster with its keys.
pub(crate) struct Agent {
    pub(crate) identity: KeyPair,
    deploy: KeyPair,
}

impl Agent {
    pub(crate) fn new(seed: u8) -> Self {
        Self {
            identity: KeyPair::from_seed(&[seed; 32]),
            deploy: KeyPair::from_seed(&[seed + 100; 32]),
        }
    }

    /// One of many.
    pub(crate) fn of(number: u32) -> Self {
        let seed = |kind: u8| {
            let mut seed = [kind; 32];
            seed[..4].copy_from_slice(&number.to_be_bytes());
            KeyPair::from_seed(&seed)
        };
        Self {
            identity: seed(200),
            deploy: seed(201),
        }
    }

    pub(crate) fn join_body(&self, hub: &TestHub, name: &str, token: &str) -> String {
        self.join_of(&hub.hub.id, name, token)
    }

    /// The same at the hub of this id.
    pub(crate) fn join_of(&self, hub_id: &str, name: &str, token: &str) -> String {
        let identity = self.identity.public().to_base64();
        let proof = deploy_proof_input(hub_id, name, &identity);
        let join = JoinRequest {
            protocol: PROTOCOL,
            token: token.to_owned(),
            cluster: name.parse().unwrap(),
            incarnation: format!("uid-of-{name}"),
            identity_key: identity,
            deploy_key: self.deploy.public().openssh("").unwrap(),
            deploy_proof: keys::encode(&self.deploy.sign(proof.as_bytes())),
            agent: AgentBuild::default(),
            facts: Facts::default(),
        };
        serde_json::to_string(&join).unwrap()
    }

    pub(crate) async fn join(&self, hub: &TestHub, name: &str, token: &str) -> (u16, Value) {
        let body = self.join_body(hub, name, token);
        hub.call("POST", "/v1/join", &body)
            .signed_by(&self.identity, 0)
            .await
    }

    pub(crate) async fn call(
        &self,
        hub: &TestHub,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        hub.call(method, path, body)
            .signed_by(&self.identity, 0)
            .await
    }
}
