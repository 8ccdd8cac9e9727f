//! Queries: what they find, and at how many records they look for it.

use linesman::hub::audit::chain;
use linesman::hub::store::{
    AuditQuery, AuditRow, AuditWrites, DRY_RUN, LOOKED_AT, OfAction, OfRequest, Store,
};

use super::super::{Place, at, on_both};
use super::{loose, one_more, stored};

on_both! {
    a_query_narrows_by_all_that_it_names,
    a_query_finds_all_of_a_time,
    a_query_finds_what_one_request_left,
    a_query_finds_actions_and_namespaces,
    the_ends_of_writes_are_found_by_cluster_time_and_name,
}

async fn a_query_narrows_by_all_that_it_names(store: Store) {
    let rows = stored(&store, 100).await;
    let query = AuditQuery {
        after: Some(10),
        before: Some(90),
        actor: Some("user:2".to_owned()),
        cluster: Some("eu1".to_owned()),
        verdict: Some("allow".to_owned()),
        stages: ["close", "event"].map(str::to_owned).to_vec(),
        actions: vec![OfAction::Only("kube.get".to_owned())],
        namespace: None,
        request: None,
        since: Some(1_790_000_000_020),
        until: Some(1_790_000_000_080),
        newest: true,
        limit: 5,
    };
    let wanted = rows.iter().rev().filter(|r| {
        r.seq % 4 == 2
            && r.verdict == "allow"
            && r.stage != "open"
            && (20..80).contains(&(r.at - 1_790_000_000_000))
    });
    let wanted: Vec<AuditRow> = wanted.take(5).cloned().collect();
    assert_eq!(wanted.len(), 5);
    assert_eq!(store.audit_query(&query).await.unwrap().rows, wanted);
    assert_eq!(store.audit_before(at(50)).await.unwrap(), 49);
    assert_eq!(store.audit_before(at(-5)).await.unwrap(), 0);
}

