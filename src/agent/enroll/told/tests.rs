use super::*;

/// Every field is set, and none is the same for another `n`.
fn assignment(n: u8) -> Value {
    let key = |k: u8| json!({ "kid": format!("k{k}"), "key": format!("a{k}"), "notAfter": k });
    let signer = |k: u8| json!({ "fingerprint": format!("F{k}"), "publicKey": format!("P{k}") });
    json!({
        "cluster": { "name": "eu1", "id": "0197" },
        "hub": {
            "id": format!("h{n}"), "urls": [format!("https://hub{n}.example")], "ca": format!("ca{n}"),
            "keyset": [key(n), key(n + 1)],
        },
        "trust": {
            "version": n, "urls": [format!("https://hub{n}.example")], "ca": format!("ca{n}"), "keyset": [key(n)],
            "sig": format!("s{n}"),
        },
        "trustChain": [chained(n), chained(n + 1)],
        "catalog": {
            "url": format!("ssh://git@h{n}/c.git"), "lineUrl": format!("ssh://git@l{n}/c.git"),
            "via": if n == 1 { "line" } else { "direct" }, "branch": format!("b{n}"), "path": format!("clusters/{n}"),
            "knownHosts": format!("h{n} ssh-ed25519 AAAA"),
            "deployKey": { "state": if n == 1 { "registered" } else { "refused" }, "reason": format!("r{n}") },
            "signers": [signer(n), signer(n + 1)],
        },
        "engine": {
            "kind": if n == 1 { "flux" } else { "argocd" }, "version": format!("2.{n}.0"),
            "bundle": format!("sha256:{}", format!("{n:02}").repeat(32)), "size": n, "registry": format!("r{n}.example"),
            "pullSecret": format!("ps{n}"), "within": n, "change": n,
        },
        "policy": {
            "snapshotAfter": n, "probeEvery": n, "pausedUntil": format!("p{n}"), "pauseReason": format!("pr{n}"),
            "safeHealsUntil": format!("s{n}"), "safeHealsReason": format!("sr{n}"),
            "liftBefore": format!("l{n}"),
        },
        "rotate": { "deployKey": format!("SHA256:d{n}"), "identity": format!("SHA256:i{n}") },
        "agentImage": format!("linesman:{n}"), "agentImageWish": n,
        "revision": n,
    })
}

fn chained(n: u8) -> Value {
    let key = json!({ "kid": format!("c{n}"), "key": format!("b{n}") });
    json!({
        "version": n, "urls": [format!("https://before{n}.example")], "ca": format!("before{n}"), "keyset": [key],
        "sig": format!("t{n}"),
    })
}

fn typed(value: &Value) -> Assignment {
    serde_json::from_value(value.clone()).unwrap()
}

/// The place of every value in it, but of the whole.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(n, v)| (n.to_string(), v))
            .collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let at = format!("{at}/{key}");
        places(child, &at, all);
        all.push(at);
    }
}

/// What may stay as it was where `at` is not understood.
fn costs(at: &str) -> Vec<&str> {
    let field = |n| {
        at.match_indices('/')
            .nth(n)
            .map_or(at, |(end, _)| &at[..end])
    };
    match field(2) {
        whole
        @ ("/hub/keyset" | "/catalog/lineUrl" | "/catalog/deployKey" | "/catalog/signers") => {
            vec![whole]
        }
        "/catalog/via" => vec!["/catalog/via", "/catalog/lineUrl", "/catalog/knownHosts"],
        "/agentImage" | "/agentImageWish" => vec!["/agentImage", "/agentImageWish"],
        other if other.starts_with("/hub") => vec!["/hub"],
        other if other.starts_with("/trustChain") => vec!["/trustChain"],
        other if other.starts_with("/trust") => vec!["/trust"],
        other if other.starts_with("/catalog") => vec!["/catalog", "/engine"],
        other if other.starts_with("/engine") => vec!["/engine", "/catalog/path"],
        other => vec![other],
    }
}

fn blank(value: &mut Value, at: &[&str]) {
    for at in at {
        if let Some(part) = value.pointer_mut(at) {
            *part = Value::Null;
        }
    }
}

/// H51: in every place of an assignment a word and a form that this build does not know.
#[test]
fn a_foreign_word_costs_only_the_part_that_it_stands_in() {
    let (before, now) = (assignment(1), assignment(2));
    let kept = typed(&before);
    let mut all = Vec::new();
    places(&now, "", &mut all);
    assert!(all.len() > 50, "{}", all.len());
    let mut odd = 0;
    for at in &all {
        for word in [
            json!("later"),
            json!({ "later": [1, null] }),
            json!([["later"]]),
        ] {
            let mut body = now.clone();
            *body.pointer_mut(at).unwrap() = word.clone();
            let strange = serde_json::from_value::<Assignment>(body.clone()).is_err();
            let read = read(body.to_string().as_bytes(), Some(&kept));
            if at.starts_with("/cluster") || at == "/revision" {
                assert_eq!(read.is_err(), strange, "{at} {word}");
                continue;
            }
            let read = read.unwrap_or_else(|error| panic!("{at} {word}: {error}"));
            assert_eq!(
                read.unknown.is_empty(),
                !strange,
                "{at} {word}: {:?}",
                read.unknown
            );
            if !strange {
                assert_eq!(read.assignment, typed(&body), "{at} {word}");
                continue;
            }
            odd += 1;
            let names = at.trim_start_matches('/').replace('/', ".");
            let part = read.unknown[0].split_once(':').unwrap().0;
            assert!(names.starts_with(part), "{at} is named {:?}", read.unknown);
            let costs = costs(at);
            let mut rest = serde_json::to_value(&read.assignment).unwrap();
            for part in costs.iter().filter(|part| {
                !matches!(**part, "/hub/keyset" | "/trustChain" | "/catalog/signers")
            }) {
                let now = [now.pointer(part), before.pointer(part)];
                assert!(now.contains(&rest.pointer(part)), "{at}: {part}");
            }
            let mut wanted = now.clone();
            blank(&mut rest, &costs);
            blank(&mut wanted, &costs);
            assert_eq!(rest, wanted, "{at} {word}");
        }
    }
    assert!(odd > 80, "{odd}");
}

