//! One watch through the whole day: it sees each change that is made straight at the API server once, and in its order, however often
//! it is cut off, for it goes on from the version that it saw last.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Day;
use crate::kubectl::NAMESPACE;
use crate::support::api::path;
use crate::support::figure;

/// Between two changes. An API server keeps the last hundred of a kind, so that those of a cut are still there after it.
const PAUSE: Duration = Duration::from_secs(2);
/// Seconds after which the API server ends a watch: one whose end comes late by a cut is not stuck.
const LONGEST: u64 = 100;
const SELECTOR: &str = "labelSelector=by%3Dsoak";
/// What is created after all others.
const LAST: &str = "soak-last";
/// How long after the day's end a watch may go on to see that.
const LATEST: Duration = Duration::from_mins(5);

/// None of the changes is lost to the watch, and it sees none twice.
pub(super) fn nothing_is_lost(day: &Day<'_>, minutes: u64) {
    let list = format!("{}?{SELECTOR}", collection());
    let list = day.world.api.get(&list).unwrap();
    let version = version(&list);
    let (written, (seen, cuts)) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(day));
        let seen = watch(day, version);
        (writer.join().unwrap(), seen)
    });
    assert!(day.world.api.delete(&map(LAST)));
    let times = |all: &[String], one: &String| all.iter().filter(|other| *other == one).count();
    let lost: Vec<_> = written.iter().filter(|w| times(&seen, w) == 0).collect();
    let twice: Vec<_> = written.iter().filter(|w| times(&seen, w) > 1).collect();
    figure(
        "soak",
        &format!("{minutes} min: changes in a watch that goes on where it was cut off"),
        "0 lost, 0 twice",
        format!(
            "{}, cut off {cuts} times, {} lost, {} twice",
            written.len(),
            lost.len(),
            twice.len()
        ),
    );
    assert!(
        lost.is_empty() && twice.is_empty(),
        "lost: {lost:?}; twice: {twice:?}"
    );
    assert!(
        seen == written,
        "{seen:?} was seen, and this written: {written:?}"
    );
}

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

fn map(name: &str) -> String {
    path("v1", "ConfigMap", NAMESPACE, name)
}

fn version(object: &Value) -> String {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap().to_owned()
}

/// Straight at the API server, as long as the day lasts; what was done, as a watch names it.
fn write(day: &Day<'_>) -> Vec<String> {
    let api = &day.world.api;
    let mut written = Vec::new();
    let create = |written: &mut Vec<String>, name: &str| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"by": "soak"}},
        });
        api.create(&collection(), &map);
        written.push(format!("ADDED {name}"));
    };
    for n in 0_u64.. {
        if day.is_over() {
            break;
        }
        let name = format!("soak-{n}");
        create(&mut written, &name);
        // Nothing is waited for: changes come all day.
        thread::sleep(PAUSE);
        api.patch(&map(&name), &json!({ "data": { "changed": "true" } }));
        written.push(format!("MODIFIED {name}"));
        thread::sleep(PAUSE);
        assert!(api.delete(&map(&name)));
        written.push(format!("DELETED {name}"));
        thread::sleep(PAUSE);
    }
    create(&mut written, LAST);
    written
}

/// What is seen from this version on until the last change, and how often the watch was cut off meanwhile.
fn watch(day: &Day<'_>, mut version: String) -> (Vec<String>, usize) {
    let (mut seen, mut cuts) = (Vec::new(), 0);
    let last = format!("ADDED {LAST}");
    while !seen.contains(&last) {
        let left = day.until.saturating_duration_since(Instant::now());
        let late = Instant::now().saturating_duration_since(day.until);
        assert!(late < LATEST, "not seen: what came after {version}");
        let path = format!(
            "{}?watch=1&allowWatchBookmarks=true&{SELECTOR}&resourceVersion={version}&timeoutSeconds={}",
            collection(),
            left.as_secs().clamp(5, LONGEST)
        );
        let out = day.kubectl(&["get", "--raw", &path]);
        let mut is_cut = !out.status.success();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!said.contains("too old resource version"), "{said}");
        let events = String::from_utf8_lossy(&out.stdout).into_owned();
        // Of the last one a part may have come.
        let events = events
            .lines()
            .map_while(|line| serde_json::from_str::<Value>(line).ok());
        for event in events {
            is_cut |= see(&event, &mut version, &mut seen);
        }
        cuts += usize::from(is_cut);
    }
    (seen, cuts)
}

/// Whether the hub says that it has cut it off.
fn see(event: &Value, version: &mut String, seen: &mut Vec<String>) -> bool {
    let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
    if kind == "ERROR" {
        // Else something is lost for good.
        assert_ne!(object["code"], 410, "{object}");
        return true;
    }
    *version = self::version(object);
    if kind != "BOOKMARK" {
        let name = object["metadata"]["name"].as_str().unwrap();
        seen.push(format!("{kind} {name}"));
    }
    false
}
