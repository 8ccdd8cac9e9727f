//! H16: what keys are worth that were replaced.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use linesman::agent::caller::{Call, Https};
use linesman::agent::identity::{self, Identity, SecretData, Signed};
use linesman::clock;
use linesman::hub::CATALOG;
use linesman::hub::git::BRANCH;
use linesman::hub::serve::host_key;
use linesman::ssh::{Head, HostPair, Probe, ProbeError, Step, probe};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::lost::KEYS;
use crate::support::world::{CLUSTER, World};
use crate::support::{eventually, figure, seconds, shown};

const PATIENCE: u64 = 120;

/// Both key pairs of the cluster as they are now, for the time when they are replaced.
pub(super) struct Old {
    keys: Identity,
    hub_id: String,
    runtime: Runtime,
}

impl Old {
    /// As both servers take them, or their refusal later would say nothing.
    pub(super) fn of(world: &World) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let hub = runtime.block_on(https(world).send(&Call::get("/v1/hub"), None));
        let hub: Value = hub.unwrap().json().unwrap();
        let old = Self {
            keys: pairs(world).expect("the Secret has both pairs"),
            hub_id: hub["hubId"].as_str().unwrap().to_owned(),
            runtime,
        };
        old.fetch(world).expect("the deploy key reads the catalog");
        assert_eq!(old.call(world), (StatusCode::OK, String::new()));
        old
    }

    /// Polls until the Git server refuses the deploy key, and the hub the identity key. Figures count from `began`, when they were
    /// told to be replaced. Returns how often the Git server was asked.
    pub(super) fn refused(&self, world: &World, began: Instant) -> usize {
        let mut asked = 0;
        let limit = seconds(PATIENCE);
        eventually("the old deploy key is refused", limit, || {
            asked += 1;
            match self.fetch(world) {
                Err(error) if error.step() == Step::Auth => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        let told = world.said("to be replaced under load → Git server refuses the old deploy key");
        figure("H16", &told, "≤ 60 s", shown(began.elapsed()));
        let revoked = (StatusCode::FORBIDDEN, "revoked".to_owned());
        eventually("the old identity key is refused", limit, || {
            let answer = self.call(world);
            let told = format!("{answer:?}");
            (answer == revoked).then_some(()).ok_or(told)
        });
        let told = world.said("to be replaced under load → hub refuses the old identity key");
        figure("H16", &told, "≤ 60 s", shown(began.elapsed()));
        asked
    }

    /// A look at the catalog with the deploy key.
    fn fetch(&self, world: &World) -> Result<Head, ProbeError> {
        let (host, port) = (&world.place.host, world.hub.git_port());
        let pair = std::fs::read_to_string(host_key(&world.hub.data())).unwrap();
        let known_hosts = HostPair::from_openssh(&pair)
            .unwrap()
            .key()
            .line(host, port);
        let url = format!("ssh://git@{host}:{port}/{CATALOG}")
            .parse()
            .unwrap();
        let asks = Probe {
            url: &url,
            private_key: &identity::private_file(&self.keys.deploy, &CLUSTER.parse().unwrap())
                .unwrap(),
            known_hosts: &known_hosts,
            branch: BRANCH,
        };
        self.runtime.block_on(probe(asks, seconds(20)))
    }

    /// A call that the identity key signs: its code, and the problem's slug.
    fn call(&self, world: &World) -> (StatusCode, String) {
        let call = Call::get(format!("/v1/clusters/{CLUSTER}/assignment"));
        let signed = Signed {
            hub_id: &self.hub_id,
            method: "GET",
            path_and_query: &call.path,
            time: clock::now().unix_timestamp(),
            body: b"",
        };
        let signature = identity::signature(&self.keys.identity, signed);
        let https = https(world);
        let answer = https.send(&call, Some(signature));
        let answer = self.runtime.block_on(answer).unwrap();
        (answer.status, answer.slug())
    }
}

/// Both pairs, as far as the agent's Secret has them.
pub(super) fn pairs(world: &World) -> Option<Identity> {
    let secret = world.api.get(KEYS)?;
    let data = secret["data"].as_object()?.iter();
    let text = |value: &Value| STANDARD.decode(value.as_str().unwrap()).unwrap();
    let data: SecretData = data
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    Identity::from_data(&data)
}

fn https(world: &World) -> Https {
    let ca = std::fs::read_to_string(world.hub.ca()).unwrap();
    Https::new(&[world.hub.url()], &ca, None).unwrap()
}
