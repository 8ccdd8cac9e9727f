//! People who left: what they made for themselves holds no longer than the provider's word on them.

use std::time::Duration;

use linesman::clock;
use linesman::hub::auth::Role;
use linesman::keys::KeyPair;
use linesman::wire::api::{CatalogRef, DeployKeyState, DeployKeyStatus, Via};
use serde_json::{Value, json};

use super::World;
use crate::hub::rotate::world::read_catalog;
use crate::hub::slug;

/// A world in which ada logged in and made herself a token and an SSH key; those, and how the catalog is reached.
async fn world(name: &str, within: Duration) -> (World, String, KeyPair, CatalogRef) {
    let world = World::start(name, json!({}), |config| {
        config.roles = vec![(Role::Operator, "sre".to_owned())];
        config.vouched_within = within;
    })
    .await;
    let session = world.log_in().await;
    let access = session["accessToken"].as_str().unwrap();
    let call = async |path: &str, body: Value| {
        let (code, made) = world.hub.call_as(access, ("POST", path), &[], &body).await;
        assert!((200..300).contains(&code), "{made}");
        made
    };
    let year = json!({"title": "laptop", "lasts": 31_536_000});
    let token = call("/v1/api-tokens", year).await["token"].clone();
    let key = KeyPair::from_seed(&[7; 32]);
    let public = key.public().openssh("ada").unwrap();
    call(
        "/v1/catalog/ssh-keys",
        json!({"publicKey": public, "title": "laptop"}),
    )
    .await;
    let (_, catalog) = world.hub.get("/v1/catalog").await;
    let text = |member: &str| catalog[member].as_str().unwrap().to_owned();
    let catalog = CatalogRef {
        url: text("url"),
        line_url: None,
        via: Via::Direct,
        branch: text("branch"),
        path: String::new(),
        known_hosts: text("knownHosts"),
        deploy_key: DeployKeyStatus {
            state: DeployKeyState::Registered,
            reason: String::new(),
        },
        signers: Vec::new(),
    };
    let token = token.as_str().unwrap().to_owned();
    (world, token, key, catalog)
}

/// As if the provider had not been asked for 31 days.
async fn a_month_goes_by(world: &World) {
    world
        .hub
        .execute(
            "UPDATE user SET vouched_at = vouched_at - 2678400000",
            "UPDATE \"user\" SET vouched_at = vouched_at - 2678400000",
        )
        .await;
    // What was read before says nothing any more.
    world.hub.hub.store.access().add();
}

/// Ada's own roles, and what her groups give her, as admins see them.
async fn by_groups(world: &World) -> Value {
    let (_, ada) = world.hub.get("/v1/users/ada").await;
    json!([ada["roles"], ada["rolesByGroup"]])
}

fn operator_by_sre(in_force: bool) -> Value {
    json!([[], [{"role": "operator", "group": "sre", "inForce": in_force}]])
}

/// When a token of this user ends by the provider's word: as its holder is told, and as the list of all has it.
async fn ends(world: &World, user: &str, token: &str) -> [Value; 2] {
    let (_, me) = whoami(world, token).await;
    let (_, all) = world.hub.get("/v1/api-tokens?user=*").await;
    let mut all = all["items"].as_array().unwrap().iter();
    let listed = all.find(|listed| listed["user"] == user).unwrap();
    [me["vouchedUntil"].clone(), listed["vouchedUntil"].clone()]
}

/// A month after the provider's last word on ada.
async fn month_later(world: &World) -> Value {
    let (_, ada) = world.hub.get("/v1/users/ada").await;
    let vouched = clock::parse_rfc3339(ada["vouchedAt"].as_str().unwrap()).unwrap();
    json!(clock::rfc3339(vouched + time::Duration::days(30)))
}

async fn whoami(world: &World, token: &str) -> (u16, Value) {
    let call = ("GET", "/v1/whoami");
    world.hub.call_as(token, call, &[], &Value::Null).await
}

/// H33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_made_for_themselves_ends_with_the_providers_word_on_them() {
    let month = Duration::from_hours(30 * 24);
    let (world, token, key, catalog) = world("oidc-vouched", month).await;
    assert_eq!(whoami(&world, &token).await.0, 200);
    read_catalog(&catalog, &key).await.unwrap();
    let machine = world.hub.user("ci", &["viewer"], &[]).await;
    assert_eq!(by_groups(&world).await, operator_by_sre(true));
    let until = month_later(&world).await;
    let both = [until.clone(), until];
    assert_eq!(ends(&world, "ada", &token).await, both);
    let none = [Value::Null, Value::Null];
    assert_eq!(ends(&world, "ci", &machine).await, none);

    a_month_goes_by(&world).await;
    assert_eq!(by_groups(&world).await, operator_by_sre(false));
    let (code, problem) = whoami(&world, &token).await;
    assert_eq!((code, slug(&problem)), (401, "login-required"));
    assert_eq!(
        problem["detail"],
        json!("the identity provider has not vouched for this token's user for too long")
    );
    read_catalog(&catalog, &key).await.unwrap_err();
    // A local user is nobody else's word.
    assert_eq!(whoami(&world, &machine).await.0, 200);

    // Who is still there logs in, and goes on.
    let session = world.log_in().await;
    assert_eq!(world.whoami(&session).await.0, 200);
    assert_eq!(whoami(&world, &token).await.0, 200);
    read_catalog(&catalog, &key).await.unwrap();
    let (_, users) = world.hub.get("/v1/users").await;
    let vouched = |name: &str| {
        let all = users["items"].as_array().unwrap().iter();
        let mut named = all.filter(|user| user["name"] == name);
        named.next().unwrap()["vouchedAt"].is_string()
    };
    assert_eq!((vouched("ada"), vouched("ci")), (true, false));
    world.hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_was_told_so_takes_tokens_to_their_own_end() {
    let (world, token, key, catalog) = world("oidc-unvouched", Duration::ZERO).await;
    a_month_goes_by(&world).await;
    assert_eq!(whoami(&world, &token).await.0, 200);
    let none = [Value::Null, Value::Null];
    assert_eq!(ends(&world, "ada", &token).await, none);
    read_catalog(&catalog, &key).await.unwrap();
    world.hub.stop().await;
}
