//! What becomes of a login: its tokens are renewed, and it ends, with all that ran by it.

use std::time::Duration;

use linesman::hub::running::By;
use linesman::hub::store::Ended;
use linesman::keys;
use serde_json::json;

use super::{World, refused};
use crate::hub::slug;
use crate::wait::until;

/// H33
#[tokio::test]
async fn a_refresh_token_that_comes_again_ends_the_session() {
    let world = World::start("oidc-reuse", json!({}), |config| {
        config.sessions.grace = Duration::ZERO;
    })
    .await;
    let first = world.log_in().await;
    let (status, second) = world.refresh(&first).await;
    assert_eq!(status, 200, "{second}");
    assert_eq!(world.whoami(&second).await.0, 200);
    // Nonsense with a known id ends nothing.
    let forged = second["refreshToken"].as_str().unwrap();
    let forged = format!(
        "{}.{}",
        forged.rsplit_once('.').unwrap().0,
        keys::encode(&[0; 32])
    );
    assert_eq!(world.refresh(&json!({"refreshToken": forged})).await.0, 401);
    assert_eq!(world.whoami(&second).await.0, 200);
    let (status, problem) = world.refresh(&first).await;
    assert_eq!((status, slug(&problem)), (401, "session-ended"));
    for session in [&first, &second] {
        assert_eq!(world.whoami(session).await.0, 401);
    }
    assert_eq!(world.refresh(&second).await.0, 401);
    let end = world
        .record()
        .await
        .into_iter()
        .find(|(action, ..)| action == "session.end")
        .unwrap();
    assert_eq!(
        (end.1.as_str(), end.2.as_str()),
        ("deny", "a refresh token that had been used came again")
    );
    world.hub.stop().await;
}

/// An answer that was lost on its way is asked for again.
#[tokio::test]
async fn a_refresh_token_is_good_again_for_a_moment() {
    let world = World::start("oidc-grace", json!({}), |_| {}).await;
    let first = world.log_in().await;
    let (_, lost) = world.refresh(&first).await;
    let (status, again) = world.refresh(&first).await;
    assert_eq!(status, 200, "{again}");
    assert_eq!(world.idp.refreshes().await, 1);
    assert_ne!(lost["refreshToken"], again["refreshToken"]);
    assert_eq!(
        (world.refresh(&again).await.0, world.whoami(&lost).await.0),
        (200, 200)
    );
    world.hub.stop().await;
}

/// H33: a thief who shows a token within its grace has a line of tokens of his own; the next use of the other one ends both.
#[tokio::test]
async fn a_token_that_was_taken_within_its_grace_ends_the_session() {
    let world = World::start("oidc-fork", json!({}), |_| {}).await;
    let first = world.log_in().await;
    let (_, owners) = world.refresh(&first).await;
    let (status, thiefs) = world.refresh(&first).await;
    assert_eq!(status, 200, "{thiefs}");
    let (status, thiefs) = world.refresh(&thiefs).await;
    assert_eq!(status, 200, "{thiefs}");
    // More than the grace goes by.
    let later = "UPDATE session_token SET used_at = used_at - 31000 WHERE used_at IS NOT NULL";
    world.hub.execute(later, later).await;
    let (status, problem) = world.refresh(&owners).await;
    assert_eq!((status, slug(&problem)), (401, "session-ended"));
    for session in [&owners, &thiefs] {
        assert_eq!(world.whoami(session).await.0, 401);
    }
    assert_eq!(world.refresh(&thiefs).await.0, 401);
    let stolen = (
        "session.end".to_owned(),
        "deny".to_owned(),
        "a refresh token that had been used came again".to_owned(),
    );
    assert_eq!(world.record().await.last(), Some(&stolen));
    world.hub.stop().await;
}

