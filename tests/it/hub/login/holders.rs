//! Groups of people who use API tokens: as new as those of a session while the provider can be asked, and none when it was not
//! heard for too long.

use std::time::Duration;

use linesman::hub::auth::Role;
use linesman::hub::oidc::Config;
use linesman::hub::running::By;
use serde_json::{Value, json};

use super::World;
use crate::hub::slug;
use crate::wait::until;

const SOON: Duration = Duration::from_secs(20);

/// A world in which ada logged in and has an API token.
async fn world(name: &str, change: impl FnOnce(&mut Config)) -> (World, Value, String) {
    let world = World::start(name, json!({}), |config| {
        config.roles = vec![(Role::Viewer, "sre".to_owned())];
        config.sessions.access = Duration::from_secs(1);
        change(config);
    })
    .await;
    let session = world.log_in().await;
    let new = json!({"user": "ada", "title": "laptop", "lasts": 86_400});
    let (code, made) = world.hub.post("/v1/api-tokens", &new).await;
    assert_eq!(code, 201, "{made}");
    let token = made["token"].as_str().unwrap().to_owned();
    (world, session, token)
}

async fn me(world: &World, token: &str) -> Value {
    let call = ("GET", "/v1/whoami");
    let (code, me) = world.hub.call_as(token, call, &[], &Value::Null).await;
    assert_eq!(code, 200, "{me}");
    me
}

async fn clusters(world: &World, token: &str) -> (u16, Value) {
    let call = ("GET", "/v1/clusters");
    world.hub.call_as(token, call, &[], &Value::Null).await
}

/// H32, for API tokens: a group that is gone at the provider is gone here although nobody refreshes a session, and what ran by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_a_token_are_those_that_the_provider_says_now() {
    let (world, _, token) = world("oidc-holders", |_| {}).await;
    assert_eq!(me(&world, &token).await["groups"], json!(["dev", "sre"]));
    assert_eq!(clusters(&world, &token).await.0, 200);
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["view"]});
    let (_, grant) = world.hub.post("/v1/grants", &grant).await;
    let hub = &world.hub.hub;
    let user = hub.store.user("ada").await.unwrap().unwrap();
    let by = By {
        user_id: user.id,
        token_id: "an-api-token".to_owned(),
        cluster_id: None,
        grants: vec![grant["id"].as_str().unwrap().to_owned()],
        until: None,
    };
    let running = hub.requests.enter(by, hub.requests.now());
    world.idp.account("ada", "ada", &["dev"]).await;
    tokio::time::timeout(SOON, running.over()).await.unwrap();
    assert_eq!(me(&world, &token).await["groups"], json!(["dev"]));
    assert_eq!(clusters(&world, &token).await.0, 403);
    // And one that is new.
    world.idp.account("ada", "ada", &["ops", "sre"]).await;
    until("the new groups", SOON, async || {
        me(&world, &token).await["groups"] == json!(["ops", "sre"])
    })
    .await;
    world.hub.stop().await;
}

/// H32: who is gone at the provider has no groups any more, and is told what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_someone_whom_the_provider_refuses_count_no_more() {
    let (world, _, token) = world("oidc-holders-gone", |_| {}).await;
    world.idp.forget("ada").await;
    until("the groups are gone", SOON, async || {
        me(&world, &token).await["groups"] == json!([])
    })
    .await;
    assert_eq!(
        me(&world, &token).await["groupsLapsed"],
        json!("groups do not count, for the identity provider does not vouch for the user now")
    );
    let (code, problem) = clusters(&world, &token).await;
    assert_eq!((code, slug(&problem)), (403, "not-allowed"));
    assert_eq!(problem["next"], json!("its user runs: linesman login HUB"));
    let record = world.record().await;
    let told = record
        .iter()
        .filter(|(action, ..)| action == "session.groups");
    assert_eq!(told.count(), 1, "{record:?}");
    // They come back.
    world.idp.account("ada", "ada", &["sre"]).await;
    world.log_in().await;
    let back = me(&world, &token).await;
    assert_eq!(
        (&back["groups"], &back["groupsLapsed"]),
        (&json!(["sre"]), &Value::Null)
    );
    assert_eq!(clusters(&world, &token).await.0, 200);
    world.hub.stop().await;
}

