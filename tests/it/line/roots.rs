//! A hub without a CA of its own: what the agent's system trusts decides. It reads its roots where `SSL_CERT_FILE` says, so
//! each agent here is a process of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use linesman::agent::identity::Identity;
use linesman::agent::link::{self, LinkConfig, LinkState};
use linesman::clock;
use linesman::keys::KeyPair;
use linesman::wire::api::{AgentBuild, HubRef};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::world::{PATIENCE, World};

const HUB: &str = "LINESMAN_TEST_HUB";
const SEED: [u8; 32] = [6; 32];
/// Of the line above what the child found, among what the test harness prints.
const FOUND: &str = "the link is ";

/// What becomes of a dial to the hub, in a process whose system trusts the roots in this file.
fn dialled(hub: &HubRef, roots: &Path) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "line::roots::dials", "--ignored", "--nocapture"])
        .env(HUB, serde_json::to_string(hub).unwrap())
        .env("SSL_CERT_FILE", roots)
        .env_remove("SSL_CERT_DIR")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&child.stdout);
    let found = out.lines().find_map(|line| line.split_once(FOUND));
    let err = String::from_utf8_lossy(&child.stderr);
    found.unwrap_or_else(|| panic!("{out}\n{err}")).1.to_owned()
}

/// The process of such an agent.
#[tokio::test]
#[ignore = "a process of the test beside it"]
async fn dials() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let hub = std::env::var_os(HUB).expect("started by the test beside it");
    let hub: HubRef = serde_json::from_str(hub.to_str().unwrap()).unwrap();
    let (_hub, hub) = watch::channel(hub);
    let (out, mut state) = watch::channel(LinkState::Down {
        since: clock::now(),
        cause: String::new(),
        attempt: 0,
        strange: false,
    });
    let config = LinkConfig {
        hub,
        cluster: "eu1".parse().unwrap(),
        keys: watch::channel(Identity {
            identity: KeyPair::from_seed(&SEED),
            ..Identity::from_seeds(&[1; 32], &[2; 32])
        })
        .1,
        build: AgentBuild::default(),
        instance: "roots".to_owned(),
        proxy: watch::channel(None).1,
    };
    let (streams, _incoming) = mpsc::channel(1);
    let mut task = JoinSet::new();
    task.spawn(link::run(config, out, streams, CancellationToken::new()));
    let settled = state.wait_for(|state| !matches!(state, LinkState::Down { attempt: 0, .. }));
    let settled = timeout(PATIENCE, settled).await.expect("it dials").unwrap();
    match &*settled {
        LinkState::Up { .. } => println!("{FOUND}up"),
        LinkState::Down { cause, strange, .. } => {
            println!("{FOUND}down, strange: {strange}: {cause}");
        }
    }
}

/// H8: where the hub's certificate is said to be publicly trusted, the system's roots are what the line is dialled by, and nothing
/// else is; where a CA is given, those never are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_a_ca_is_trusted_as_far_as_the_system_trusts_it() {
    let world = World::known(KeyPair::from_seed(&SEED)).await;
    let reference = world.hub.reference();
    let (_, other) = crate::tls::loopback();
    let public = HubRef {
        ca: String::new(),
        ..reference.clone()
    };
    let pinned = HubRef {
        ca: other.clone(),
        ..reference.clone()
    };
    let file = |name: &str, text: &str| {
        let path = world.directory().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (right, wrong) = (file("right.pem", &reference.ca), file("wrong.pem", &other));
    let asked = [
        (public.clone(), right.clone()),
        (public, wrong),
        (pinned, right),
    ];
    let dialling =
        asked.map(|(hub, roots)| tokio::task::spawn_blocking(move || dialled(&hub, &roots)));
    let mut found = Vec::new();
    for dialled in dialling {
        found.push(dialled.await.unwrap());
    }
    assert_eq!(found[0], "up");
    // Neither a root of somebody else's, nor, beside a CA that is given, the system's.
    for refused in &found[1..] {
        let said = refused.strip_prefix("down, strange: true: ");
        assert!(
            said.is_some_and(|cause| cause.contains("UnknownIssuer")),
            "{refused}"
        );
    }
    world.end().await;
}
