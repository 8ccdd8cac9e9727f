//! The keys of the Git host as an operator sees and accepts them.

use linesman::keys::KeyPair;
use linesman::ssh::known_hosts::HostKey;

use super::Home;
use super::hub::{Hub, json_of};

fn line(host: &serde_json::Value, seed: u8) -> (HostKey, String) {
    let key = HostKey::ed25519(KeyPair::from_seed(&[seed; 32]).public());
    let known = host["knownHosts"].as_str().unwrap();
    let address = known.split(' ').next().unwrap();
    let line = format!("{address} {}\n", key.text);
    (key, line)
}

#[test]
fn a_key_is_announced_by_a_file_shown_and_dropped() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let listed = home.run(&["githost", "list", "-o", "name"]);
    assert_eq!((listed.code, listed.out.as_str()), (0, "builtin\n"));
    let host = json_of(&home.run(&["githost", "show", "-o", "json"]));
    assert_eq!(host["keys"][0]["served"], serde_json::json!(true));
    let (key, text) = line(&host, 7);
    let file = home.write("new.txt", &text).display().to_string();
    let accept = ["githost", "accept-host-key", "builtin"];
    let told = home.run(&[&accept[..], &["--known-hosts", &file]].concat());
    assert_eq!(told.code, 0, "{told:?}");
    assert!(
        told.out.contains(&key.fingerprint) && told.out.contains("file (admin)"),
        "{told:?}"
    );
    let replace = [&accept[..], &["--known-hosts", &file, "--replace"]].concat();
    home.run(&replace).fails(2, "--replace --yes");
    let drop = ["githost", "drop-host-key", "--fingerprint"];
    let served = host["keys"][0]["fingerprint"].as_str().unwrap();
    home.run(&[&drop[..], &[&key.fingerprint]].concat())
        .fails(2, "needs a yes");
    let shown = json_of(&home.run(&["githost", "show", "-o", "json"]));
    assert_eq!(shown["keys"].as_array().map(Vec::len), Some(2), "{shown}");
    home.run(&[&drop[..], &[served, "--yes"]].concat())
        .fails(5, "the hub's own Git server shows the key");
    home.run(&[&drop[..], &["SHA256:nobody"]].concat())
        .fails(3, "the host has no key SHA256:nobody");
}

/// Nobody is here to compare a fingerprint: what is trusted is named, or nothing is.
#[test]
fn without_a_terminal_a_key_has_to_be_named() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    home.run(&["githost", "accept-host-key"])
        .fails(3, "meets a key that it does not know");
    home.run(&["githost", "accept-host-key", "--fingerprint", "SHA256:x"])
        .fails(3, "no cluster met the key SHA256:x");
    home.run(&["githost", "show", "github"])
        .fails(3, "there is no Git host 'github'");
    // Nobody tells who pushes but this.
    let rotated = home.run(&["githost", "rotate-host-key", "--wait=30s"]);
    assert!(
        rotated.err.contains("'linesman catalog clone DIR' again"),
        "{rotated:?}"
    );
    let host = json_of(&home.run(&["githost", "show", "-o", "json"]));
    let keys = host["keys"].as_array().unwrap();
    assert_eq!(
        (keys.len(), &keys[0]["served"]),
        (1, &serde_json::json!(true)),
        "{host}"
    );
}