/// H32, H33: a token that cannot be judged, for the keys that the hub knows are older, is no word on the person.
#[tokio::test]
async fn keys_that_the_hub_does_not_know_yet_end_no_session() {
    let mut world = World::start("oidc-keys-later", json!({}), |config| {
        config.keys_again = Duration::from_hours(1);
    })
    .await;
    let session = world.log_in().await;
    let hub = world.hub.hub.clone();
    let user = hub.store.user("ada").await.unwrap().unwrap();
    let token_id = hub.store.sessions_of(&user.id).await.unwrap()[0].id.clone();
    let by = By {
        user_id: user.id.clone(),
        token_id,
        ..By::default()
    };
    let running = hub.requests.enter(by, hub.requests.now());
    world.idp.control("keys", json!({})).await;
    // The provider's refresh tokens count once; the next one is kept each time.
    for asked in 1..=2 {
        let (status, problem) = world.refresh(&session).await;
        let told = (status, slug(&problem), world.idp.refreshes().await);
        assert_eq!(told, (502, "provider-unavailable", asked), "{problem}");
    }
    let (status, me) = world.whoami(&session).await;
    assert_eq!((status, &me["groups"]), (200, &json!(["dev", "sre"])));
    let still = tokio::time::timeout(Duration::from_millis(1), running.over()).await;
    assert!(still.is_err(), "what runs by it was cut");
    let record = world.record().await;
    let actions: Vec<&str> = record.iter().map(|(action, ..)| action.as_str()).collect();
    assert_eq!(actions, ["login"]);
    // A hub that starts anew reads them.
    drop((running, hub));
    world.hub = world.hub.restart_with(world.idp.config()).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!(status, 200, "{next}");
    assert_eq!(world.whoami(&next).await.0, 200);
    world.hub.stop().await;
}

/// H33: a hub that is started without its provider for once says no more of a session than where the provider does not answer.
#[tokio::test]
async fn a_hub_without_its_provider_ends_no_session() {
    /// More than go wrong from an address before it is told to wait.
    const MANY: usize = 100;
    let mut world = World::start("oidc-without", json!({}), |_| {}).await;
    let session = world.log_in().await;
    world.hub = world.hub.restart().await;
    for _ in 0..MANY {
        let (status, problem) = world.refresh(&session).await;
        let told = (status, slug(&problem));
        assert_eq!(told, (502, "provider-unavailable"), "{problem}");
    }
    world.hub = world.hub.restart_with(world.idp.config()).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!(status, 200, "{next}");
    assert_eq!(world.whoami(&next).await.0, 200);
    world.hub.stop().await;
}

/// H32: the same where the provider names each of its keys alike.
#[tokio::test]
async fn another_key_of_the_same_name_is_fetched() {
    let world = World::start("oidc-keys-alike", json!({"kid": "one"}), |_| {}).await;
    let session = world.log_in().await;
    world.idp.control("keys", json!({})).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!(status, 200, "{next}");
    assert_eq!(world.whoami(&next).await.0, 200);
    world.hub.stop().await;
}

/// H32: what the provider takes away arrives with the next refresh, and ends what ran by it.
#[tokio::test]
async fn groups_and_people_that_are_gone_end_what_they_ran() {
    let world = World::start("oidc-gone", json!({}), |config| {
        config.sessions.access = Duration::from_secs(1);
    })
    .await;
    let session = world.log_in().await;
    let grant = json!({"subject": "group:sre", "clusters": "all", "groups": ["view"]});
    let (status, grant) = world.hub.post("/v1/grants", &grant).await;
    assert_eq!(status, 201, "{grant}");
    let hub = &world.hub.hub;
    let user = hub.store.user("ada").await.unwrap().unwrap();
    let id = hub.store.sessions_of(&user.id).await.unwrap()[0].id.clone();
    let running = |grants: &[&str]| {
        let by = By {
            user_id: user.id.clone(),
            token_id: id.clone(),
            cluster_id: None,
            grants: grants.iter().map(|g| (*g).to_owned()).collect(),
            until: None,
        };
        hub.requests.enter(by, hub.requests.now())
    };
    // Nobody refreshes: the hub asks by itself for as long as something runs.
    let by_group = running(&[grant["id"].as_str().unwrap()]);
    let other = running(&["another"]);
    world.idp.account("ada", "ada", &["dev"]).await;
    tokio::time::timeout(Duration::from_secs(20), by_group.over())
        .await
        .unwrap();
    let known = hub.store.user("ada").await.unwrap().unwrap();
    assert_eq!(known.groups, ["dev"]);
    let still = tokio::time::timeout(Duration::from_millis(1), other.over()).await;
    assert!(still.is_err());
    world.idp.forget("ada").await;
    tokio::time::timeout(Duration::from_secs(20), other.over())
        .await
        .unwrap();
    let (status, problem) = world.refresh(&session).await;
    assert_eq!((status, slug(&problem)), (401, "session-ended"));
    let record = world.record().await;
    let actions: Vec<&str> = record.iter().map(|(action, ..)| action.as_str()).collect();
    assert_eq!(
        actions,
        ["login", "grant.add", "session.groups", "session.end"]
    );
    world.hub.stop().await;
}

