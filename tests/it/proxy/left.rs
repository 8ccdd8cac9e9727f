//! Who takes something away may leave before it is done, or never hear that it is: what runs by it ends all the same.

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming as Answer;
use linesman::clock;
use linesman::hub::replica::follow;
use sqlx::{Connection as _, SqliteConnection};
use tokio::time::timeout;

use super::apiserver::ApiServer;
use super::world::{PATIENCE, World, get};

/// A watch that has told something.
async fn running(world: &World, server: &ApiServer) -> Answer {
    let mut watch = world.send(get("/api/v1/pods?watch=1")).await.into_body();
    server.event("before\n");
    let frame = timeout(PATIENCE, watch.frame()).await.unwrap();
    let text = frame.unwrap().unwrap().into_data().unwrap();
    assert_eq!(text, "before\n");
    watch
}

/// To its end, be that a clean one.
async fn ends(mut watch: Answer) {
    let ended = async { while let Some(Ok(_)) = watch.frame().await {} };
    timeout(PATIENCE, ended).await.unwrap();
}

fn token_id(world: &World) -> String {
    world.token.split('.').nth(1).unwrap().to_owned()
}

/// H17
#[tokio::test]
async fn a_revocation_whose_caller_leaves_meanwhile_ends_what_runs() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    world.agent(&server).await;
    let watch = running(&world, &server).await;
    let database = world.hub.config.data.join("hub.db");
    let database = format!("sqlite://{}", database.display());
    let mut other = SqliteConnection::connect(&database).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();

    let revoke = Request::delete(format!("/v1/api-tokens/{}", token_id(&world)))
        .header(header::IF_MATCH, "*")
        .body(Bytes::new())
        .unwrap();
    let before = world.hub.work.len();
    {
        let mut asked = std::pin::pin!(world.send(revoke));
        let begun = async {
            while world.hub.work.len() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            answer = &mut asked => panic!("{}", answer.status()),
            begun = timeout(PATIENCE, begun) => begun.unwrap(),
        }
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    ends(watch).await;
}

/// H17: the database stored it and did not say so in time; who asks again is told that it was done before.
#[tokio::test]
async fn what_was_taken_away_without_a_word_ends_at_the_next_look() {
    let server = ApiServer::start().await;
    let mut world = World::new().await;
    world.agent(&server).await;
    let watch = running(&world, &server).await;
    follow::end_lost(&world.hub).await.unwrap();
    server.event("after\n");
    let mut watch = watch;
    let frame = timeout(PATIENCE, watch.frame()).await.unwrap();
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "after\n");

    let (store, id) = (&world.hub.store, token_id(&world));
    store.revoke_api_token(&id, clock::now()).await.unwrap();
    follow::end_lost(&world.hub).await.unwrap();
    ends(watch).await;
}
