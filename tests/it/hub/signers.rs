//! W43 at the hub: whose signature the catalog's head has to carry.

use linesman::wire::api::EngineKind;
use serde_json::{Value, json};

use super::engine;
use super::slug;
use super::support::{Agent, TestHub};

const PATH: &str = "/v1/catalog/signers";
const PRINT: &str = "A8E973778FA2D35F068A767EC3EE2C3325042763";
const SUBKEY: &str = "89409B4D1E528B6EBAA8E83B5B4753548730308A";
/// Made with GnuPG; the private half is gone.
const KEY: &str = include_str!("signers/ada.asc");
/// Made with `ssh-keygen`; the private half is gone.
const SSH_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPfRsgHTXlezqTkJI6jWT7JdQ7CTJ/GEb1EZcL/YRJ81 ada@example.org";
const SSH_PRINT: &str = "SHA256:hL4qR53NGMkq5FwsxkCUEnvC+K0gnyFAAzu6nq6GTQE";

async fn signers(agent: &Agent, hub: &TestHub) -> (u64, Value) {
    let path = "/v1/clusters/eu1/assignment";
    let (code, assignment) = agent.call(hub, "GET", path, "").await;
    assert_eq!(code, 200, "{assignment}");
    let signers = assignment["catalog"]["signers"].clone();
    (assignment["revision"].as_u64().unwrap(), signers)
}

/// With an older agent Argo CD does not verify: who has it, or is to have it, is named, and no cluster that verifies is handed over to it.
#[tokio::test]
async fn clusters_that_do_not_verify_are_named_and_none_is_handed_over_to_argocd() {
    let hub = TestHub::start("signers-argocd").await;
    engine::import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    // The way back of eu3 has not come to its end.
    let mut agents = Vec::new();
    for (seed, name) in [(1, "eu1"), (2, "eu2"), (3, "eu3")] {
        let token = hub.add(name).await;
        let agent = Agent::new(seed);
        assert_eq!(agent.join(&hub, name, &token).await.0, 200);
        let (in_force, ending) = if name == "eu3" {
            ("argocd", ".argocd")
        } else {
            ("flux", "")
        };
        let facts = json!({"facts": {
            "agent.replaces-engines": "true", "engine.in-force": in_force,
            "engine.paths": format!("{in_force}=clusters/{name}{ending}"),
        }});
        let path = format!("/v1/clusters/{name}/reports");
        let told = agent.call(&hub, "POST", &path, &facts.to_string()).await;
        assert_eq!(told.0, 200);
        agents.push(agent);
        let file = format!("clusters/{name}.argocd/a.yaml");
        engine::commit(&hub, &file, engine::APPLICATION).await;
    }
    let replace = async |name: &str, engine: &str| {
        let path = format!("/v1/clusters/{name}/engine");
        engine::put(&hub, &path, &json!({"engine": engine, "replace": true})).await
    };
    for (name, engine) in [("eu2", "argocd"), ("eu3", "argocd"), ("eu3", "flux")] {
        let (code, answer) = replace(name, engine).await;
        assert_eq!(code, 200, "{name} {engine} {answer}");
    }

    let forced = json!({ "publicKey": KEY, "force": true });
    let (code, shown) = hub.post(PATH, &forced).await;
    assert_eq!(code, 201, "{shown}");
    assert_eq!(shown["notVerifying"], json!(["eu2", "eu3"]));
    let (code, problem) = replace("eu1", "argocd").await;
    assert_eq!((code, slug(&problem)), (409, "other-engine"), "{problem}");
    let said = problem["detail"].as_str().unwrap();
    assert!(said.contains("the catalog has signers"), "{said}");
    // Where Flux is in force still, it verifies; and the agent knows why Argo CD must not come.
    let path = "/v1/clusters/eu2/assignment";
    let (_, told) = agents[1].call(&hub, "GET", path, "").await;
    let told = (&told["engine"]["kind"], &told["catalog"]["signers"]);
    let keys = json!([{ "fingerprint": PRINT, "publicKey": KEY, "subkeys": [SUBKEY] }]);
    assert_eq!(told, (&json!("argocd"), &keys));
    hub.stop().await;
}

/// W43: an agent that has Argo CD verify says so: its cluster is not named, and may be handed over.
#[tokio::test]
async fn clusters_whose_argocd_verifies_are_not_named() {
    let hub = TestHub::start("signers-verify").await;
    engine::import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let tells = async |verifies: bool| {
        let mut facts = json!({
            "agent.replaces-engines": "true", "engine.in-force": "flux", "engine.paths": "flux=clusters/eu1",
        });
        if verifies {
            facts["engine.verifies"] = json!("true");
        }
        let body = json!({ "facts": facts }).to_string();
        let told = agent
            .call(&hub, "POST", "/v1/clusters/eu1/reports", &body)
            .await;
        assert_eq!(told.0, 200);
    };
    engine::commit(&hub, "clusters/eu1.argocd/a.yaml", engine::APPLICATION).await;
    let forced = json!({ "publicKey": KEY, "force": true });
    assert_eq!(hub.post(PATH, &forced).await.0, 201);
    let wish = json!({ "engine": "argocd", "replace": true });
    let put = async || engine::put(&hub, "/v1/clusters/eu1/engine", &wish).await;

    tells(false).await;
    let (code, problem) = put().await;
    assert_eq!((code, slug(&problem)), (409, "other-engine"), "{problem}");
    tells(true).await;
    let (code, answer) = put().await;
    assert_eq!(code, 200, "{answer}");
    for (verifies, named) in [(true, json!([])), (false, json!(["eu1"]))] {
        tells(verifies).await;
        let (_, shown) = hub.get(PATH).await;
        assert_eq!(shown["notVerifying"], named, "{verifies}");
    }
    hub.stop().await;
}