/// H32: a provider that takes its time keeps nobody's word old for those who are asked about before.
#[tokio::test]
async fn running_sessions_are_asked_about_beside_each_other() {
    let world = World::start("oidc-beside", json!({}), |config| {
        config.sessions.access = Duration::from_secs(1);
    })
    .await;
    // Two may share a turn, and hardly three.
    for _ in 0..3 {
        world.log_in().await;
    }
    let hub = &world.hub.hub;
    let user = hub.store.user("ada").await.unwrap().unwrap();
    let sessions = hub.store.sessions_of(&user.id).await.unwrap();
    assert_eq!(sessions.len(), 3);
    // None is answered before two are asked about.
    let two = json!({"path": "/token", "count": 2});
    world.idp.control("gather", two).await;
    let running = sessions.iter().map(|session| {
        let by = By {
            user_id: user.id.clone(),
            token_id: session.id.clone(),
            cluster_id: None,
            grants: vec![],
            until: None,
        };
        hub.requests.enter(by, hub.requests.now())
    });
    let _running: Vec<_> = running.collect();
    until("two are answered", Duration::from_secs(20), async || {
        world.idp.refreshes().await >= 2
    })
    .await;
    world.hub.stop().await;
}

/// A new name at the provider takes the grants of the one before along: a reader of the record sees whose they were. Whoever was
/// removed is let in again by the name that they had then.
#[tokio::test]
async fn a_new_name_at_the_provider_is_on_record() {
    let world = World::start("oidc-renamed", json!({}), |_| {}).await;
    let session = world.log_in().await;
    let grant = json!({"subject": "user:ada", "clusters": "all", "groups": ["view"]});
    let (status, grant) = world.hub.post("/v1/grants", &grant).await;
    assert_eq!(status, 201, "{grant}");
    world.idp.account("ada", "eva", &["sre", "dev"]).await;
    let (status, next) = world.refresh(&session).await;
    assert_eq!((status, &next["user"]), (200, &json!("eva")), "{next}");
    world.idp.account("ada", "zoe", &["sre", "dev"]).await;
    world.log_in().await;
    let store = &world.hub.hub.store;
    let rows = store.audit_tail(None, 100).await.unwrap();
    let renamed = rows.into_iter().filter(|r| r.action == "user.rename");
    let mut renamed: Vec<_> = renamed.map(|r| (r.actor, r.target)).collect();
    renamed.sort();
    let told = |before: &str, after: &str| {
        let target = format!("{before} became {after}, with the grants for user:{before}");
        (format!("user:{before}"), target)
    };
    assert_eq!(renamed, [told("ada", "eva"), told("eva", "zoe")]);
    let zoe = store.user("zoe").await.unwrap().unwrap();
    let removed = store.remove_user(zoe.revision(), linesman::clock::now());
    assert_eq!(removed.await.unwrap(), Ended::Done);
    world.idp.account("ada", "ida", &[]).await;
    let seen = world.browser().open(&world.login_url()).await;
    let (_, why) = refused(&seen);
    assert_eq!(why, "ida, who was zoe, was removed from this hub");
    let next = seen.parameter("next").unwrap_or_default();
    assert!(next.ends_with("linesman user add zoe"), "{next}");
    world.hub.stop().await;
}

