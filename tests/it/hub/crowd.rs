//! H11: many clusters at once, and a hub that has many already.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use linesman::clock;
use linesman::hub::registration::{Prefix, TokenText};
use linesman::hub::store::{JoinToken, NewClusterRow, TokenKind};
use linesman::wire::api::{AdoptionOptions, EngineKind, GitRoute};
use linesman::wire::id::Digest;
use tokio::time::{Instant, sleep};

use super::slug;
use super::support::{Agent, TestHub};

/// Adds a cluster as the API does, without its YAML; gives the token.
async fn add(hub: &TestHub, name: &str) -> String {
    let new = NewClusterRow {
        name: name.parse().unwrap(),
        labels: BTreeMap::new(),
        engine: EngineKind::Flux,
        engine_version: "2.9.5".to_owned(),
        bundle: Digest::from_bytes([1; 32]),
        catalog_path: format!("clusters/{name}"),
        git_route: GitRoute::Auto,
        adoption: AdoptionOptions::default(),
    };
    let (store, now) = (&hub.hub.store, clock::now());
    let cluster = store.create_cluster(new, now).await.unwrap();
    let text = TokenText::new(clock::random(), clock::random());
    let token = JoinToken {
        id: text.id.clone(),
        cluster_id: cluster.id,
        hash: text.hash(),
        kind: TokenKind::Join,
        new_cluster: false,
        adoption: AdoptionOptions::default(),
        issued_by: "admin".to_owned(),
        expires_at: now + Duration::from_hours(1),
        redeemed: None,
        revoked_at: None,
        created_at: now,
    };
    store.issue_join_token(token).await.unwrap();
    text.text(Prefix::Join).into_inner()
}

/// Joins as an agent does: it comes again when it is told so. Gives how often it was sent away.
async fn join(hub: &TestHub, number: u32, token: &str) -> u32 {
    let name = format!("c{number}");
    let agent = Agent::of(number);
    let body = agent.join_body(hub, &name, token);
    let mut away = 0;
    let end = Instant::now() + Duration::from_mins(4);
    loop {
        let call = hub.call("POST", "/v1/join", &body);
        let answer = call.stream(&agent.identity).await;
        let code = answer.status().as_u16();
        if code == 200 {
            return away;
        }
        let wait = answer.headers().get("retry-after").cloned();
        let problem = answer.json().await.unwrap();
        assert_eq!((code, slug(&problem)), (429, "busy"), "{name}");
        let wait = wait.unwrap().to_str().unwrap().parse().unwrap();
        assert!(Instant::now() < end, "{name} was sent away {away} times");
        sleep(Duration::from_secs(wait)).await;
        away += 1;
    }
}

/// H11: none of a thousand that come at once is lost; who finds no place is told when to come again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_joins_at_once_are_all_taken_in() {
    const JOINS: u32 = 1_000;
    let hub = TestHub::start("crowd").await;
    let tokens = join_all((0..JOINS).map(|n| {
        let hub = &hub;
        async move { add(hub, &format!("c{n}")).await }
    }))
    .await;
    let began = Instant::now();
    let away = join_all(
        (0..JOINS)
            .zip(&tokens)
            .map(|(n, token)| join(&hub, n, token)),
    )
    .await;
    let took = began.elapsed();
    let joined = hub.hub.store.joined().await.unwrap();
    assert_eq!(joined.len(), JOINS as usize);
    let most = away.iter().max().unwrap();
    println!(
        "figure | H11 | 1,000 joins at once: all joined | none lost | {took:.1?}, sent away {most} times at most"
    );
    let rows = hub.hub.store.audit(0, None, 5_000).await.unwrap();
    let told = rows.iter().filter(|row| row.action == "cluster.join");
    assert_eq!(told.count(), JOINS as usize);
    hub.stop().await;
}

/// User and system time of this process so far.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which may hold anything (proc(5)): the 14th and 15th field, in hundredths of a second.
    let (_, rest) = text.rsplit_once(')').unwrap();
    let fields: Vec<u64> = rest
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse().unwrap())
        .collect();
    Duration::from_millis(fields.iter().sum::<u64>() * 10)
}

/// H11: a join costs a hub of many clusters what it costs a hub of few. Other tests in the process would count, so it is run alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures the CPU time of the whole process, so it runs alone: make large"]
async fn a_join_costs_the_same_among_many_clusters() {
    const JOINS: u32 = 100;
    let hub = TestHub::start("crowd-cost").await;
    let mut next = 0;
    let mut cost = async |up_to: u32| {
        while next + JOINS < up_to {
            add(&hub, &format!("c{next}")).await;
            next += 1;
        }
        let mut tokens = Vec::new();
        for n in next..next + JOINS {
            tokens.push((n, add(&hub, &format!("c{n}")).await));
        }
        next += JOINS;
        let before = cpu();
        for (n, token) in &tokens {
            assert_eq!(join(&hub, *n, token).await, 0);
        }
        cpu().saturating_sub(before) / JOINS
    };
    // The first ones warm up.
    cost(0).await;
    let few = cost(200).await;
    let many = cost(10_000).await;
    println!(
        "figure | H11 | CPU of a join with its agent, among 200 and 10,000 clusters | ≤ 1.5 × | {few:.2?}, {many:.2?}"
    );
    assert!(many <= few * 3 / 2, "{few:?} {many:?}");
    hub.stop().await;
}
