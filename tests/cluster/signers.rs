//! W43, F30: commits of the catalog that have to be signed, with either engine.

use std::fs;

use serde_json::{Value, json};

use crate::healing::{LIMIT, heals, on_record, settle, since};
use crate::support::api::path;
use crate::support::openpgp::Pgp;
use crate::support::world::{self, ARGOCD, FLUX, World, git_repository};
use crate::support::{figure, seconds, shown, until};

const FILE: &str = "clusters/demo/signed.yaml";

/// Taken away at the end, also of a test that fails: others share the cluster.
struct Signed<'a>(&'a World, String);

impl Drop for Signed<'_> {
    fn drop(&mut self) {
        let args = ["catalog", "signer", "remove", &self.1, "--force", "--yes"];
        let _gone = self.0.hub.cli(&args).output();
    }
}

fn map(version: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "signed", "namespace": "default"}, "data": {"version": version},
    })
    .to_string()
}

fn version(world: &World) -> Option<String> {
    let live = world.api.get(&path("v1", "ConfigMap", "default", "signed"));
    live?["data"]["version"].as_str().map(str::to_owned)
}

/// Whose signature the engine wants.
fn verify(world: &World) -> Value {
    if world.engine == ARGOCD {
        let project = path("argoproj.io/v1alpha1", "AppProject", ARGOCD, "default");
        return world.api.get(&project).unwrap_or_default()["spec"]["signatureKeys"].clone();
    }
    let live = world.api.get(&git_repository(FLUX));
    live.unwrap_or_default()["spec"]["verify"].clone()
}

/// The same with this one signer.
fn verifies_with(world: &World, signer: &Pgp) -> Value {
    if world.engine == ARGOCD {
        let print = signer.fingerprint();
        let id = &print[print.len() - 16..];
        json!([{ "keyID": id }])
    } else {
        json!({"mode": "HEAD", "secretRef": {"name": "linesman-signers"}})
    }
}

/// What the engine verifies with; none = nobody's key.
fn keys(world: &World) -> Option<Value> {
    if world.engine == ARGOCD {
        let ring = path("v1", "ConfigMap", ARGOCD, "argocd-gpg-keys-cm");
        let data = world.api.get(&ring)?["data"].clone();
        return data
            .as_object()
            .is_some_and(|keys| !keys.is_empty())
            .then_some(data);
    }
    let secret = path("v1", "Secret", FLUX, "linesman-signers");
    world.api.get(&secret)
}

fn nothing_is_verified(world: &World) {
    until("nothing is verified any more", seconds(LIMIT), || {
        verify(world).is_null() && keys(world).is_none()
    });
}

/// F30, W43
#[test]
#[ignore = "needs a real cluster: make test"]
fn an_unsigned_head_is_refused_and_the_last_good_revision_kept() {
    let world = world::adopted();
    refused_and_kept(&world, files_of_a_new_cluster_wait);
}

/// A signer comes, an unsigned head is refused, a signed one applied, and the signer goes. `meanwhile`, nobody has signed the head.
pub(crate) fn refused_and_kept(world: &World, meanwhile: impl FnOnce(&World)) {
    settle(world);
    let before = on_record(world);
    let ada = Pgp::new(43, "Ada Example <ada@example.org>");
    let file = world.directory.join("ada.asc");
    fs::write(&file, ada.public()).unwrap();
    let add = ["catalog", "signer", "add", file.to_str().unwrap()];

    world.push(FILE, &map("unsigned"));
    let refused = world.hub.cli(&add).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("is not signed") && said.contains("git commit -S"),
        "{said}"
    );

    world.push_signed(FILE, &map("first"), &ada);
    world.hub.linesman(&add);
    let on = Signed(world, ada.fingerprint());
    let told = until("the source verifies", seconds(LIMIT), || {
        verify(world) == verifies_with(world, &ada) && keys(world).is_some()
    });
    figure(
        "W43",
        &world.case("signer added → the engine verifies"),
        "",
        shown(told),
    );
    until("the signed commit is applied", seconds(LIMIT), || {
        version(world).as_deref() == Some("first")
    });
    world.function(seconds(LIMIT));
    let list = world.hub.json(&["catalog", "signer", "list"]);
    assert_eq!(list["notVerifying"], json!([]), "{list}");

    unsigned_is_refused(world, "first");
    meanwhile(world);
    signed_is_taken(world, &ada, "second");

    drop(on);
    nothing_is_verified(world);
    world.push(FILE, &map("unsigned again"));
    until("an unsigned commit is applied", seconds(LIMIT), || {
        version(world).as_deref() == Some("unsigned again")
    });
    settle(world);
    let new = since(world, &before);
    let classes: Vec<&Value> = new.iter().map(|h| &h["class"]).collect();
    assert_eq!(
        classes,
        ["SignatureFailed"],
        "one alert, and no heal: {new:#?}"
    );
}

/// A head that nobody signed: called by its name, and what is applied stays.
fn unsigned_is_refused(world: &World, kept: &str) {
    world.push(FILE, &map(&format!("by nobody, after {kept}")));
    let named = until("it is called SignatureFailed", seconds(LIMIT), || {
        let all = heals(world);
        let mut open = all.iter().filter(|h| h["restoredAt"].is_null());
        open.any(|h| h["class"] == "SignatureFailed")
    });
    figure(
        "W43",
        &world.case("unsigned head pushed → called by its name"),
        "≤ 90 s",
        shown(named),
    );
    // Also when the engine has looked at source and root again.
    world.looks(seconds(LIMIT));
    assert_eq!(
        version(world).as_deref(),
        Some(kept),
        "the last good one is kept"
    );
}

/// A head that is signed.
fn signed_is_taken(world: &World, by: &Pgp, next: &str) {
    world.push_signed(FILE, &map(next), by);
    let applied = until("the next signed commit is applied", seconds(LIMIT), || {
        version(world).as_deref() == Some(next)
    });
    figure(
        "W43",
        &world.case("signed head pushed → applied"),
        "",
        shown(applied),
    );
}

/// W43 with the hub stopped, once it has told who may sign.
pub(crate) fn refused_without_the_hub(world: &mut World) {
    settle(world);
    let ada = Pgp::new(44, "Ada Example <ada@example.org>");
    let file = world.directory.join("ada-44.asc");
    fs::write(&file, ada.public()).unwrap();
    world.push_signed(FILE, &map("signed first"), &ada);
    let add = ["catalog", "signer", "add", file.to_str().unwrap()];
    world.hub.linesman(&add);
    until("the source verifies", seconds(LIMIT), || {
        !verify(world).is_null() && version(world).as_deref() == Some("signed first")
    });
    settle(world);
    world.lose_hub();
    unsigned_is_refused(world, "signed first");
    signed_is_taken(world, &ada, "signed second");
    world.hub_back();
    drop(Signed(world, ada.fingerprint()));
    nothing_is_verified(world);
    settle(world);
}

/// The hub cannot sign: what it would have committed waits on a branch.
fn files_of_a_new_cluster_wait(world: &World) {
    let adoption = world.directory.join("other.yaml");
    let other = [
        "cluster",
        "add",
        "other",
        "--file",
        adoption.to_str().unwrap(),
    ];
    let added = world.hub.cli(&other).output().unwrap();
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(
        added.status.success() && said.contains("origin/linesman/other"),
        "{said}"
    );
    world.hub.linesman(&["cluster", "remove", "other", "--yes"]);
}