/// W43: an SSH key is told as what it is, clusters that do not verify with it are named, and Argo CD comes to none.
#[tokio::test]
async fn an_ssh_key_is_a_signer_for_flux_alone() {
    let hub = TestHub::start("signers-ssh").await;
    engine::import_of(&hub, EngineKind::Argocd, 3, "3.5.0").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let tells = async |reads: bool| {
        let mut facts = json!({ "engine.in-force": "flux" });
        if reads {
            facts["engine.verifies-ssh"] = json!("true");
        }
        let body = json!({ "facts": facts }).to_string();
        let told = agent
            .call(&hub, "POST", "/v1/clusters/eu1/reports", &body)
            .await;
        assert_eq!(told.0, 200);
    };
    tells(false).await;
    let asked = json!({ "publicKey": SSH_KEY, "force": true });
    let (code, shown) = hub.post(PATH, &asked).await;
    assert_eq!(code, 201, "{shown}");
    let key = &shown["keys"][0];
    assert_eq!(key["fingerprint"], SSH_PRINT);
    assert_eq!(key["user"], "ada@example.org");
    assert_eq!(shown["sshUnread"], json!(["eu1"]));
    let told = json!([{ "fingerprint": SSH_PRINT, "sshKey": format!("{SSH_KEY}\n") }]);
    assert_eq!(signers(&agent, &hub).await.1, told);

    tells(true).await;
    let (_, shown) = hub.get(PATH).await;
    assert_eq!(shown["sshUnread"], Value::Null);
    let new = json!({ "name": "zz9", "engine": "argocd" });
    let (code, problem) = hub.post("/v1/clusters", &new).await;
    assert_eq!((code, slug(&problem)), (409, "other-engine"), "{problem}");
    let gone = json!({ "fingerprint": SSH_PRINT });
    let (code, shown) = hub.post("/v1/catalog/signers/drop", &gone).await;
    assert_eq!((code, &shown["keys"]), (200, &json!([])), "{shown}");
    hub.stop().await;
}

#[tokio::test]
async fn a_signer_is_told_to_every_cluster_and_the_hub_commits_no_more() {
    let hub = TestHub::start("signers").await;
    let token = hub.add("eu1").await;
    let agent = Agent::new(1);
    assert_eq!(agent.join(&hub, "eu1", &token).await.0, 200);
    let (before, none) = signers(&agent, &hub).await;
    assert_eq!(none, Value::Null);
    let (_, shown) = hub.get(PATH).await;
    assert_eq!(
        (&shown["keys"], &shown["headSignedBy"]),
        (&json!([]), &Value::Null)
    );
    let head = shown["head"].clone();

    let (code, problem) = hub.post(PATH, &json!({ "publicKey": KEY })).await;
    assert_eq!((code, slug(&problem)), (409, "head-unsigned"), "{problem}");
    let (code, problem) = hub
        .post(PATH, &json!({ "publicKey": "ssh-ed25519 AAAA" }))
        .await;
    assert_eq!((code, slug(&problem)), (400, "bad-request"), "{problem}");
    assert_eq!(signers(&agent, &hub).await, (before, Value::Null));

    let forced = json!({ "publicKey": KEY, "force": true });
    let (code, shown) = hub.post(PATH, &forced).await;
    assert_eq!(code, 201, "{shown}");
    let key = &shown["keys"][0];
    assert_eq!(key["fingerprint"], PRINT);
    assert_eq!(key["user"], "Ada Example <ada@example.org>");
    assert_eq!(hub.post(PATH, &forced).await.0, 200);
    let (after, told) = signers(&agent, &hub).await;
    let keys = json!([{ "fingerprint": PRINT, "publicKey": KEY, "subkeys": [SUBKEY] }]);
    assert_eq!(told, keys);
    assert!(after > before, "{after} after {before}");

    let new = json!({ "name": "zz9", "engine": "flux" });
    let (code, answer) = hub.post("/v1/clusters", &new).await;
    assert_eq!((code, &answer["proposed"]), (201, &json!("linesman/zz9")));
    let (_, catalog) = hub.get("/v1/catalog").await;
    assert_eq!(catalog["head"], head, "the hub cannot sign");

    let gone = json!({ "fingerprint": PRINT });
    let (code, shown) = hub.post("/v1/catalog/signers/drop", &gone).await;
    assert_eq!((code, &shown["keys"]), (200, &json!([])), "{shown}");
    let (code, problem) = hub.post("/v1/catalog/signers/drop", &gone).await;
    assert_eq!((code, slug(&problem)), (404, "not-found"));
    let (last, none) = signers(&agent, &hub).await;
    assert!(last > after, "{last} after {after}");
    assert_eq!(none, Value::Null);
    hub.stop().await;
}