/// What is on record of a name may be two people's: whoever reads it sees where the other one begins.
#[tokio::test]
async fn a_removed_local_users_name_goes_to_somebody_else_on_record() {
    let world = World::start("oidc-freed", json!({}), |_| {}).await;
    let ada = json!({"name": "ada", "roles": ["admin"]});
    assert_eq!(world.hub.post("/v1/users", &ada).await.0, 201);
    assert_eq!(world.hub.delete("/v1/users/ada", Some("*")).await, 204);
    world.log_in().await;
    let (status, me) = world.whoami(&world.log_in().await).await;
    assert_eq!((status, &me["roles"]), (200, &json!([])), "{me}");
    let rows = world.hub.hub.store.audit_tail(None, 100).await.unwrap();
    let mut logins: Vec<_> = rows.into_iter().filter(|r| r.action == "login").collect();
    logins.sort_by_key(|r| r.seq);
    let told: Vec<_> = logins.into_iter().map(|r| (r.actor, r.target)).collect();
    let by = |how: &str| {
        let target = format!("by browser{how}, groups [\"dev\", \"sre\"]");
        ("user:ada".to_owned(), target)
    };
    let first = by(", under the name of a local user who was removed");
    assert_eq!(told, [first, by("")]);
    world.hub.stop().await;
}

/// H32: more groups than the provider tells are not none. Who has them is told so at the login, and a session does not go on by the
/// groups of before.
#[tokio::test]
async fn who_has_more_groups_than_the_provider_tells_is_refused_by_name() {
    let world = World::start("oidc-left-out", json!({}), |_| {}).await;
    let session = world.log_in().await;
    let claims = json!({
        "preferred_username": "ada",
        "_claim_names": {"groups": "src1"},
        "_claim_sources": {"src1": {"endpoint": "https://graph.example/getMemberObjects"}},
    });
    let account = json!({"id": "ada", "claims": claims});
    world.idp.control("account", account).await;
    let why = "the identity provider's claims cannot be used: the provider leaves the claim 'groups' out of what it says, \
               for this person has too many groups";
    let (status, problem) = world.refresh(&session).await;
    let told = (status, slug(&problem), problem["detail"].as_str());
    assert_eq!(told, (401, "session-ended", Some(why)));
    let next = problem["next"].as_str().unwrap();
    assert!(next.contains("--oidc-groups-claim roles"), "{next}");
    assert_eq!(world.whoami(&session).await.0, 401);
    let (_, seen) = refused(&world.browser().open(&world.login_url()).await);
    assert_eq!(seen, why);
    let denied = |action: &str| (action.to_owned(), "deny".to_owned(), why.to_owned());
    let record = world.record().await;
    let ends: Vec<_> = record.into_iter().filter(|(_, v, _)| v == "deny").collect();
    assert_eq!(ends, [denied("session.end"), denied("login")]);
    // With fewer, as before.
    world.idp.account("ada", "ada", &["sre"]).await;
    let session = world.log_in().await;
    let (_, me) = world.whoami(&session).await;
    assert_eq!(me["groups"], json!(["sre"]));
    world.hub.stop().await;
}

#[tokio::test]
async fn a_person_logs_out() {
    let world = World::start("oidc-logout", json!({}), |_| {}).await;
    let session = world.log_in().await;
    let end = json!({"refreshToken": session["refreshToken"]});
    assert_eq!(world.call("/v1/login/end", end.clone()).await.0, 204);
    assert_eq!(world.call("/v1/login/end", end).await.0, 204);
    assert_eq!(
        (
            world.whoami(&session).await.0,
            world.refresh(&session).await.0
        ),
        (401, 401)
    );
    world.hub.stop().await;
}