#[test]
fn what_is_not_understood_stays_as_it_was() {
    let kept = typed(&assignment(1));
    let mut body = assignment(2);
    body["engine"]["kind"] = json!("kapp");
    body["catalog"]["via"] = json!("pigeon");
    body["catalog"]["deployKey"]["state"] = json!("retired");
    body["policy"]["probeEvery"] = json!("5m");
    body["hub"]["keyset"][0]["key"] = json!({ "pq": "x" });
    let told = read(body.to_string().as_bytes(), Some(&kept)).unwrap();
    let now = typed(&assignment(2));
    let mut wanted = now.clone();
    wanted.engine = kept.engine.clone();
    wanted.catalog.path.clone_from(&kept.catalog.path);
    wanted.catalog.via = Via::Line;
    wanted.catalog.line_url.clone_from(&kept.catalog.line_url);
    wanted
        .catalog
        .known_hosts
        .clone_from(&kept.catalog.known_hosts);
    wanted.catalog.deploy_key = kept.catalog.deploy_key.clone();
    wanted.policy.probe_every = kept.policy.probe_every;
    wanted.hub.keyset.remove(0);
    assert_eq!(told.assignment, wanted);
    let parts: Vec<&str> = told
        .unknown
        .iter()
        .map(|word| word.split_once(':').unwrap().0)
        .collect();
    let named = [
        "hub.keyset",
        "catalog.via",
        "catalog.deployKey",
        "engine",
        "policy.probeEvery",
    ];
    assert_eq!(parts, named);
    assert!(told.unknown[3].contains("`kapp`"), "{:?}", told.unknown);
}

/// A cluster that joins has nothing of before. What it can do without does not keep it from joining.
#[test]
fn a_cluster_that_joins_does_without_what_it_does_not_know() {
    let mut body = assignment(2);
    body["catalog"]["via"] = json!("pigeon");
    body["catalog"]["deployKey"]["state"] = json!("retired");
    body["policy"] = json!({ "probeEvery": "5m", "snapshotAfter": 7 });
    body["agentImage"] = json!({ "arm64": "linesman:2" });
    let told = read(body.to_string().as_bytes(), None).unwrap();
    let mut wanted = typed(&assignment(2));
    wanted.catalog.deploy_key.state = crate::wire::api::DeployKeyState::Pending;
    "the agent is older than the hub".clone_into(&mut wanted.catalog.deploy_key.reason);
    wanted.policy = Policy {
        snapshot_after: 7,
        ..Policy::default()
    };
    wanted.agent_image = None;
    assert_eq!(told.assignment, wanted);
    assert_eq!(told.unknown.len(), 4, "{:?}", told.unknown);

    // Without an engine, or with signers of whom none is known, there is nothing that could be followed safely.
    for (at, word) in [
        ("/engine/kind", json!("kapp")),
        ("/catalog/signers", json!([{ "ssh": "k" }])),
    ] {
        let mut body = assignment(2);
        *body.pointer_mut(at).unwrap() = word;
        let body = body.to_string();
        let error = read(body.as_bytes(), None).unwrap_err();
        assert!(!error.to_string().is_empty());
        // Who told it, and what it was, is understood.
        let (answer, known) = (unfollowed(body.as_bytes()).unwrap(), typed(&assignment(2)));
        assert_eq!(
            (answer.cluster, answer.hub, answer.trust),
            (known.cluster, known.hub, known.trust)
        );
        let named = at.trim_start_matches('/').split('/').next().unwrap();
        assert!(answer.unknown[0].starts_with(named), "{:?}", answer.unknown);
    }
}

/// What is no answer of a hub, or of one that cannot be told apart, is not spoken to.
#[test]
fn only_a_hub_that_is_known_is_told_that_it_was_not_understood() {
    let mut nobody = assignment(2);
    nobody["hub"]["id"] = json!(7);
    let mut odd = assignment(2);
    odd["cluster"]["name"] = json!("Not a name");
    for body in [nobody, odd, json!({}), json!([]), json!("hub")] {
        assert_eq!(unfollowed(body.to_string().as_bytes()), None, "{body}");
    }
    let mut unnamed = assignment(2);
    unnamed["revision"] = json!("seven");
    let answer = unfollowed(unnamed.to_string().as_bytes()).unwrap();
    assert_eq!(answer.unknown.len(), 1, "{:?}", answer.unknown);
}

#[test]
fn signers_that_are_not_known_never_open_the_catalog() {
    let kept = typed(&assignment(1));
    let mut body = assignment(2);
    body["catalog"]["signers"] = json!([{ "ssh": "k" }]);
    let told = read(body.to_string().as_bytes(), Some(&kept)).unwrap();
    assert_eq!(told.assignment.catalog.signers, kept.catalog.signers);
    body["catalog"]["signers"] =
        json!([{ "ssh": "k" }, { "fingerprint": "F9", "publicKey": "P9" }]);
    let told = read(body.to_string().as_bytes(), Some(&kept)).unwrap();
    let known: Vec<_> = told
        .assignment
        .catalog
        .signers
        .iter()
        .map(|s| s.fingerprint.as_str())
        .collect();
    assert_eq!(known, ["F9"]);
}
