use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use k8s_openapi::ByteString;
use kube::client::Body;
use time::Duration;
use time::macros::datetime;

use super::*;

const NOW: OffsetDateTime = datetime!(2026-01-02 03:04:00 UTC);

fn saved(object: Value) -> Saved {
    Saved::new(object, NOW)
}

type Maps = Arc<Mutex<BTreeMap<String, Value>>>;

/// [`Saves`] at an API server that keeps ConfigMaps, and takes just so many writes: then the process is as good as killed.
fn saves(there: &Maps, writes: usize) -> Saves {
    let (there, left) = (Arc::clone(there), Arc::new(Mutex::new(writes)));
    let server = tower::service_fn(move |request: Request<Body>| {
        let (there, left) = (Arc::clone(&there), Arc::clone(&left));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let name = parts.uri.path().rsplit('/').next().unwrap().to_owned();
            let mut there = there.lock().unwrap();
            let mut left = left.lock().unwrap();
            let (code, said) = if parts.method == Method::GET {
                let items: Vec<&Value> = there.values().collect();
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items}),
                )
            } else if *left == 0 {
                (500, json!({"kind": "Status", "code": 500, "reason": "x"}))
            } else {
                *left -= 1;
                if parts.method == Method::DELETE {
                    there.remove(&name);
                    (200, json!({"kind": "Status", "status": "Success"}))
                } else {
                    let map: Value = serde_json::from_slice(&body).unwrap();
                    there.insert(name, map.clone());
                    (200, map)
                }
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(said.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    Saves {
        maps: Api::namespaced(Client::new(server, "linesman"), "linesman"),
        part: 16,
    }
}

fn crd() -> ObjectId {
    ObjectId::new(
        Kind::CustomResourceDefinition,
        "",
        "applications.argoproj.io",
    )
}

/// W44: whenever the process ends while it writes, what was saved before or what is saved now can be read, and never neither.
#[tokio::test]
async fn an_end_between_two_parts_costs_nothing_that_was_saved() {
    let before = vec![saved(
        json!({"name": "a", "spec": "of before, in some parts"}),
    )];
    let after = [
        before.clone(),
        vec![saved(json!({"name": "b", "spec": 1_234_567}))],
    ]
    .concat();
    let later = NOW + Duration::seconds(1);
    let mut seen = BTreeSet::new();
    for writes in 0..64 {
        let there = Maps::default();
        let whole = saves(&there, usize::MAX);
        whole.store(&crd(), &before, NOW).await.unwrap();
        let parts = there.lock().unwrap().len();
        assert!(parts > 2, "{parts}");
        let done = saves(&there, writes).store(&crd(), &after, later).await;
        let left = whole.load(later).await.unwrap();
        assert_eq!(left.wrong, Vec::<String>::new());
        let left = &left.objects[&crd()];
        assert!(*left == before || *left == after, "{writes}: {left:?}");
        let alone = matches!(done, Ok(Stored::Alone));
        // Which of the two is read, whether the later one is on record, and alone.
        seen.insert((*left == after, done.is_ok(), alone));
        if alone {
            // Nothing of before is left over.
            let again = Maps::default();
            let only = saves(&again, usize::MAX);
            only.store(&crd(), &after, later).await.unwrap();
            assert!(
                there
                    .lock()
                    .unwrap()
                    .keys()
                    .eq(again.lock().unwrap().keys())
            );
            whole.forget(&crd()).await.unwrap();
            assert_eq!(*there.lock().unwrap(), BTreeMap::new());
        }
    }
    assert_eq!(
        seen,
        BTreeSet::from([
            (false, false, false),
            (true, true, false),
            (true, true, true)
        ])
    );
}

/// W44: what waits for the record of a first try waits for no more than that.
#[tokio::test]
async fn what_is_about_to_be_tried_is_on_record_beside_what_was_before() {
    let there = Maps::default();
    let whole = saves(&there, usize::MAX);
    let [never, before] = ["a", "b"].map(|name| saved(json!({"name": name})));
    let before = Saved {
        tried: Some(NOW - Duration::hours(2)),
        ..before
    };
    let objects = vec![never.clone(), before.clone()];
    whole.store(&crd(), &objects, NOW).await.unwrap();
    let parts = there.lock().unwrap().len();
    let later = NOW + Duration::minutes(1);
    // Each part once, and not a write more.
    let only = saves(&there, parts);
    only.store_tried(&crd(), &objects, later).await.unwrap();
    assert_eq!(there.lock().unwrap().len(), parts * 2);
    let never = Saved {
        tried: Some(later),
        ..never
    };
    let left = whole.load(later).await.unwrap();
    assert_eq!(left.objects[&crd()], [never, before]);
    whole.forget(&crd()).await.unwrap();
    assert_eq!(*there.lock().unwrap(), BTreeMap::new());
}

/// W46: it is told which ConfigMaps cannot be read, and what of other CRDs is saved is brought back all the same.
#[tokio::test]
async fn what_cannot_be_read_is_told_by_name_and_takes_nothing_else_along() {
    let there = Maps::default();
    let saves = saves(&there, usize::MAX);
    let objects = vec![saved(json!({"name": "a"}))];
    saves.store(&crd(), &objects, NOW).await.unwrap();
    let good = there.lock().unwrap().keys().next().unwrap().clone();
    let map = |name: &str, data: Value| {
        let labels = json!({LABEL: "true"});
        let map = json!({"metadata": {"name": name, "labels": labels}, "data": data});
        there.lock().unwrap().insert(name.to_owned(), map);
    };
    map(
        "linesman-saved-x-0",
        json!({"crd": "x.example.org", "part": "0"}),
    );
    map("linesman-saved-y-0", json!(null));
    let left = saves.load(NOW).await.unwrap();
    assert_eq!(left.objects, BTreeMap::from([(crd(), objects.clone())]));
    let what = "saved objects cannot be used, and stay in ConfigMap";
    assert_eq!(
        left.wrong,
        [
            format!("{what} linesman-saved-y-0: no data"),
            format!("{what} linesman-saved-x-0: no taken"),
        ]
    );
    // As an agent of before wrote it: older, under another name, and damaged or not.
    let old = json!({"crd": crd().name, "part": "0", "parts": "1", "sha256": "0", "taken": "2026-01-01T00:00:00.000Z"});
    map("linesman-saved-applications-0", old);
    let left = saves.load(NOW).await.unwrap();
    assert_eq!(left.objects, BTreeMap::from([(crd(), objects)]));
    saves.store(&crd(), &[], NOW).await.unwrap();
    assert!(
        !there
            .lock()
            .unwrap()
            .contains_key("linesman-saved-applications-0")
    );
    assert!(!there.lock().unwrap().contains_key(&good));
}

/// What could not be brought back is put on record again and again, and one after the other; each stays as old as it is.
#[tokio::test]
async fn what_is_stored_again_is_no_younger() {
    let there = Maps::default();
    let saves = saves(&there, usize::MAX);
    let later = NOW + Duration::hours(20);
    let [a, b, c] = ["a", "b", "c"].map(|name| saved(json!({"name": name})));
    let c = Saved { since: later, ..c };
    let mut objects = vec![a, b];
    for hours in [0, 10, 20] {
        let now = NOW + Duration::hours(hours);
        saves.store(&crd(), &objects, now).await.unwrap();
    }
    let left = saves.load(later).await.unwrap();
    assert_eq!(left.objects[&crd()], objects);
    objects.push(c);
    saves.store(&crd(), &objects, later).await.unwrap();
    let left = saves.load(later).await.unwrap();
    assert_eq!(left.objects[&crd()], objects);
}

/// W44: a CRD hangs on somebody's finalizer over a weekend, and the node is restarted in it.
#[tokio::test]
async fn what_nobody_tried_to_bring_back_is_read_however_old_it_is() {
    let there = Maps::default();
    let saves = saves(&there, usize::MAX);
    let never = saved(json!({"name": "a"}));
    let tried = Saved {
        tried: Some(NOW + Duration::hours(2)),
        ..saved(json!({"name": "b"}))
    };
    let objects = vec![never, tried];
    saves.store(&crd(), &objects, NOW).await.unwrap();
    let expected = Left {
        objects: [(crd(), objects)].into(),
        wrong: Vec::new(),
    };
    for hours in [0, 60, 24 * 365] {
        let left = saves.load(NOW + Duration::hours(hours)).await.unwrap();
        assert_eq!(left, expected, "{hours}");
    }
    // The clock may show an earlier time than it did.
    let left = saves.load(NOW - Duration::hours(60)).await.unwrap();
    assert_eq!(left, expected);
}

#[test]
fn times_are_those_of_all_objects_or_none() {
    let at = |minute: i64| NOW + Duration::minutes(minute);
    let all = [0, 0, 3].map(|minute| Saved {
        since: at(minute) + Duration::seconds(7),
        tried: (minute > 0).then_some(at(9)),
        ..saved(json!({}))
    });
    let written = runs(&all, |one| Some(one.since));
    assert_eq!(
        written,
        "2026-01-02T03:04:00.000Z 2\n2026-01-02T03:07:00.000Z 1"
    );
    let read = [0, 0, 3].map(|minute| Some(at(minute)));
    assert_eq!(times(&written, 3), Some(read.into()));
    let tried = runs(&all, |one| one.tried);
    assert_eq!(tried, "- 2\n2026-01-02T03:13:00.000Z 1");
    assert_eq!(times(&tried, 3), Some(vec![None, None, Some(at(9))]));
    assert_eq!(times(&runs(&[], |one| one.tried), 0), Some(vec![]));
    for (wrong, count) in [
        (written.as_str(), 2),
        (written.as_str(), 4),
        ("", 1),
        ("yesterday 1", 1),
        ("- x", 1),
        ("2026-01-02T03:04:00.000Z 18446744073709551615", 1),
    ] {
        assert_eq!(times(wrong, count), None, "{wrong}");
    }
}

/// As an agent of before wrote them, which said when for all of them together, in parts of `size` bytes.
fn kept(objects: &[Value], size: usize) -> Vec<ConfigMap> {
    let plain = serde_json::to_vec(objects).unwrap();
    let packed = bundle::compress(&plain);
    let parts: Vec<&[u8]> = packed.chunks(size).collect();
    let count = parts.len().to_string();
    let map = |(number, part): (usize, &&[u8])| ConfigMap {
        data: Some(BTreeMap::from([
            ("part".to_owned(), number.to_string()),
            ("parts".to_owned(), count.clone()),
            ("sha256".to_owned(), sha256_hex(&plain)),
            ("taken".to_owned(), clock::rfc3339(NOW)),
        ])),
        binary_data: Some(BTreeMap::from([(
            "objects.zst".to_owned(),
            ByteString(part.to_vec()),
        )])),
        ..ConfigMap::default()
    };
    parts.iter().enumerate().map(map).collect()
}

fn read_all(maps: &[ConfigMap]) -> Result<Generation, String> {
    let maps: Vec<&ConfigMap> = maps.iter().collect();
    read(&maps).map_err(|e| format!("{e:#}"))
}

#[test]
fn saved_objects_are_read_again_from_one_part_or_many() {
    let objects = vec![json!({"kind": "Kustomization", "spec": {"path": "./a"}}); 3];
    for size in [7, PART] {
        let expected = Generation {
            saved: objects.iter().cloned().map(saved).collect(),
            says: false,
        };
        assert_eq!(read_all(&kept(&objects, size)), Ok(expected));
    }
}

#[test]
fn damaged_and_mixed_ones_are_refused_with_the_reason() {
    let objects = [
        json!({"a": 1}),
        json!({"b": "some text that takes a few bytes"}),
    ];
    let good = kept(&objects, 20);
    assert!(good.len() > 2, "{}", good.len());
    let refused = |change: &dyn Fn(&mut Vec<ConfigMap>)| {
        let mut maps = good.clone();
        change(&mut maps);
        read_all(&maps).unwrap_err()
    };
    let count = good.len();
    assert_eq!(
        refused(&|maps| drop(maps.remove(1))),
        format!("{} of {count} parts are there", count - 1)
    );
    assert_eq!(
        refused(&|maps| {
            let data = maps[1].data.as_mut().unwrap();
            data.insert("sha256".to_owned(), "0".repeat(64));
        }),
        "the parts are of different times"
    );
    assert_eq!(
        refused(&|maps| {
            let data = maps[1].data.as_mut().unwrap();
            data.insert("tried".to_owned(), "- 2".to_owned());
        }),
        "the parts are of different times"
    );
    assert_eq!(refused(&|maps| maps[0].data = None), "no data");
    assert_eq!(refused(&|maps| maps[2].binary_data = None), "no objects");
}

/// It may have been back for months, and deleted on purpose: an agent of before did not say whether it had been tried.
#[test]
fn what_an_agent_of_before_left_a_day_ago_is_left_to_people() {
    let kept = kept(&[json!({"a": 1})], PART);
    let maps: Vec<&ConfigMap> = kept.iter().collect();
    let young = newest(&maps, NOW + STALE - Duration::SECOND).unwrap();
    assert_eq!(young, [saved(json!({"a": 1}))]);
    let old = newest(&maps, NOW + STALE).unwrap_err();
    let said = "they are of 2026-01-02T03:04:00.000Z, and whether they were brought back since is not known";
    assert_eq!(old.to_string(), said);
}

/// All that is saved may be some ten megabytes, and nothing of it is needed to delete what of it is one CRD's.
#[tokio::test]
async fn what_is_forgotten_is_told_by_its_name_alone() {
    let gone = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&gone);
    let server = tower::service_fn(move |request: Request<Body>| {
        let gone = Arc::clone(&seen);
        async move {
            let said = if *request.method() == Method::GET {
                let accept = request.headers()[http::header::ACCEPT].to_str().unwrap();
                assert!(accept.contains("PartialObjectMetadataList"), "{accept}");
                let names = [
                    "linesman-saved-applications-0",
                    "linesman-saved-applications-1767323040000-01234567-0",
                    "linesman-saved-applicationsets-1767323040000-01234567-0",
                ];
                let items = names.map(|name| json!({"metadata": {"name": name}}));
                json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {}, "items": items,
                })
            } else {
                let name = request.uri().path().rsplit('/').next().unwrap();
                gone.lock().unwrap().push(name.to_owned());
                json!({"kind": "Status", "status": "Success"})
            };
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let saves = Saves::new(&Client::new(server, "linesman"), "linesman");
    saves.forget(&crd()).await.unwrap();
    let wanted = [
        "linesman-saved-applications-0",
        "linesman-saved-applications-1767323040000-01234567-0",
    ];
    assert_eq!(*gone.lock().unwrap(), wanted);
}