/// H31: a session that cannot be ended goes on as it was, and that is no attempt that went wrong: who asks again, when the
/// records take it, is logged out, and it is on record.
#[tokio::test]
async fn a_person_whose_logout_the_records_refuse_asks_again() {
    /// More than go wrong from an address before it is told to wait.
    const MANY: usize = 100;
    let world = World::start("oidc-logout-refused", json!({}), |_| {}).await;
    let mut session = world.log_in().await;
    let end = json!({"refreshToken": session["refreshToken"]});
    for (table, sqlite, postgres, again) in [
        (
            "session",
            "CREATE TRIGGER refuse BEFORE UPDATE ON session BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
            "ALTER TABLE session ADD CONSTRAINT refuse CHECK (ended_at IS NULL) NOT VALID",
            "ALTER TABLE session DROP CONSTRAINT refuse",
        ),
        (
            "audit",
            "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
            "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID",
            "ALTER TABLE audit DROP CONSTRAINT refuse",
        ),
    ] {
        world.hub.execute(sqlite, postgres).await;
        for _ in 0..MANY {
            let (status, problem) = world.call("/v1/login/end", end.clone()).await;
            assert_eq!((status, slug(&problem)), (503, "unavailable"), "{table}");
        }
        assert_eq!(world.whoami(&session).await.0, 200, "{table}");
        world.hub.execute("DROP TRIGGER refuse", again).await;
    }
    let last = async || {
        let rows = world.hub.hub.store.audit_tail(None, 1).await.unwrap();
        let row = rows.into_iter().next_back().unwrap();
        (row.seq, row.action, row.verdict)
    };
    let (before, ..) = last().await;
    assert_eq!(world.call("/v1/login/end", end).await.0, 204);
    let told = (before + 1, "logout".to_owned(), "allow".to_owned());
    assert_eq!(last().await, told);
    assert_eq!(world.whoami(&session).await.0, 401);
    session = world.log_in().await;
    assert_eq!(world.whoami(&session).await.0, 200);
    world.hub.stop().await;
}

/// H33, H37: the end of a session that cannot be put on record is none yet; what ran by it is cut all the same, and the next use of
/// the token ends it, on record. Before, it ended, and nobody could ever read why.
#[tokio::test]
async fn a_session_does_not_end_without_a_record() {
    let world = World::start("oidc-end-refused", json!({}), |config| {
        config.sessions.grace = Duration::ZERO;
    })
    .await;
    let hub = &world.hub.hub;
    let first = world.log_in().await;
    let (status, second) = world.refresh(&first).await;
    assert_eq!(status, 200, "{second}");
    let user = hub.store.user("ada").await.unwrap().unwrap();
    let token_id = hub.store.sessions_of(&user.id).await.unwrap()[0].id.clone();
    let by = By {
        user_id: user.id.clone(),
        token_id,
        ..By::default()
    };
    let running = hub.requests.enter(by, hub.requests.now());
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let no_more = "ALTER TABLE audit ADD CONSTRAINT refuse CHECK (false) NOT VALID";
    world.hub.execute(refuse, no_more).await;
    let (status, problem) = world.refresh(&first).await;
    assert_eq!((status, slug(&problem)), (503, "unavailable"));
    let cut = tokio::time::timeout(Duration::from_secs(20), running.over()).await;
    assert!(cut.is_ok(), "it runs on");
    assert_eq!(world.whoami(&second).await.0, 200);
    let again = "ALTER TABLE audit DROP CONSTRAINT refuse";
    world.hub.execute("DROP TRIGGER refuse", again).await;
    let ends = async || {
        let record = world.record().await.into_iter();
        record
            .filter(|(action, ..)| action == "session.end")
            .count()
    };
    assert_eq!(ends().await, 0);
    for _ in 0..2 {
        let (status, problem) = world.refresh(&first).await;
        assert_eq!((status, slug(&problem)), (401, "session-ended"));
    }
    assert_eq!((ends().await, world.whoami(&second).await.0), (1, 401));
    world.hub.stop().await;
}
