//! What the doctor finds at either end.

use serde_json::{Value, json};

use super::Hub;
use crate::cli::{Home, Ran};

#[test]
fn the_doctor_looks_at_both_ends() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    let ran = home.run(&["doctor", "-o", "json"]);
    let findings: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let of = |end: &str| findings.iter().filter(|f| f["end"] == end).count();
    assert!(of("local") >= 5 && of("hub") >= 1, "{ran:?}");
    for name in ["dns", "tcp", "tls", "clock", "login"] {
        assert!(
            findings
                .iter()
                .any(|f| f["name"] == name && f["ok"] == true),
            "{name}: {ran:?}"
        );
    }
    let bundles = findings.iter().find(|f| f["name"] == "bundles").unwrap();
    let both = "run: linesman engine import flux VERSION, or argocd VERSION";
    assert_eq!(bundles["fix"], both);
}

/// L12: what the program's own calls leave out of the proxy's way, the doctor does, too.
#[test]
fn the_doctor_takes_the_way_that_calls_take() {
    let home = Home::new();
    let hub = Hub::start(&home);
    hub.log_in(&home);
    // A port that was just free: nobody listens on it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap();
    drop(free);
    let doctor = |no_proxy: &str| {
        let mut command = home.linesman(&["doctor", "-o", "json"]);
        command.env("HTTPS_PROXY", format!("http://me:hunter2@{nobody}"));
        let ran = Ran::of(&command.env("NO_PROXY", no_proxy).output().unwrap());
        assert!(!ran.out.contains("hunter2"), "{ran:?}");
        let findings: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
        let local = findings.into_iter().filter(|f| f["end"] == "local");
        let local = local.filter(|f| f["name"] != "kubectl");
        local
            .map(|f| (f["name"].clone(), f["ok"].clone(), f["found"].clone()))
            .collect::<Vec<_>>()
    };
    let by_proxy = doctor("hub.example.org");
    let way = format!("calls go through http://{nobody}");
    assert_eq!(by_proxy[0], (json!("proxy"), json!(true), json!(way)));
    assert_eq!(
        (&by_proxy[1].0, &by_proxy[1].1),
        (&json!("tls"), &json!(false))
    );
    for rule in ["127.0.0.1", "hub.example.org, 127.0.0.0/8", "*"] {
        let direct = doctor(rule);
        let names: Vec<&Value> = direct.iter().map(|f| &f.0).collect();
        assert_eq!(names, ["dns", "tcp", "tls", "clock", "login"], "{rule}");
        assert!(direct.iter().all(|f| f.1 == true), "{rule}: {direct:?}");
    }
}