/// H32: who asks for someone why they do not get through hears what kubectl tells them, and not that a grant is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_says_of_lapsed_groups_what_kubectl_is_told() {
    let (world, _, token) = world("oidc-holders-check", |_| {}).await;
    world.hub.add("eu1").await;
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["view"]});
    assert_eq!(world.hub.post("/v1/grants", &grant).await.0, 201);
    let check = async || {
        let path = "/v1/grants/check?user=ada&cluster=eu1";
        world.hub.get(path).await.1
    };
    let yes = check().await;
    assert_eq!(
        (&yes["allowed"], &yes["groupsLapsed"], &yes["next"]),
        (&json!(true), &Value::Null, &json!(""))
    );
    world.idp.forget("ada").await;
    until("the groups are gone", SOON, async || {
        me(&world, &token).await["groups"] == json!([])
    })
    .await;
    let call = ("GET", "/clusters/eu1/version");
    let (code, status) = world.hub.call_as(&token, call, &[], &Value::Null).await;
    assert_eq!(code, 403, "{status}");
    let no = check().await;
    assert_eq!(
        (&no["allowed"], &no["reason"], &no["userGroups"]),
        (
            &json!(false),
            &status["details"]["causes"][0]["message"],
            &json!([])
        )
    );
    let next = no["next"].as_str().unwrap();
    assert_eq!(next, "its user runs: linesman login HUB");
    let said = status["message"].as_str().unwrap();
    assert!(said.contains(&format!("; {next} (request ")), "{said}");
    assert_eq!(
        no["groupsLapsed"],
        json!("groups do not count, for the identity provider does not vouch for the user now")
    );
    world.hub.stop().await;
}

/// Of two sessions one is enough to ask by; a provider that is away is no word; after the last session the groups count for as
/// long as the hub was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_that_nobody_can_be_asked_about_count_for_a_while() {
    let (world, session, token) = world("oidc-holders-old", |config| {
        config.groups_within = Duration::from_hours(5);
    })
    .await;
    let other = world.log_in().await;
    let end = async |session: &Value| {
        let end = json!({"refreshToken": session["refreshToken"]});
        assert_eq!(world.call("/v1/login/end", end).await.0, 204);
    };
    end(&session).await;
    world.idp.account("ada", "ada", &["sre"]).await;
    until("asked by the other", SOON, async || {
        me(&world, &token).await["groups"] == json!(["sre"])
    })
    .await;
    end(&other).await;
    world.idp.account("ada", "ada", &[]).await;
    let hours_go_by = async |hours: i64| {
        let ms = hours * 3_600_000;
        let sqlite = format!("UPDATE user SET vouched_at = vouched_at - {ms}");
        let postgres = format!("UPDATE \"user\" SET vouched_at = vouched_at - {ms}");
        world.hub.execute(sqlite.leak(), &postgres).await;
        world.hub.hub.store.access().add();
    };
    hours_go_by(4).await;
    assert_eq!(me(&world, &token).await["groups"], json!(["sre"]));
    hours_go_by(1).await;
    let old = me(&world, &token).await;
    assert_eq!(
        (&old["groups"], &old["groupsLapsed"]),
        (
            &json!([]),
            &json!(
                "groups do not count, for the identity provider was not heard on the user for too long"
            )
        )
    );
    assert_eq!(clusters(&world, &token).await.0, 403);
    world.idp.account("ada", "ada", &["sre", "dev"]).await;
    world.log_in().await;
    assert_eq!(me(&world, &token).await["groups"], json!(["dev", "sre"]));
    world.hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_away_takes_no_groups_with_it() {
    let (world, _, token) = world("oidc-holders-away", |_| {}).await;
    let World { hub, idp } = world;
    drop(idp);
    let store = &hub.hub.store;
    let user = store.user("ada").await.unwrap().unwrap();
    // Long due, and asked for several times.
    until("calls that failed", SOON, async || {
        let now = linesman::clock::now();
        let issuer = &hub.hub.config.oidc.as_ref().unwrap().issuer;
        let before = now - Duration::from_secs(4);
        let due = store.sessions_due(issuer, before, now, 9).await.unwrap();
        due.len() == 1
    })
    .await;
    let call = ("GET", "/v1/whoami");
    let (_, me) = hub.call_as(&token, call, &[], &Value::Null).await;
    assert_eq!(me["groups"], json!(["dev", "sre"]));
    let known = store.user("ada").await.unwrap().unwrap();
    assert_eq!(known, user);
    assert_eq!(store.sessions_of(&user.id).await.unwrap().len(), 1);
    hub.stop().await;
}