/// Its beginning and its end, however many are between.
async fn a_query_finds_what_one_request_left(store: Store) {
    let floor = chain::genesis("hub-1");
    let request = |row: AuditRow| AuditRow {
        request_id: "asked".to_owned(),
        ..row
    };
    let mut rows = vec![
        loose("event", None),
        request(loose("open", None)),
        loose("event", None),
        request(loose("close", Some(2))),
        loose("event", None),
    ];
    store.extend_audit(floor, &mut rows, "r1").await.unwrap();
    let at = rows[0].at;
    let found = async |id: &str, from: i64, newest| {
        let query = AuditQuery {
            request: Some(OfRequest {
                id: id.to_owned(),
                from,
            }),
            newest,
            limit: 9,
            ..AuditQuery::default()
        };
        let page = store.audit_query(&query).await.unwrap();
        page.rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    for from in [0, at - 1, at] {
        assert_eq!(found("asked", from, false).await, [2, 4]);
        assert_eq!(found("asked", from, true).await, [4, 2]);
    }
    assert_eq!(found("ask", at, true).await, [0_i64; 0]);
    assert_eq!(found("asked", at + 1, true).await, [0_i64; 0]);
}

/// Those alone that were let through and done, and not as a dry run, in that time and in that cluster, by the name of what they wrote to.
async fn the_ends_of_writes_are_found_by_cluster_time_and_name(store: Store) {
    let path = "/apis/apps/v1/namespaces/a/deployments/web";
    let ended = |n: i64, action: &str, target: &str| AuditRow {
        at: 1_790_000_000_000 + n,
        action: action.to_owned(),
        target: target.to_owned(),
        cluster: Some("eu1".to_owned()),
        code: Some(200),
        ..loose("close", None)
    };
    let patched = |n: i64| ended(n, "kube.patch", path);
    let mut rows = vec![
        patched(9),
        patched(10),
        ended(11, "kube.get", path),
        ended(12, "kube.patch", "/api/v1/namespaces/a/pods/other"),
        ended(13, "kube.deletecollection", "/api/v1/namespaces/a/pods"),
        AuditRow {
            code: Some(403),
            ..patched(14)
        },
        AuditRow {
            cluster: Some("us1".to_owned()),
            ..patched(15)
        },
        AuditRow {
            verdict: "deny".to_owned(),
            ..patched(16)
        },
        AuditRow {
            stage: "open".to_owned(),
            ..patched(17)
        },
        AuditRow {
            reason: Some(DRY_RUN.to_owned()),
            ..patched(17)
        },
        ended(18, "kube.create", &format!("{path}/scale")),
        patched(19),
        patched(20),
    ];
    let floor = chain::genesis("hub-1");
    store.extend_audit(floor, &mut rows, "r1").await.unwrap();
    let asked = AuditWrites {
        cluster: "eu1".to_owned(),
        name: "web".to_owned(),
        since: 1_790_000_000_010,
        until: 1_790_000_000_020,
    };
    let found = store.audit_writes(&asked).await.unwrap();
    let found: Vec<i64> = found.iter().map(|row| row.at - 1_790_000_000_000).collect();
    assert_eq!(found, [19, 18, 13, 10]);
}

/// By their names and beginnings, and by where a path has the namespace.
async fn a_query_finds_actions_and_namespaces(store: Store) {
    let of = |action: &str, target: &str| AuditRow {
        action: action.to_owned(),
        target: target.to_owned(),
        ..loose("event", None)
    };
    let mut rows = vec![
        of("kube.exec", "/api/v1/namespaces/shop/pods/x/exec"),
        of("kube.list", "/apis/apps/v1/namespaces/shop/deployments"),
        of("kube.get", "/api/v1/namespaces/shop"),
        of("kube.watch", "/api/v1/watch/namespaces/shop/pods"),
        of("kube.exec", "/api/v1/namespaces/shop-2/pods/x/exec"),
        of("kube.list", "/api/v1/pods"),
        of("kubeconfig", "/api/v1/namespaces/shop/x"),
        of("cluster.add", "shop"),
        of(
            "kube.get",
            "/api/v1/namespaces/a/services/s/proxy/namespaces/shop/x",
        ),
    ];
    let floor = chain::genesis("hub-1");
    store.extend_audit(floor, &mut rows, "r1").await.unwrap();
    let found = async |actions: &[OfAction], namespace: Option<&str>| {
        let query = AuditQuery {
            actions: actions.to_vec(),
            namespace: namespace.map(str::to_owned),
            limit: 99,
            ..AuditQuery::default()
        };
        let page = store.audit_query(&query).await.unwrap();
        page.rows.iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    let only = |name: &str| OfAction::Only(name.to_owned());
    let below = |begin: &str| OfAction::Below(begin.to_owned());
    assert_eq!(found(&[only("kube.exec")], None).await, [1, 5]);
    let two = [only("kube.exec"), below("cluster.")];
    assert_eq!(found(&two, None).await, [1, 5, 8]);
    assert_eq!(found(&[below("kube.")], None).await, [1, 2, 3, 4, 5, 6, 9]);
    assert_eq!(found(&[only("kube")], None).await, [0_i64; 0]);
    assert_eq!(found(&[], Some("shop")).await, [1, 2, 3, 4, 7]);
    let both = found(&[only("kube.exec")], Some("shop")).await;
    assert_eq!(both, [1]);
}

/// Numbers are no times: a clock may have been ahead.
async fn a_query_finds_all_of_a_time(store: Store) {
    let mut rows = stored(&store, 100).await;
    for later in [500, 110] {
        one_more(&store, &mut rows, later).await;
    }
    let of_since = async |since: i64, after, newest| {
        let query = AuditQuery {
            after,
            since: Some(1_790_000_000_000 + since),
            newest,
            limit: 200,
            ..AuditQuery::default()
        };
        let found = store.audit_query(&query).await.unwrap();
        found.rows.into_iter().map(|r| r.seq).collect::<Vec<_>>()
    };
    let of_rows = |since: i64| -> Vec<i64> {
        let late = rows.iter().filter(|r| r.at >= 1_790_000_000_000 + since);
        late.map(|r| r.seq).collect()
    };
    for since in [0, 1, 57, 100, 105, 200, 501] {
        assert_eq!(of_since(since, None, false).await, of_rows(since));
        assert_eq!(of_since(since, Some(0), false).await, of_rows(since));
        let falling: Vec<i64> = of_rows(since).into_iter().rev().collect();
        assert_eq!(of_since(since, None, true).await, falling);
    }
    assert_eq!(of_since(57, Some(98), false).await, [99, 100, 101, 102]);
}

/// 300,000 records as of a hub that runs for long, nine seconds apart: only the first five are refusals, of cluster `eu9`.
async fn of_long_ago(place: &Place) -> Store {
    const SQLITE: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
        INSERT INTO audit (seq, at, stage, actor, action, cluster, target, request_id, verdict, remote, prev, hash)
        SELECT i, i * 9000, 'event', 'user:ada', 'a', CASE WHEN i <= 5 THEN 'eu9' ELSE 'eu1' END, 't', 'r',
          CASE WHEN i <= 5 THEN 'deny' ELSE 'allow' END, '', zeroblob(32), zeroblob(32) FROM n";
    const POSTGRES: &str = "INSERT INTO audit (seq, at, stage, actor, action, cluster, target, request_id, verdict, remote, prev, hash)
        SELECT i, i * 9000, 'event', 'user:ada', 'a', CASE WHEN i <= 5 THEN 'eu9' ELSE 'eu1' END, 't', 'r',
          CASE WHEN i <= 5 THEN 'deny' ELSE 'allow' END, '', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')
        FROM generate_series(1::bigint, 300000::bigint) AS n (i); ANALYZE audit";
    let store = place.open().await;
    let filled = match place {
        Place::File(_) => SQLITE,
        Place::Server(_) => POSTGRES,
    };
    place.execute(filled).await;
    store
}

/// What a query finds, page by page, and how many records were looked at for each page.
async fn looked_through(store: &Store, mut query: AuditQuery) -> (Vec<i64>, Vec<i64>) {
    let (mut found, mut steps) = (Vec::new(), Vec::new());
    let mut from = if query.newest { 300_001 } else { 0 };
    loop {
        let page = store.audit_query(&query).await.unwrap();
        found.extend(page.rows.iter().map(|row| row.seq));
        let Some(looked) = page.looked else {
            return (found, steps);
        };
        steps.push((looked - from).abs());
        from = looked;
        if query.newest {
            query.before = Some(looked);
        } else {
            query.after = Some(looked);
        }
    }
}

/// What no record is, in pages of which each looks at so many at most.
async fn of_none(store: &Store, query: impl Fn(bool) -> AuditQuery) {
    for newest in [true, false] {
        for query in [
            AuditQuery {
                actions: vec![OfAction::Only("kube.exec".to_owned())],
                ..query(newest)
            },
            AuditQuery {
                actor: Some("user:ada".to_owned()),
                namespace: Some("shop".to_owned()),
                ..query(newest)
            },
        ] {
            let (found, steps) = looked_through(store, query).await;
            assert!(found.is_empty() && steps.len() >= 5, "{steps:?}");
            assert!(steps.iter().all(|step| *step <= LOOKED_AT), "{steps:?}");
        }
    }
}

/// Of a request, what came since it was made: a third of all, in which the hub looks for others of it to the end.
async fn of_a_request(store: &Store, query: impl Fn(bool) -> AuditQuery) {
    for newest in [true, false] {
        let query = AuditQuery {
            request: Some(OfRequest {
                id: "none".to_owned(),
                from: 200_000 * 9000,
            }),
            after: (!newest).then_some(199_999),
            ..query(newest)
        };
        let (found, steps) = looked_through(store, query).await;
        assert_eq!((found, steps.len() <= 2), (vec![], true), "{steps:?}");
    }
}

async fn a_page_looks_at_a_bounded_number_of_records(place: Place) {
    let store = of_long_ago(&place).await;
    let text = |text: &str| Some(text.to_owned());
    let query = |newest| AuditQuery {
        newest,
        limit: 100,
        ..AuditQuery::default()
    };
    let five = |newest: bool| -> Vec<i64> {
        if newest {
            (1..=5).rev().collect()
        } else {
            (1..=5).collect()
        }
    };
    for newest in [true, false] {
        // By an index alone: found at once, and nothing else is looked at.
        for query in [
            AuditQuery {
                verdict: text("deny"),
                ..query(newest)
            },
            AuditQuery {
                cluster: text("eu9"),
                ..query(newest)
            },
        ] {
            let found = looked_through(&store, query).await;
            assert_eq!(found, (five(newest), vec![]), "{newest}");
        }
        // Two conditions of which the index knows one, and a time that no number goes by.
        for query in [
            AuditQuery {
                actor: text("user:ada"),
                verdict: text("deny"),
                ..query(newest)
            },
            AuditQuery {
                until: Some(5 * 9000 + 1),
                ..query(newest)
            },
        ] {
            let (found, steps) = looked_through(&store, query).await;
            assert_eq!((found, steps.len() <= 6), (five(newest), true), "{newest}");
            assert!(steps.iter().all(|step| *step <= LOOKED_AT), "{steps:?}");
        }
    }
    of_a_request(&store, query).await;
    of_none(&store, query).await;
    // What there is plenty of fills its page at the first look.
    let allowed = AuditQuery {
        verdict: text("allow"),
        ..query(true)
    };
    let page = store.audit_query(&allowed).await.unwrap();
    let newest: Vec<i64> = page.rows.iter().map(|row| row.seq).collect();
    assert_eq!(newest, (299_901..=300_000).rev().collect::<Vec<_>>());
    assert_eq!(page.looked, None);
    from_a_time_on(&store, query(false)).await;
    of_few_writes(&place, &store).await;
}

/// In order: the first of them is far behind the beginning.
async fn from_a_time_on(store: &Store, query: AuditQuery) {
    let mut since = AuditQuery {
        since: Some(200_000 * 9000),
        ..query
    };
    let mut looks = 1;
    let first = loop {
        let page = store.audit_query(&since).await.unwrap();
        match page.rows.first() {
            Some(row) => break row.seq,
            None => since.after = Some(page.looked.unwrap()),
        }
        looks += 1;
    };
    assert!(first == 200_000 && looks <= 5, "{first} {looks}");
}

/// Of a cluster in which little is done, whatever others do at the same time.
async fn of_few_writes(place: &Place, store: &Store) {
    const WRITTEN: &str =
        "UPDATE audit SET stage = 'close', verdict = 'allow', action = 'kube.patch',
        code = 200, target = '/api/v1/nodes/n' WHERE seq <= 5";
    place.execute(WRITTEN).await;
    let asked = AuditWrites {
        cluster: "eu9".to_owned(),
        name: "n".to_owned(),
        since: 2 * 9000,
        until: 300_001 * 9000,
    };
    let found = store.audit_writes(&asked).await.unwrap();
    let found: Vec<i64> = found.iter().map(|row| row.seq).collect();
    assert_eq!(found, [5, 4, 3, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_sqlite_looks_at_a_bounded_number_of_records() {
    let place = Place::file("audit-looked-sqlite");
    a_page_looks_at_a_bounded_number_of_records(place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_postgres_looks_at_a_bounded_number_of_records() {
    a_page_looks_at_a_bounded_number_of_records(Place::server().await).await;
}