/// What happened since, of these actions.
async fn told(world: &World, actions: &[&str]) -> Vec<String> {
    let record = world.record().await.into_iter();
    let all = record.map(|(action, ..)| action);
    all.filter(|action| actions.contains(&action.as_str()))
        .collect()
}

/// H32, H37: other groups count once they are on record, and not before; what ran by those that are gone is cut all the same. Before,
/// they changed, and the next look saw nothing that had changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_do_not_change_without_a_record() {
    let world = World::start("oidc-groups-refused", json!({}), |_| {}).await;
    let hub = &world.hub.hub;
    let session = world.log_in().await;
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["view"]});
    let (_, grant) = world.hub.post("/v1/grants", &grant).await;
    let by = By {
        user_id: hub.store.user("ada").await.unwrap().unwrap().id,
        token_id: "an-api-token".to_owned(),
        grants: vec![grant["id"].as_str().unwrap().to_owned()],
        ..By::default()
    };
    let running = hub.requests.enter(by, hub.requests.now());
    world.idp.account("ada", "ada", &["dev"]).await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    world.hub.execute(refuse, no_more).await;
    let (code, problem) = world.refresh(&session).await;
    assert_eq!(code, 503, "{problem}");
    // What the provider gave in place of the spent token is stored by then, which a hub with PostgreSQL says.
    let said = slug(&problem);
    assert!(
        ["unavailable", "outcome-unknown"].contains(&said),
        "{problem}"
    );
    tokio::time::timeout(SOON, running.over()).await.unwrap();
    let groups = async || hub.store.user("ada").await.unwrap().unwrap().groups;
    assert_eq!(groups().await, ["dev", "sre"]);
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    let (code, next) = world.refresh(&session).await;
    assert_eq!(
        (code, groups().await),
        (200, vec!["dev".to_owned()]),
        "{next}"
    );
    assert_eq!(told(&world, &["session.groups"]).await, ["session.groups"]);
    world.hub.stop().await;
}

/// H37: nor does somebody become a user of the hub by a login that is on no record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_arrives_without_a_record() {
    let world = World::start("oidc-arrival-refused", json!({}), |_| {}).await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    world.hub.execute(refuse, no_more).await;
    let seen = world.browser().open(&world.login_url()).await;
    assert_eq!(seen.parameter("code"), None, "{seen:?}");
    assert!(world.hub.hub.store.user("ada").await.unwrap().is_none());
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    world.log_in().await;
    assert!(world.hub.hub.store.user("ada").await.unwrap().is_some());
    assert_eq!(told(&world, &["login"]).await, ["login"]);
    world.hub.stop().await;
}

/// H32, H37: the provider's no counts once it is on record; until then its session does not end, by which it is asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_providers_no_does_not_count_without_a_record() {
    const ENDS: [&str; 2] = ["session.groups", "session.end"];
    let (world, session, token) = world("oidc-no-refused", |config| {
        // Nobody but the test asks.
        config.sessions.access = Duration::from_hours(1);
    })
    .await;
    world.idp.forget("ada").await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN NEW.action = 'session.groups' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more =
        "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (action <> 'session.groups') NOT VALID";
    world.hub.execute(refuse, no_more).await;
    let (code, problem) = world.refresh(&session).await;
    assert_eq!((code, slug(&problem)), (503, "unavailable"));
    assert_eq!(me(&world, &token).await["groups"], json!(["dev", "sre"]));
    assert_eq!(told(&world, &ENDS).await, [""; 0]);
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    for _ in 0..2 {
        let (code, problem) = world.refresh(&session).await;
        assert_eq!(code, 401, "{problem}");
    }
    assert_eq!(me(&world, &token).await["groups"], json!([]));
    assert_eq!(told(&world, &ENDS).await, ENDS);
    world.hub.stop().await;
}
